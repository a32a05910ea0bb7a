"""What kill -9 lost, settled by the simulator's bills."""

import json
from decimal import Decimal
from pathlib import Path

from experiments.bill import bill_folder
from experiments.reconciling import reconcile_bills
from experiments.runner import run_experiment
from experiments.store.reader import query
from tests.experiment_files import PAIR, small
from tests.sandbox_tasks import needs_isolation
from tests.test_run_interrupted import started, wait_for_calls


@needs_isolation
async def test_after_kill_9_the_simulators_bills_settle_what_was_lost_to_the_last_digit(tmp_path: Path) -> None:
    database = tmp_path / "x.duckdb"
    with started(tmp_path, database, repeats=1) as run:
        wait_for_calls(run, database, 8)
        run.kill()
        run.communicate(timeout=60)
    await run_experiment(small(tmp_path, PAIR, repeats=1), database)
    lines = [json.loads(line) for file in bill_folder(database).iterdir() for line in file.read_bytes().splitlines()]
    billed = sum((Decimal(line["usd"]) for line in lines), Decimal(0))
    found = reconcile_bills(database, "tiny", [bill_folder(database)])
    lost = query(database, "SELECT count(*) FROM calls WHERE outcome = 'lost'").rows[0][0]
    assert (len(found.settled), found.equal) == (lost, True)
    assert lost > 0
    assert found.before[0] < found.before[1]
    assert found.low == found.high == billed
    rows = query(database, "SELECT sum(cost_usd), (SELECT sum(usd_high) FROM charges) FROM calls").rows
    assert rows == [(billed, billed)]
    again = reconcile_bills(database, "tiny", [bill_folder(database)])
    assert (again.settled, again.standing, again.low) == ((), lost, billed)
