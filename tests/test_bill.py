"""The simulator's bill against the ledger, call by call."""

from collections.abc import Mapping
from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from experiments.bill import Billed, Booked, reconcile

USD = st.decimals(min_value=0, max_value=10, places=12)
TOKENS = {"input": 3, "output": 2}


def bill_of(amounts: Mapping[str, Decimal]) -> dict[str, Billed]:
    return {key: Billed(usd, TOKENS) for key, usd in amounts.items()}


def exact(usd: str | Decimal) -> Booked:
    amount = Decimal(usd)
    return Booked(amount, amount, TOKENS)


@given(st.dictionaries(st.text(min_size=1), USD, max_size=8))
def test_a_bill_that_the_ledger_repeats_is_equal(amounts: dict[str, Decimal]) -> None:
    found = reconcile(bill_of(amounts), {key: exact(usd) for key, usd in amounts.items()})
    assert found.equal
    assert found.billed == found.low == found.high == sum(amounts.values())
    assert (found.calls, found.ranges) == (len(amounts), 0)


@given(st.dictionaries(st.text(min_size=1), USD, min_size=1, max_size=8), st.data())
def test_one_call_that_differs_by_the_smallest_amount_is_found(
    amounts: dict[str, Decimal], data: st.DataObject
) -> None:
    key = data.draw(st.sampled_from(sorted(amounts)))
    ledger = {each: exact(usd) for each, usd in amounts.items()} | {key: exact(amounts[key] + Decimal("1e-12"))}
    found = reconcile(bill_of(amounts), ledger)
    assert not found.equal
    assert "BILL MISMATCH" in found.sentence


def test_two_errors_that_cancel_in_the_sum_are_found() -> None:
    found = reconcile(bill_of({"a": Decimal(1), "b": Decimal(2)}), {"a": exact("2"), "b": exact("1")})
    assert found.billed == found.low
    assert len(found.findings) == 2


def test_a_call_on_one_side_only_is_found() -> None:
    assert "not in the ledger" in reconcile(bill_of({"a": Decimal(1)}), {}).findings[0]
    assert "not on the bill" in reconcile({}, {"a": exact("1")}).findings[0]
    assert reconcile({}, {"refused": exact("0")}).equal


def test_where_the_ledger_knows_a_range_the_bill_must_lie_in_it_and_the_sentence_tells_the_ledgers_own_figure() -> None:
    ledger = {"cut": Booked(Decimal(1), Decimal(3), None), "b": exact("1")}
    found = reconcile(bill_of({"cut": Decimal(2), "b": Decimal(1)}), ledger)
    assert found.equal
    assert found.sentence == (
        "bill: $3 from the simulator lies within $2 to $4 in the ledger (2 calls, 1 of them known as a range)"
    )
    assert "booked between $1 and $3" in reconcile(bill_of({"cut": Decimal(4)}), ledger).findings[0]


def test_other_prices_than_the_simulators_are_no_mismatch_but_other_tokens_are() -> None:
    dearer = Booked(Decimal(5), Decimal(5), TOKENS, priced_alike=False)
    found = reconcile(bill_of({"a": Decimal(1)}), {"a": dearer})
    assert found.equal
    assert found.sentence == (
        "bill: the simulator and the ledger count the same tokens of each class (1 calls); the spec's prices are not "
        "the simulator's: $1 there, $5 in the ledger"
    )
    miscounted = Booked(Decimal(5), Decimal(5), {"input": 4, "output": 2}, priced_alike=False)
    assert "booked input 4, output 2" in reconcile(bill_of({"a": Decimal(1)}), {"a": miscounted}).findings[0]
