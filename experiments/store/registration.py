"""What a plan becomes in the database before its first trial."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING

from experiments.errors import PlanChanged
from experiments.plan import Plan
from experiments.store.journal import iso
from experiments.store.ledger import ModelFacts
from experiments.store.rows import Row

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


def model_facts(models: Mapping[str, ModelFacts]) -> dict[str, dict[str, object]]:
    return {name: asdict(known) for name, known in models.items()}


def experiment_row(
    plan: Plan, models: Mapping[str, ModelFacts], spec: Mapping[str, object] | None, now: datetime
) -> Row:
    return {
        "name": plan.experiment,
        "description": plan.description,
        "spec": spec,
        "models": model_facts(models),
        "seed": plan.seed,
        "repeats": plan.repeats,
        "pass_threshold": plan.pass_threshold,
        "prices_at": iso(plan.prices_at) if plan.prices_at else None,
        "virtual_epoch": iso(plan.virtual_epoch) if plan.virtual_epoch else None,
        "simulated": plan.simulated,
        "created_at": iso(now),
    }


def refresh_experiment(
    connection: "DuckDBPyConnection", plan: Plan, models: Mapping[str, ModelFacts], spec: Mapping[str, object] | None
) -> None:
    """A spec may grow: what decides nothing about stored trials follows it, a stored model's facts stay."""
    row = connection.execute("SELECT models FROM experiments WHERE name = ?", [plan.experiment]).fetchone()
    stored = json.loads(row[0]) if row else {}
    connection.execute(
        "UPDATE experiments SET description = $2, spec = coalesce($3, spec), repeats = $4, models = $5 WHERE name = $1",
        [
            plan.experiment,
            plan.description,
            None if spec is None else json.dumps(spec),
            plan.repeats,
            json.dumps(model_facts(models) | stored),
        ],
    )


def arm_rows(plan: Plan) -> list[Row]:
    return [
        {
            "experiment": plan.experiment,
            "name": arm.name,
            "position": position,
            "topology": arm.topology,
            "roles": dict(arm.roles),
            "parts": arm.parts,
        }
        for position, arm in enumerate(plan.arms)
    ]


def task_rows(plan: Plan) -> list[Row]:
    return [
        {
            "experiment": plan.experiment,
            "name": task.name,
            "position": position,
            "digest": task.digest,
            "category": task.category,
            "parts": task.parts,
        }
        for position, task in enumerate(plan.tasks)
    ]


def trial_rows(plan: Plan) -> list[Row]:
    return [
        {
            "id": trial.id,
            "experiment": plan.experiment,
            "arm": trial.arm,
            "task": trial.task,
            "repeat": trial.repeat,
            "position": trial.position,
            "nonce": trial.nonce,
            "semantic_hash": trial.hash,
            "simulated": plan.simulated,
        }
        for trial in plan.trials
    ]


def refuse_changed(connection: "DuckDBPyConnection", plan: Plan) -> None:
    """Raises PlanChanged when a stored trial was planned differently. `experiments.plan.changes` tells in what."""
    stored: dict[str, str] = dict(
        connection.execute("SELECT id, semantic_hash FROM trials WHERE experiment = ?", [plan.experiment]).fetchall()
    )
    differing = [trial for trial in plan.trials if stored[trial.id] != trial.hash]
    if differing:
        first = differing[0]
        raise PlanChanged(
            f"{plan.experiment}: {len(differing)} stored trials were planned differently, for one arm {first.arm!r} on "
            f"task {first.task!r}; give the new plan a name of its own with --as NAME"
        )
