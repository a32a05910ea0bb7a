"""A run that is stopped, in order or not: no process stays, the database opens, no call that was sent is forgotten."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from experiments.runner import run_experiment
from experiments.store.journal import journal_folder
from experiments.store.reader import Reader
from experiments.store.store import Store
from tests.experiment_files import PAIR, scalar, small, write_spec
from tests.sandbox_tasks import needs_isolation

PATIENCE_S = 60


@contextmanager
def started(folder: Path, database: Path, repeats: int = 2) -> Iterator["subprocess.Popen[str]"]:
    spec = write_spec(folder, PAIR, repeats=repeats)
    command = [sys.executable, "-m", "experiments.cli", "run", str(spec), "--db", str(database), "--concurrency", "2"]
    root = Path(__file__).parent.parent
    with subprocess.Popen(
        command, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as run:
        try:
            yield run
        finally:
            run.kill()


def sent_calls(database: Path) -> set[str]:
    """Keys of the calls that the journals hold as sent."""
    lines = [line for path in journal_folder(database).glob("*.jsonl") for line in path.read_bytes().splitlines(True)]
    events = [json.loads(line) for line in lines if line.endswith(b"\n")]
    return {event["key"] for event in events if event["kind"] == "sent"}


def wait_for_calls(run: "subprocess.Popen[str]", database: Path, number: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while len(sent_calls(database)) < number:
        assert run.poll() is None, run.communicate()
        assert time.monotonic() < deadline, "no calls were made"
        time.sleep(0.02)


def family(pid: int) -> dict[int, str]:
    """The process and all below it, each with its start time: a pid alone may be given away again."""
    found, parents = {}, {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            number, rest = int(stat.parent.name), stat.read_text().rpartition(")")[2].split()
        except (OSError, ValueError):
            continue
        parents[number], found[number] = int(rest[1]), rest[19]
    inside = {pid}
    while more := {child for child, parent in parents.items() if parent in inside} - inside:
        inside |= more
    return {number: found[number] for number in inside if number in found}


def assert_gone(processes: dict[int, str]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while left := [number for number, born in processes.items() if _born(number) == born]:
        assert time.monotonic() < deadline, f"still there: {left}"
        time.sleep(0.02)


def _born(pid: int) -> str | None:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else fields[19]


@needs_isolation
async def test_ctrl_c_leaves_no_process_and_a_database_that_goes_on(tmp_path: Path) -> None:
    database = tmp_path / "x.duckdb"
    with started(tmp_path, database) as run:
        wait_for_calls(run, database, 4)
        processes = family(run.pid)
        assert len(processes) > 1
        # As a terminal does it: to everything in the foreground.
        os.killpg(run.pid, signal.SIGINT)
        out, error = run.communicate(timeout=PATIENCE_S)
    assert run.returncode == 130, error
    assert "Traceback" not in out + error
    assert "run the same command again to go on" in error
    assert_gone(processes)
    assert list(journal_folder(database).glob("*.jsonl")) == []
    with Reader(database) as reader:
        endings = dict(reader.query("SELECT ended_by, count(*) FROM attempts GROUP BY 1").rows)
        assert 1 <= endings.pop("cancelled") <= 2
        assert set(endings) <= {"submitted"}
        assert reader.query("SELECT count(*) FROM calls WHERE outcome IS NULL").rows == [(0,)]
    finished = endings.get("submitted", 0)
    report = await run_experiment(small(tmp_path, PAIR, repeats=2), database)
    assert (report.finished_before, report.left) == (finished, 0)


@needs_isolation
def test_a_second_ctrl_c_ends_at_once_and_loses_no_call(tmp_path: Path) -> None:
    database = tmp_path / "x.duckdb"
    with started(tmp_path, database) as run:
        wait_for_calls(run, database, 4)
        processes = family(run.pid)
        assert run.stderr is not None
        run.send_signal(signal.SIGINT)
        while "once more ends at once" not in run.stderr.readline():
            assert run.poll() is None
        run.send_signal(signal.SIGINT)
        run.communicate(timeout=PATIENCE_S)
    assert run.returncode == 130
    assert_gone(processes)
    sent = sent_calls(database)
    assert Store(database).recover().left == ()
    with Reader(database) as reader:
        assert sent <= {key for (key,) in reader.query("SELECT key FROM calls WHERE outcome IS NOT NULL").rows}


@needs_isolation
async def test_after_kill_9_every_call_that_was_sent_has_a_row_and_the_run_goes_on(tmp_path: Path) -> None:
    database = tmp_path / "x.duckdb"
    with started(tmp_path, database) as run:
        wait_for_calls(run, database, 4)
        processes = family(run.pid)
        run.kill()
        run.communicate(timeout=PATIENCE_S)
    assert_gone(processes)
    sent = sent_calls(database)
    assert len(sent) >= 4
    report = await run_experiment(small(tmp_path, PAIR, repeats=2), database)
    assert report.left == 0
    with Reader(database) as reader:
        stored = {
            key: row for key, *row in reader.query("SELECT key, outcome, cost_low_usd, cost_high_usd FROM calls").rows
        }
    assert sent <= stored.keys()
    for key in sent:
        outcome, low, high = stored[key]
        assert outcome in ("complete", "lost")
        assert low < high if outcome == "lost" else low == high
    assert scalar(database, "SELECT count(*) FROM trials WHERE final_attempt IS NULL") == 0
    assert scalar(database, "SELECT max(n) FROM (SELECT count(*) AS n FROM calls GROUP BY key)") == 1
