"""The slow proofs, on the shipped quickstart itself. FULLCHAIN_PROOFS=reduced makes them fit a gate.

Their figures, with command and date, stand in docs/proofs.md.
"""

import asyncio
import json
import os
import random
from decimal import Decimal
from pathlib import Path

import pytest

from agents.simulated.app import simulated_provider
from agents.simulated.serve import serve
from experiments.bill import Billed, bill_folder, read_bill
from experiments.experiment import Experiment
from experiments.loading import find_spec, load
from experiments.runner import run_experiment
from experiments.statistics.comparison import SHARE, comparison, expiry_sources
from experiments.store.reader import Reader, query
from harbor_tasks.format import bundled_tasks, load_tasks
from tests.experiment_files import PAIR, rows, scalar, small
from tests.test_run_interrupted import assert_gone, family, started
from tests.test_run_repeatability import same

pytestmark = pytest.mark.slow

REDUCED = os.environ.get("FULLCHAIN_PROOFS") == "reduced"
KILLS = 5 if REDUCED else 40
REPEATS = 2 if REDUCED else 12


@pytest.mark.timeout(1200)
async def test_the_quickstart_gives_the_same_rows_at_any_concurrency_and_over_loopback(tmp_path: Path) -> None:
    def quickstart(concurrency: int) -> Experiment:
        return load(find_spec("quickstart"), concurrency=concurrency)

    alone, together, served = (tmp_path / f"{name}.duckdb" for name in ("alone", "together", "served"))
    await run_experiment(quickstart(1), alone)
    await run_experiment(quickstart(24), together)
    tasks, _ = load_tasks(bundled_tasks())
    bill = tmp_path / "bill.jsonl"
    async with serve(simulated_provider(tasks=tasks, bill=bill)) as port:
        await run_experiment(quickstart(8), served, simulator_url=f"http://127.0.0.1:{port}")
    found = {name: rows(tmp_path / f"{name}.duckdb") for name in ("alone", "together", "served")}
    for tables in found.values():
        for row in tables["experiments"]:
            row["spec"] = {field: value for field, value in json.loads(row["spec"]).items() if field != "concurrency"}
    same(found["alone"], found["together"])
    same(found["alone"], found["served"])
    with Reader(alone) as reader:
        shown = {line["arm"]: line["expiry_share"] for line in comparison(reader, "quickstart")}
        (source,) = expiry_sources(reader, "quickstart")
        assert shown == dict(reader.query(SHARE.format(experiment="quickstart")).rows)
    assert (source["arm"], source["role"]) == ("planner-worker", "planner")
    assert shown["planner-worker"] > 0.1
    dollars = sum((call["cost_usd"] for call in found["served"]["calls"]), Decimal(0))
    assert sum(line.usd for line in read_bill(bill).values()) == dollars
    print(f"\n{len(found['alone']['calls'])} calls, {len(found['alone']['charges'])} charges, ${dollars}: same rows 3x")


@pytest.mark.timeout(1800)
async def test_a_run_that_is_killed_again_and_again_loses_no_call_and_doubles_no_trial(tmp_path: Path) -> None:
    database = tmp_path / "x.duckdb"
    chance = random.Random(20261130)  # noqa: S311  (repeatable, not secret)
    finished = [0]
    for _ in range(KILLS):
        with started(tmp_path, database, REPEATS) as run:
            await asyncio.sleep(chance.uniform(0.3, 6.0))
            processes = family(run.pid)
            run.kill()
            run.communicate(timeout=60)
        assert_gone(processes)
        if database.exists():
            # With what only the journals of killed runs hold.
            finished.append(query(database, "SELECT count(*) FROM trials WHERE final_attempt IS NOT NULL").rows[0][0])
            assert finished[-1] >= finished[-2], "a finished trial was lost"
    report = await run_experiment(small(tmp_path, PAIR, repeats=REPEATS), database)
    assert report.left == 0
    billed: dict[str, Billed] = {}
    for path in bill_folder(database).glob("*.jsonl"):
        whole = path.with_suffix(".whole")
        # The kill may have torn the bill's last line.
        whole.write_bytes(path.read_bytes()[: path.read_bytes().rfind(b"\n") + 1])
        billed |= read_bill(whole)
    with Reader(database) as reader:
        stored = {key: row for key, *row in reader.query("SELECT key, cost_low_usd, cost_high_usd FROM calls").rows}
        lost = reader.query("SELECT count(*) FROM calls WHERE outcome = 'lost'").rows[0][0]
    assert billed.keys() <= stored.keys()
    assert all(low <= billed[key].usd <= high for key, (low, high) in stored.items() if key in billed)
    assert scalar(database, "SELECT max(n) FROM (SELECT count(*) AS n FROM calls GROUP BY key)") == 1
    assert scalar(database, "SELECT count(*) FROM attempts WHERE outcome <> 'unscored'") == REPEATS
    print(f"\n{len(finished) - 1} kills, {len(stored)} calls stored, {lost} of them lost, {len(billed)} on the bill")
