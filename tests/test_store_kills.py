"""kill -9 at any moment: every call that was sent has one row, no finished trial is lost or doubled."""

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from experiments.errors import StoreError, StoreLocked
from experiments.store.journal import journal_folder
from experiments.store.reader import Reader, query
from experiments.store.recording import Recording
from experiments.store.segment import segments
from experiments.store.store import Store
from experiments.store.trial import TrialJournal
from tests.store_trials import MODELS, play, small_plan, written

ROOT = Path(__file__).parent.parent

PLAN = small_plan(tasks=[f"task-{n}" for n in range(20)], repeats=5)

_RUN = """
import asyncio, os, sys
from pathlib import Path
from experiments.store.recording import Recording
from experiments.store.store import Store
from experiments.store.trial import TrialJournal
from tests.store_trials import EPOCH, MODELS, ended, play, sent, usage_of_turn
from tests.test_store_kills import PLAN

class Told(TrialJournal):
    # Tells the parent what was acknowledged, only after it was.
    async def sent(self, call):
        await super().sent(call)
        os.write(1, f"sent {call.key}\\n".encode())
        await asyncio.sleep(0.001)

    async def attempt_ended(self, **values):
        await super().attempt_ended(**values)
        os.write(1, f"finished {self.trial_id}\\n".encode())

async def main(path, run_id):
    store = Store(path)
    os.write(1, b"begun\\n")
    store.recover()
    known = store.known_trials("demo")
    left = [trial.id for trial in PLAN.trials if not known[trial.id].finished]
    async with Recording(store, run_id, merge_every_s=0.01) as recording:
        async def lane(trials):
            for trial in trials:
                await play(Told(recording.journal, trial, known[trial].attempts + 1))
        await asyncio.gather(*(lane(left[n::4]) for n in range(4)))
    assert recording.left is None, recording.left
    os.write(1, b"complete\\n")

asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
"""


def test_a_run_killed_again_and_again_books_every_call_once(tmp_path: Path) -> None:
    path = tmp_path / "test.duckdb"
    Store(path).register(PLAN, MODELS)
    dice = random.Random(20)  # noqa: S311  (moments to kill at)
    sent: list[str] = []
    finished: list[str] = []
    kills = 0
    for run in range(100):
        with subprocess.Popen(
            [sys.executable, "-c", _RUN, str(path), f"run-{run}"], cwd=ROOT, stdout=subprocess.PIPE, text=True
        ) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == "begun\n"
            told = []
            if kills < 5:
                told = [child.stdout.readline() for _ in range(dice.randrange(80))]
                os.kill(child.pid, signal.SIGKILL)
                kills += 1
            told += child.stdout.read().splitlines(keepends=True)
        for line in told:
            kind, _, name = line.removesuffix("\n").partition(" ")
            if line.endswith("\n") and kind != "complete":
                (sent if kind == "sent" else finished).append(name)
        if "complete\n" in told:
            break
    assert (kills, child.returncode) == (5, 0)
    assert len(finished) == len(set(finished)), "a finished trial was run again"
    store = Store(path)
    assert store.recover().attempts == 0
    assert segments(path) == []
    assert all(known.finished for known in store.known_trials("demo").values())
    with Reader(path) as reader:
        rows = reader.query("SELECT key, outcome FROM calls").rows
        assert len(rows) == len({key for key, _ in rows})
        assert {key for key, _ in rows} >= set(sent)
        assert {outcome for _, outcome in rows} <= {"complete", "lost"}
        assert reader.query(
            "SELECT count(*), count(DISTINCT trial_id) FROM attempts WHERE ended_by NOT IN ('infra_error')"
        ).rows == [(len(PLAN.trials), len(PLAN.trials))]
        assert reader.query(
            "SELECT count(*) FROM trials JOIN calls ON trial_id = id AND attempt = final_attempt "
            "WHERE calls.outcome = 'lost'"
        ).rows == [(0,)]


_RECOVER = """
import os, sys
from pathlib import Path
from experiments.store.store import Store
import experiments.store.store as store
store.BATCH = 5
os.write(1, b"begun\\n")
Store(Path(sys.argv[1])).recover()
"""


def test_a_recovery_killed_again_and_again_comes_to_the_same_end(tmp_path: Path) -> None:
    path = tmp_path / "test.duckdb"
    store = Store(path)
    store.register(PLAN, MODELS)
    ends = ("submitted", None, "cancelled", "agent_timeout")
    attempts = [(trial.id, 1, ends[n % 4]) for n, trial in enumerate(PLAN.trials[:100])]
    asyncio.run(written(journal_folder(path) / "run.jsonl", attempts))
    dice = random.Random(3)  # noqa: S311  (moments to kill at)
    for _ in range(4):
        with subprocess.Popen(
            [sys.executable, "-c", _RECOVER, str(path)], cwd=ROOT, stdout=subprocess.PIPE, text=True
        ) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == "begun\n"
            time.sleep(dice.uniform(0.0, 0.5))
            child.kill()
    store.recover()
    assert segments(path) == []
    assert query(path, "SELECT count(*), count(DISTINCT (trial_id, attempt)) FROM attempts").rows == [(100, 100)]
    assert query(path, "SELECT count(*), count(DISTINCT key), count(*) FILTER (outcome = 'lost') FROM calls").rows == [
        (300, 300, 25)
    ]
    assert query(path, "SELECT count(*) FROM trials WHERE final_attempt IS NOT NULL").rows == [(50,)]


