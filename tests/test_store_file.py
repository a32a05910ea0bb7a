"""The database file: missing, foreign, newer, older, or held by another process."""

import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest

from experiments.errors import StoreError, StoreLocked, StoreMissing, StoreNewer
from experiments.store import migrations
from experiments.store.reader import query
from experiments.store.store import Store
from tests.store_trials import MODELS, small_plan

PLAN = small_plan()


def test_a_missing_file_is_named_and_not_created(tmp_path: Path) -> None:
    with pytest.raises(StoreMissing, match=r"none\.duckdb: no such database; run an experiment first"):
        query(tmp_path / "none.duckdb", "SELECT 1")
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.duckdb").write_text("hello")
    with pytest.raises(StoreError, match=r"x\.duckdb: not a usable DuckDB file .* --db"):
        query(tmp_path / "x.duckdb", "SELECT 1")


def test_a_database_of_another_kind_is_named(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "x.db")) as other:
        other.execute("CREATE TABLE t (a)")
        other.commit()
    with pytest.raises(StoreError, match=r"x\.db: not a usable DuckDB file \(it is a SQLite file\)"):
        query(tmp_path / "x.db", "SELECT 1")


def test_a_file_that_was_cut_short_is_named_wherever_it_ends(tmp_path: Path) -> None:
    path, cut = tmp_path / "x.duckdb", tmp_path / "cut.duckdb"
    Store(path).register(small_plan(), MODELS)
    whole, told = path.read_bytes(), []
    for share in range(1, 20):
        cut.write_bytes(whole[: len(whole) * share // 20])
        try:
            query(cut, "SELECT * FROM trials, tasks, experiments, arms, call_timeline")
        except StoreError as error:
            told.append(str(error))
    assert all(line.startswith(f"{cut}: ") and "--db" in line for line in told)
    assert any("the file is damaged" in line for line in told)
    assert query(path, "SELECT 1").rows == [(1,)]


def test_a_database_of_something_else_is_left_alone(tmp_path: Path) -> None:
    import duckdb

    path = tmp_path / "other.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE mine AS SELECT 1")
    for attempt in (lambda: query(path, "SELECT 1"), lambda: Store(path).upgrade()):
        with pytest.raises(StoreError, match="a DuckDB file of something else"):
            attempt()
    with duckdb.connect(str(path)) as connection:
        assert connection.execute("SHOW TABLES").fetchall() == [("mine",)]


def test_a_newer_file_is_refused_and_left_alone(tmp_path: Path) -> None:
    import duckdb

    path = tmp_path / "test.duckdb"
    Store(path).register(PLAN, MODELS)
    with duckdb.connect(str(path)) as connection:
        connection.execute("INSERT INTO migrations VALUES (99, 'from the future', now())")
    before = path.read_bytes()
    for attempt in (lambda: query(path, "SELECT 1"), lambda: Store(path).register(PLAN, MODELS)):
        with pytest.raises(StoreNewer, match=r"schema 99, known here \d+\); upgrade fullchain"):
            attempt()
    assert path.read_bytes() == before


def test_an_older_file_is_upgraded_by_a_reader_and_its_views_are_renewed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "test.duckdb"
    Store(path).register(PLAN, MODELS)
    text = migrations._text
    step = "ALTER TABLE trials ADD COLUMN colour VARCHAR; UPDATE trials SET colour = 'grey'"
    shipped = migrations.MIGRATIONS
    monkeypatch.setattr(migrations, "MIGRATIONS", (*shipped, "9999_colour"))
    monkeypatch.setattr(migrations, "_text", lambda name: step if "9999" in name else text(name))
    assert query(path, "SELECT DISTINCT colour FROM trials").rows == [("grey",)]
    assert query(path, "SELECT number, name FROM migrations WHERE number > 0 ORDER BY ALL").rows == [
        *enumerate(shipped, start=1),
        (len(shipped) + 1, "9999_colour"),
    ]
    assert len(Store(path).known_trials("demo")) == 8


def test_a_step_that_fails_leaves_the_older_schema_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import duckdb

    path = tmp_path / "test.duckdb"
    Store(path).register(PLAN, MODELS)
    before = query(path, "SELECT * FROM duckdb_columns() WHERE schema_name = 'main' ORDER BY ALL").rows
    text = migrations._text
    with monkeypatch.context() as patch:
        patch.setattr(migrations, "MIGRATIONS", (*migrations.MIGRATIONS, "9999_broken"))
        patch.setattr(migrations, "_text", lambda name: "CREATE TABLE t (a INT); no" if "9999" in name else text(name))
        with pytest.raises(duckdb.ParserException):
            Store(path).upgrade()
    after = query(path, "SELECT * FROM duckdb_columns() WHERE schema_name = 'main' ORDER BY ALL").rows
    assert [row[4:] for row in after] == [row[4:] for row in before]


def test_a_path_that_cannot_be_looked_up_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"cannot be read|no such database"):
        query(tmp_path / ("x" * 5000), "SELECT 1")


def test_a_writer_that_does_not_let_go_ends_the_wait_of_a_reader(tmp_path: Path) -> None:
    path = tmp_path / "test.duckdb"
    Store(path).register(PLAN, MODELS)
    child = subprocess.Popen(
        [
            sys.executable, "-c",
            "import duckdb, sys; held = duckdb.connect(sys.argv[1]); print('held', flush=True); input()", str(path),
        ],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    with child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdout.readline()
        with pytest.raises(StoreLocked, match=f"PID {child.pid}"):
            query(path, "SELECT 1", patience_s=0.1)
        release = threading.Timer(0.3, lambda: child.stdin and child.stdin.close())
        release.start()
        assert query(path, "SELECT 1", patience_s=60).rows == [(1,)]
