"""`fullchain reconcile`: what it tells of what it settled, its verdicts and its exit codes."""

import json
from decimal import Decimal
from pathlib import Path

import pytest

from experiments.store.reader import query
from tests.settled_ledgers import (
    LOST,
    TOKENS,
    USAGES,
    WIRE,
    bill_line,
    bill_of,
    run_command,
    stored,
)


@pytest.mark.parametrize("refused", [True, False])
def test_a_call_that_never_arrived_has_no_tokens_anywhere(
    refused: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = stored(tmp_path, [USAGES[0], None], died=True)
    lines = [bill_line(0, TOKENS[0]), *([bill_line(1, {}, usd="0", status=529)] if refused else [])]
    assert run_command("demo", "--db", str(path), "--bill", str(bill_of(tmp_path, *lines))) == 0
    out = capsys.readouterr().out
    assert "verdict: = to the last digit" in out
    assert "in the range" not in out
    tokens = ", ".join(f"{name}_tokens" for name in ("prompt", *TOKENS[0]))
    assert query(path, f"SELECT {tokens}, list_usd, cost_usd FROM calls WHERE key = '{LOST}'").rows == [  # noqa: S608
        (0, 0, 0, 0, Decimal(0), Decimal(0))
    ]
    assert query(path, f"SELECT * FROM charges WHERE call = '{LOST}'").rows == []  # noqa: S608


def test_the_command_tells_what_it_settled_and_ends_with_1_where_bill_and_ledger_differ(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = stored(tmp_path, [USAGES[0], None, USAGES[2]])
    bill = bill_of(tmp_path, *(bill_line(turn, TOKENS[turn]) for turn in range(3)))
    where = ("demo", "--db", str(path), "--bill", str(bill))
    assert run_command(*where, "--dry-run") == 0
    assert "verdict: within the ranges of 1 unknown call (the bill: 13,800 tokens)" in capsys.readouterr().out
    assert run_command(*where) == 0
    out = capsys.readouterr().out
    assert "settled 1 call (1 cut): the experiment's total was $" in out
    assert "settled tokens are priced as the experiment's others" in out
    assert out.endswith("verdict: = to the last digit (13,800 tokens, 3 calls)\n")
    assert run_command(*where, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["equal"], told["settled_before"], told["total"][0]) == (True, 1, told["total"][1])
    bill_of(tmp_path, bill_line(0, {**TOKENS[0], "output": 99}), *(bill_line(turn, TOKENS[turn]) for turn in (1, 2)))
    assert run_command(*where) == 1
    out = capsys.readouterr().out
    assert "differs: call" in out
    assert "verdict: differs by 1 tokens (1 of 3 rows, 1 call)" in out
    assert f"{LOST}: cut, settled by" in out


def test_of_a_run_that_was_killed_before_its_first_call_nothing_is_said_of_prices(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = stored(tmp_path, [], died=True)
    assert run_command("demo", "--db", str(path), "--bill", str(bill_of(tmp_path))) == 1
    out = capsys.readouterr().out
    assert "prices are not" not in out
    assert "verdict: nothing was compared" in out


def test_a_verdict_covers_what_the_bill_tells_and_names_what_it_does_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = stored(tmp_path, USAGES)
    result = {"model": WIRE, "uncached_input_tokens": 0, "output_tokens": 300}
    written = sum(tokens["cache_write_5m"] for tokens in TOKENS)
    read = sum(tokens["cache_read"] for tokens in TOKENS)
    result["cache_creation_5m_input_tokens"] = written
    page = {"starting_at": "2026-11-24T00:00:00Z", "ending_at": "2026-11-25T00:00:00Z", "results": [result]}
    bill = tmp_path / "usage.json"
    bill.write_text(json.dumps({"data": [page]}))
    where = ("demo", "--db", str(path), "--bill", str(bill))
    assert run_command(*where) == 1
    said = capsys.readouterr()
    assert f"not compared: cache_read of {WIRE} on 2026-11-24, {read:,} in the ledger" in said.out
    assert "to the last digit" not in said.out
    assert said.out.endswith("3 calls); not compared: cache_read\n")
    assert "1 results have no cache_read_input_tokens, which the documented report always has" in said.err
    assert run_command(*where, "--json") == 1
    told = json.loads(capsys.readouterr().out)
    assert (told["equal"], [each["classes"] for each in told["not_compared"]]) == (False, [["cache_read"]])
    bill.write_text(json.dumps({"data": [{**page, "results": [{**result, "cache_read_input_tokens": read}]}]}))
    assert run_command(*where) == 0
    assert "verdict: = to the last digit" in capsys.readouterr().out


def test_the_command_refuses_rubbish_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = stored(tmp_path, USAGES)
    bad = tmp_path / "bad.json"
    bad.write_text('{"data": [{"starting_at": "2026-11-24T00:00:00Z", "results": NaN}]}')
    for extra in ((), ("--format", "openai-costs"), ("--format", "nothing")):
        assert run_command("demo", "--db", str(path), "--bill", str(bad), *extra) == 2
        err = capsys.readouterr().err
        assert err.startswith("fullchain: ")
        assert err.count("\n") == 1
