"""A read copy of the database: whole and of one moment, never locked, and in nobody's way."""

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import duckdb
import pytest

from experiments.cli import main
from experiments.errors import SnapshotRefused, StoreError, StoreMissing
from experiments.runner import run_experiment
from experiments.store.journal import Journal, journal_folder
from experiments.store.reader import Reader
from experiments.store.snapshot import publish
from experiments.store.store import Store
from experiments.store.trial import TrialJournal
from tests.experiment_files import PAIR, SOLO, small
from tests.store_trials import MODELS, play, small_plan

PLAN = small_plan()
FOREIGN = """
import sys, time, duckdb
count = 0
while True:
    with duckdb.connect(sys.argv[1], read_only=True) as copy:
        attempts, usd = copy.execute("SELECT count(*), sum(cost_usd) FROM calls").fetchone()
        copy.execute("SELECT * FROM compare").fetchall()
    count += 1
    print(count, attempts, flush=True)
    time.sleep(0.05)
"""


def _all(connection: Any, table: str) -> list[tuple[Any, ...]]:
    return sorted(connection.execute(f"SELECT * FROM {table}").fetchall(), key=repr)  # noqa: S608


@pytest.mark.parametrize("left", [0, 1, 2])
async def test_a_copy_has_what_a_reader_sees_merged_or_not(left: int, tmp_path: Path) -> None:
    path = tmp_path / "x.duckdb"
    store = Store(path)
    store.register(PLAN, MODELS)
    names = [trial.id for trial in PLAN.trials]
    async with Journal(journal_folder(path) / "run.jsonl") as journal:
        books = [TrialJournal(journal, name, 1) for name in names[:2]]
        for book in books:
            await play(book)
        await play(TrialJournal(journal, names[2], 1), ended_by=None)
        store.merge([book.events() for book in books[: 2 - left]])
        assert publish(path, tmp_path / "copy.duckdb") == ()
        with Reader(path) as reader, duckdb.connect(str(tmp_path / "copy.duckdb"), read_only=True) as copy:
            copy.execute("SET TimeZone = 'UTC'")
            tables = [name for (name,) in copy.execute("SELECT table_name FROM duckdb_tables()").fetchall()]
            assert {"trials", "calls", "charges", "reviews", "migrations"} <= set(tables)
            for table in [*tables, "compare", "attempt_costs"]:
                assert _all(copy, table) == _all(reader.connection, table), table
            assert len(_all(copy, "attempts")) == 3


def test_who_has_the_last_copy_open_goes_on_reading_it(tmp_path: Path) -> None:
    path, target = tmp_path / "x.duckdb", tmp_path / "copy.duckdb"
    Store(path).register(PLAN, MODELS)
    publish(path, target)
    held = subprocess.Popen(
        [sys.executable, "-c", FOREIGN, str(target)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert held.stdout is not None
        for _ in range(5):
            publish(path, target)
            assert held.stdout.readline()
        assert held.poll() is None
    finally:
        held.kill()
        held.communicate(timeout=20)


async def test_a_foreign_client_reads_the_copy_all_through_a_run(tmp_path: Path) -> None:
    path, target = tmp_path / "x.duckdb", tmp_path / "copy.duckdb"
    experiment = small(tmp_path, SOLO + PAIR, more="sandbox: auto\n")
    reading: list[subprocess.Popen[str]] = []

    def begin() -> None:
        while not target.exists():
            if done.wait(0.02):
                return
        reading.append(
            subprocess.Popen(
                [sys.executable, "-c", FOREIGN, str(target)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
        )

    done = threading.Event()
    starting = threading.Thread(target=begin)
    starting.start()
    try:
        report = await run_experiment(experiment, path, publish=target)
    finally:
        done.set()
        starting.join()
        for each in reading:
            ended = each.poll()
            each.kill()
            out, err = each.communicate(timeout=20)
    assert report.broken == 0
    assert ended is None, err
    assert len(out.splitlines()) >= 1
    with Reader(path) as reader, duckdb.connect(str(target), read_only=True) as copy:
        for table in ("calls", "charges", "trials"):
            copy.execute("SET TimeZone = 'UTC'")
            assert _all(copy, table) == _all(reader.connection, table), table


def test_nothing_but_an_earlier_copy_is_ever_replaced(tmp_path: Path) -> None:
    path = tmp_path / "x.duckdb"
    Store(path).upgrade()
    (tmp_path / "thesis.txt").write_text("years of work")
    with duckdb.connect(str(tmp_path / "theirs.duckdb")) as theirs:
        theirs.execute("CREATE TABLE mine (a INTEGER)")
    (tmp_path / "link.duckdb").symlink_to(path)
    for name, why in {
        "thesis.txt": "no database of ours",
        "theirs.duckdb": "no database of ours",
        "x.duckdb": "the database itself",
        "link.duckdb": "the database itself",
        ".": "a folder",
    }.items():
        with pytest.raises(SnapshotRefused, match=why):
            publish(path, tmp_path / name)
    assert (tmp_path / "thesis.txt").read_text() == "years of work"
    with pytest.raises(StoreError, match="cannot be written"):
        publish(path, tmp_path / "no folder" / "copy.duckdb")
    with pytest.raises(StoreMissing):
        publish(tmp_path / "none.duckdb", tmp_path / "copy.duckdb")


def test_what_a_killed_copy_has_left_is_swept_and_never_read(tmp_path: Path) -> None:
    path, target = tmp_path / "x.duckdb", tmp_path / "copy.duckdb"
    Store(path).register(PLAN, MODELS)
    (tmp_path / ".copy.duckdb.partial").write_bytes(b"half a cop")
    (tmp_path / ".copy.duckdb.partial.wal").write_bytes(b"half a log")
    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(lambda _: publish(path, target), range(3))) == [(), (), ()]
    with duckdb.connect(str(target), read_only=True) as copy:
        assert copy.execute("SELECT count(*) FROM trials").fetchone() == (len(PLAN.trials),)
    assert not list(tmp_path.glob(".copy*"))


def test_the_command_tells_what_it_did_and_refuses_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, target = tmp_path / "x.duckdb", tmp_path / "copy.duckdb"
    Store(path).upgrade()
    with pytest.raises(SystemExit) as end:
        main(["snapshot", str(target), "--db", str(path)])
    assert end.value.code == 0
    assert capsys.readouterr().out == f"{target}: a copy of {path}\n"
    with pytest.raises(SystemExit) as end:
        main(["snapshot", str(path), "--db", str(path)])
    assert end.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1
