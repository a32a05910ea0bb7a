"""How the answer of `fullchain query` is written: whole, in every form and width."""

import json
from pathlib import Path

import pytest

from experiments.cli import main
from experiments.cli import terminal as terminal_module
from experiments.store.journal import journal_folder
from experiments.store.store import Store
from tests.store_trials import MODELS, small_plan


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("query") / "test.duckdb"
    Store(path).register(small_plan(), MODELS)
    return path


def said(capsys: pytest.CaptureFixture[str], database: Path, sql: str, *more: str) -> str:
    with pytest.raises(SystemExit) as end:
        main(["query", sql, "--db", str(database), *more])
    assert end.value.code == 0
    return capsys.readouterr().out


WIDE = "SELECT " + ", ".join(f"'value of {number}' AS column_{number}" for number in range(80))


def test_in_a_pipe_every_column_and_value_of_a_wide_row_stands_in_one_line(
    capsys: pytest.CaptureFixture[str], database: Path
) -> None:
    heading, _, row = said(capsys, database, WIDE).splitlines()
    assert heading.split() == [f"column_{number}" for number in range(80)]
    assert all(f"value of {number} " in f"{row} " for number in range(80))


@pytest.mark.parametrize("width", [40, 80, 240])
def test_on_a_terminal_rows_that_do_not_fit_are_written_a_field_a_line(
    capsys: pytest.CaptureFixture[str], database: Path, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setattr(terminal_module, "PIPE_WIDTH", width)
    first, *fields = said(capsys, database, WIDE).splitlines()
    assert first == "-- row 1 --"
    assert fields == [f"{f'column_{number}':<9} | value of {number}" for number in range(80)]
    assert said(capsys, database, "SELECT 1 AS one").split() == ["one", "\u2500" * 4, "1"]


def test_a_value_of_many_lines_stays_beside_its_name(capsys: pytest.CaptureFixture[str], database: Path) -> None:
    shown = said(capsys, database, "SELECT 'x' AS a, repeat('y', 20000) || chr(10) || 'z' AS long_one")
    assert shown == f"-- row 1 --\na        | x\nlong_one | {'y' * 20000}\n           z\n"


def test_json_has_null_for_what_is_no_number(capsys: pytest.CaptureFixture[str], database: Path) -> None:
    sql = (
        "SELECT 'nan'::DOUBLE AS a, '-inf'::DOUBLE AS b, [1.5::DOUBLE, 'inf'::DOUBLE] AS c, {'d': 'nan'::FLOAT} AS e, "
        "map {DATE '2026-11-24': 'inf'::DOUBLE} AS f, 0.10::DECIMAL(9, 2) AS g"
    )
    shown = said(capsys, database, sql, "--format", "json")
    found = json.loads(shown, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
    assert found == [{"a": None, "b": None, "c": [1.5, None], "e": {"d": None}, "f": {"2026-11-24": None}, "g": "0.10"}]


def test_a_damaged_segment_is_a_warning_on_stderr(capsys: pytest.CaptureFixture[str], database: Path) -> None:
    damaged = journal_folder(database) / "bad.jsonl"
    damaged.parent.mkdir(exist_ok=True)
    damaged.write_text('{"kind":"sent"}\n')
    try:
        with pytest.raises(SystemExit) as end:
            main(["query", "SELECT 1 AS one", "--db", str(database), "--format", "csv"])
    finally:
        damaged.unlink()
    shown = capsys.readouterr()
    assert (end.value.code, shown.out) == (0, "one\n1\n")
    assert shown.err.startswith(f"warning: {damaged}: sent without trial_id and attempt; move it away")


def test_the_database_can_be_named_by_a_variable(
    capsys: pytest.CaptureFixture[str], database: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FULLCHAIN_DB", str(database))
    with pytest.raises(SystemExit) as end:
        main(["query", "SELECT count(*) AS n FROM experiments", "--format", "csv"])
    assert (end.value.code, capsys.readouterr().out) == (0, "n\n1\n")
    assert list(tmp_path.iterdir()) == []
