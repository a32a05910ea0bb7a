"""Tables where they are read: whole on a narrow terminal, exact where they can be, one line when nothing takes them."""

import asyncio
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.cli import main
from experiments.store.journal import journal_folder
from experiments.store.store import Store
from tests.store_trials import MODELS, small_plan, written

ROOT = Path(__file__).parent.parent
COMMAND = [sys.executable, "-m", "experiments.cli"]


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One arm is finished; a trial of the other has died in a call, which cost nobody knows what."""
    path = tmp_path_factory.mktemp("output") / "test.duckdb"
    store, plan = Store(path), small_plan()
    store.register(plan, MODELS)
    attempts: list[tuple[str, int, str | None]] = [(trial.id, 1, "submitted") for trial in plan.trials]
    lost = next(place for place, trial in enumerate(plan.trials) if trial.arm == "chain")
    attempts[lost] = (plan.trials[lost].id, 1, None)
    asyncio.run(written(journal_folder(path) / "run.jsonl", attempts))
    store.recover()
    return path


def test_an_amount_is_a_bound_only_where_it_is_not_known_exactly(
    database: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["compare", "demo", "--db", str(database)])
    table = {line.split()[0]: line for line in capsys.readouterr().out.splitlines() if line}
    assert ">=" not in table["solo"]
    # The mean is over trials that ended; the total counts the one that died.
    assert table["chain"].count(">=") == 2, table["chain"]


def on_a_terminal(columns: int, *arguments: str) -> str:
    owner, terminal = pty.openpty()
    try:
        environment = {**os.environ, "COLUMNS": str(columns), "TERM": "dumb"}
        with subprocess.Popen([*COMMAND, *arguments], cwd=ROOT, stdout=terminal, env=environment) as command:
            os.close(terminal)
            seen = b""
            while True:
                try:
                    seen += os.read(owner, 65536)
                except OSError:
                    break
        assert command.returncode == 0
    finally:
        os.close(owner)
    return seen.decode()


def test_no_number_is_cut_short_on_a_narrow_terminal(database: Path) -> None:
    def numbers(shown: str) -> list[str]:
        return [word for word in shown.split() if word[0].isdigit()]

    narrow, wide = (on_a_terminal(columns, "compare", "demo", "--db", str(database)) for columns in (30, 300))
    assert numbers(narrow) == numbers(wide)
    assert len(numbers(wide)) > 8


FULL, CLOSED = ("> /dev/full", "No space left on device"), (">&-", "it is closed")


@pytest.mark.parametrize(
    ("arguments", "unbuffered", "redirected", "reason"),
    [
        ("compare demo", "", *FULL),
        ("compare demo", "1", *FULL),
        ("compare demo", "", *CLOSED),
        ("query SELECT_1 --format csv", "", *FULL),
        ("query SELECT_1 --format csv", "1", *FULL),
        ("query SELECT_1 --format csv", "", *CLOSED),
        ("query SELECT_1", "", *FULL),
        ("query SELECT_1", "1", *CLOSED),
    ],
)
def test_an_output_that_takes_nothing_is_told_in_one_line(
    database: Path, arguments: str, unbuffered: str, redirected: str, reason: str
) -> None:
    words = [word.replace("_", " ") for word in arguments.split()]
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {redirected}', "sh", *COMMAND, *words, "--db", database],
        cwd=ROOT, env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("fullchain: standard output cannot be written")
    assert reason in done.stderr
