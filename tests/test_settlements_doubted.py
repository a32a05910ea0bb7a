"""Lines of a bill that cannot be true of their calls: told by key, and nothing settled."""

import re
from decimal import Decimal
from pathlib import Path

import pytest

from experiments.reconciling import reconcile_bills
from experiments.store.reader import query
from tests.settled_ledgers import (
    LOST,
    TOKENS,
    USAGES,
    bill_line,
    bill_of,
    computed,
    run_command,
    settled,
    stored,
)

OWN = "sim-claude-opus-5-5"
"""A model whose prices are the simulator's, so that its bill's dollars are compared."""


def dollars(tokens: dict[str, int]) -> str:
    price = {"input": "4", "cache_read": "0.2", "cache_write_5m": "5", "output": "20"}
    return f"{sum((count * Decimal(price[name]) for name, count in tokens.items()), Decimal(0)) / 10**6:f}"


def own_line(turn: int, tokens: dict[str, int], usd: str | None = None, *, status: int = 200, model: str = OWN) -> str:
    return bill_line(turn, tokens, dollars(tokens) if usd is None else usd, status, model)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (own_line(1, {**TOKENS[1], "output": 99_999}, dollars(TOKENS[1])), "its tokens cost .*, and it bills"),
        (own_line(1, TOKENS[1], "0.004"), r"its tokens cost .*, and it bills \$0\.004"),
        (own_line(1, {"output": 1_500}), r"billed 1,500 output tokens, and it can have had 0 to 1,000"),
        (own_line(1, {"cache_read": 50_000}), r"billed 50,000 cache_read tokens, and it can have had 0 to 9,001"),
        (own_line(1, {"output": 900_000}), r"billed \$18, booked between \$0 and"),
        (own_line(1, TOKENS[1], model="other"), "the bill names the model 'other', and it went to 'sim-claude-opus"),
        (own_line(1, TOKENS[1]).replace(f'"{OWN}"', "null"), "the bill names no model, and it went to"),
        (own_line(1, TOKENS[1], status=400), "says that it was refused, and yet bills 4,600 tokens and"),
        (own_line(1, {}, "0.1", status=400), r"was refused, and yet bills 0 tokens and \$0\.1"),
    ],
)
def test_a_line_that_cannot_be_true_of_its_call_settles_nothing_and_is_told_by_key(
    line: str, complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = stored(tmp_path, [USAGES[0], None], died=True, wire=OWN)
    before = computed(path)
    bill = bill_of(tmp_path, own_line(0, TOKENS[0]), line)
    found = reconcile_bills(path, "demo", [bill])
    assert (found.settled, found.equal) == ((), False)
    (finding,) = found.findings
    assert re.search(rf"^call {LOST}: .*{complaint}.*bill\.jsonl:2", finding)
    assert computed(path) == before
    assert run_command("demo", "--db", str(path), "--bill", str(bill)) == 1
    assert "differs by $0 " not in capsys.readouterr().out


def test_what_a_true_line_settles_costs_what_its_charges_sum_to(tmp_path: Path) -> None:
    path = stored(tmp_path, [USAGES[0], None, USAGES[2]], wire=OWN)
    found = settled(path, *(own_line(turn, TOKENS[turn]) for turn in range(3)))
    assert [each.call for each in found.settled] == [LOST]
    billed = sum((Decimal(dollars(tokens)) for tokens in TOKENS), Decimal(0))
    assert found.low == found.high == billed
    sums = "sum(cost_usd), sum(list_usd), (SELECT sum(usd_low) FROM charges), (SELECT sum(usd_high) FROM charges)"
    assert query(path, f"SELECT {sums} FROM calls").rows == [(billed,) * 4]  # noqa: S608


def test_a_refusal_that_bills_an_answered_call_is_told(tmp_path: Path) -> None:
    path = stored(tmp_path, USAGES[:2])
    (finding,) = settled(path, bill_line(0, TOKENS[0]), bill_line(1, TOKENS[1], status=400)).findings
    assert f"call {LOST}: the bill says that it was refused, and yet bills 4,600 tokens" in finding
