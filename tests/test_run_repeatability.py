"""The same spec and seed give the same rows: at any concurrency, in process or over loopback, under any load."""

from pathlib import Path
from typing import Any

import pytest

from agents.simulated.app import simulated_provider
from agents.simulated.serve import serve
from experiments.bill import read_bill
from experiments.experiment import Experiment
from experiments.loading import load
from experiments.runner import run_experiment
from harbor_tasks.format import bundled_tasks, load_tasks
from tests.experiment_files import PAIR, rows, write_spec
from tests.sandbox_tasks import needs_isolation


def experiment(folder: Path, concurrency: int) -> Experiment:
    return load(write_spec(folder, PAIR, repeats=2), concurrency=concurrency)


def same(left: dict[str, list[dict[str, Any]]], right: dict[str, list[dict[str, Any]]]) -> None:
    """Compared table by table, row by row, so that a difference is readable."""
    assert {table: len(lines) for table, lines in left.items()} == {table: len(lines) for table, lines in right.items()}
    for table in left:
        for one, other in zip(left[table], right[table], strict=True):
            assert one == other, table


@needs_isolation
@pytest.mark.timeout(600)
async def test_rows_do_not_depend_on_concurrency_nor_on_the_way_to_the_simulator(tmp_path: Path) -> None:
    alone, together, served = (tmp_path / f"{name}.duckdb" for name in ("alone", "together", "served"))
    await run_experiment(experiment(tmp_path, 1), alone)
    await run_experiment(experiment(tmp_path, 8), together)
    tasks, _ = load_tasks(bundled_tasks())
    bill = tmp_path / "bill.jsonl"
    async with serve(simulated_provider(tasks=tasks, bill=bill)) as port:
        report = await run_experiment(experiment(tmp_path, 8), served, simulator_url=f"http://127.0.0.1:{port}")
    assert (report.left, report.bill) == (0, None)
    expected = rows(alone)
    for stored in expected["experiments"]:
        stored["spec"] = stored["spec"].replace('"concurrency": 1,', '"concurrency": 8,')
    same(expected, rows(together))
    same(expected, rows(served))
    assert sum(line.usd for line in read_bill(bill).values()) == sum(call["cost_usd"] for call in expected["calls"])