def test_a_run_ends_while_a_reader_holds_the_file_and_the_next_command_merges(tmp_path: Path) -> None:
    path = tmp_path / "test.duckdb"
    Store(path).register(PLAN, MODELS)
    trial = PLAN.trials[0].id
    with subprocess.Popen(
        [
            sys.executable, "-c",
            "import duckdb, sys\nheld = duckdb.connect(sys.argv[1], read_only=True)\nprint('held', flush=True)\n"
            "input()",
            str(path),
        ],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as reader:  # fmt: skip
        assert reader.stdin is not None
        assert reader.stdout is not None
        assert reader.stdout.readline() == "held\n"
        store = Store(path, patience_s=0.1)
        with pytest.raises(StoreLocked, match=rf"held .* for 0\.1 s \(.*PID {reader.pid}.*close it"):
            store.known_trials("demo")

        async def run() -> str | None:
            async with Recording(store, "run-1", merge_every_s=0.05) as recording:
                await play(TrialJournal(recording.journal, trial, 1))
            return recording.left

        left = asyncio.run(run())
        assert left is not None
        assert "the rows stay in the journal and the next command merges them" in left
        assert query(path, "SELECT count(*) FROM calls").rows == [(3,)], "our own readers see them"
        reader.stdin.write("\n")
    assert store.recover().attempts == 1
    assert store.known_trials("demo")[trial].finished
    assert segments(path) == []


_FULL = """
import resource, sys
from pathlib import Path
from experiments.errors import StoreError
from experiments.store.store import Store
path = Path(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
try:
    print(Store(path).recover())
except StoreError as error:
    print(error)
"""


def test_a_full_disk_stops_a_merge_in_one_line_and_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "test.duckdb"
    store = Store(path)
    store.register(PLAN, MODELS)
    attempts = [(trial.id, 1, "submitted") for trial in PLAN.trials]
    asyncio.run(written(journal_folder(path) / "run.jsonl", attempts))
    child = subprocess.run(
        [sys.executable, "-c", _FULL, str(path)], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    assert "cannot be written" in child.stdout
    assert child.stdout.count("\n") == 1
    assert store.recover().attempts == len(PLAN.trials)
    assert query(path, "SELECT count(*) FROM calls").rows == [(3 * len(PLAN.trials),)]


_FULL_VOLUME = """
import asyncio, os, sys
from pathlib import Path
from experiments.errors import StoreError
from experiments.store.journal import journal_folder
from experiments.store.store import Store
from tests.store_trials import MODELS, written
from tests.test_store_kills import PLAN
path = Path(sys.argv[1]) / "test.duckdb"
store = Store(path)
store.register(PLAN, MODELS)
asyncio.run(written(journal_folder(path) / "run.jsonl", [(trial.id, 1, "submitted") for trial in PLAN.trials]))
filler = path.with_name("filler")
with filler.open("wb", buffering=0) as file:
    try:
        while file.write(bytes(4096)):
            pass
    except OSError:
        file.truncate(file.tell() - 3 * 4096)
try:
    print(store.recover())
except StoreError as error:
    print(error)
filler.unlink()
print(store.recover().attempts)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small volume needs root")
def test_a_volume_that_is_full_at_a_commit_stops_a_merge_in_one_line_and_loses_nothing(tmp_path: Path) -> None:
    mounted = 'mount -t tmpfs -o size=12m none "$1" && exec "$2" -c "$3" "$1"'
    child = subprocess.run(
        ["unshare", "-m", "sh", "-c", mounted, "sh", tmp_path, sys.executable, _FULL_VOLUME],
        cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    if "mount" in child.stderr or "unshare" in child.stderr:
        pytest.skip(f"no volume can be mounted here: {child.stderr.strip()}")
    said, attempts = child.stdout.splitlines()
    assert "cannot be written" in said, child.stderr
    assert "No space left on device" in said
    assert int(attempts) == len(PLAN.trials)


async def test_a_recording_that_cannot_merge_says_so_and_keeps_its_journal(tmp_path: Path) -> None:
    path = tmp_path / "test.duckdb"
    path.write_text("this is no database")
    with pytest.raises(StoreError, match="not a usable DuckDB file"):
        async with Recording(Store(path), "run-1", merge_every_s=60) as recording:
            await play(TrialJournal(recording.journal, "trial", 1))
    assert len(segments(path)) == 1
