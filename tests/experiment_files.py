"""Small specs for the tests of whole runs, and a database's rows in a form that two runs can be compared by."""

from pathlib import Path
from typing import Any

import duckdb

from experiments.experiment import Experiment
from experiments.loading import load
from experiments.store.reader import Reader

SOLO = "  - {name: alone, topology: solo, roles: {solo: sim-deepseek-v4-flash}}\n"
PAIR = """\
  - name: pair
    topology: planner_worker
    roles: {planner: sim-claude-opus-5-5, worker: sim-deepseek-v4-flash}
"""
TASK = "bundled/checkout-incident"
"""The one whose trials and verification compute least, and whose planner's cache still expires."""

WALL = {
    "wall_started_at", "wall_ended_at", "verifier_seconds", "verifier_output", "created_at",
    "truth_seconds", "copy_seconds", "state",
}  # fmt: skip
"""Columns that tell when and how fast the machine ran (tests print seconds, and files may hold times); all others
follow from the spec."""

TABLES = (
    "experiments",
    "arms",
    "tasks",
    "trials",
    "attempts",
    "trial_roles",
    "calls",
    "charges",
    "expiries",
    "expiry_holds",
    "settlements",
    "messages",
    "commands",
    "spans",
    "handovers",
    "reviews",
    "rewrites",
    "rewards",
    "prices",
)


def write_spec(folder: Path, arms: str = SOLO, *, tasks: str = TASK, repeats: int = 1, more: str = "") -> Path:
    path = folder / "spec.yaml"
    path.write_text(f"name: tiny\ntasks: [{tasks}]\nrepeats: {repeats}\nseed: 3\narms:\n{arms}{more}")
    return path


def small(folder: Path, arms: str = SOLO, **changes: Any) -> Experiment:
    return load(write_spec(folder, arms, **changes))


def rows(database: Path) -> dict[str, list[dict[str, Any]]]:
    """Every row of every table, without the columns of WALL, in a fixed order."""
    found = {}
    with Reader(database) as reader:
        for table in TABLES:
            columns, lines = reader.query(f"SELECT * FROM {table}")  # noqa: S608
            kept = [
                {name: value for name, value in zip(columns, line, strict=True) if name not in WALL} for line in lines
            ]
            found[table] = sorted(kept, key=repr)
    return found


def scalar(database: Path, sql: str) -> Any:
    """From what is merged: a third of the time that a Reader takes, which looks into the journals too."""
    with duckdb.connect(database, read_only=True) as connection:
        found = connection.execute(sql).fetchone()
    assert found is not None
    return found[0]
