"""The simulator's bill against the ledger, call by call."""

from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from experiments.bill import Booked, reconcile

USD = st.decimals(min_value=0, max_value=10, places=12)


def exact(usd: str | Decimal) -> Booked:
    amount = Decimal(usd)
    return Booked(amount, amount, amount)


@given(st.dictionaries(st.text(min_size=1), USD, max_size=8))
def test_a_bill_that_the_ledger_repeats_is_equal(bill: dict[str, Decimal]) -> None:
    found = reconcile(bill, {key: exact(usd) for key, usd in bill.items()})
    assert found.equal
    assert found.billed == found.booked == sum(bill.values())
    assert found.calls == len(bill)


@given(st.dictionaries(st.text(min_size=1), USD, min_size=1, max_size=8), st.data())
def test_one_call_that_differs_by_the_smallest_amount_is_found(bill: dict[str, Decimal], data: st.DataObject) -> None:
    key = data.draw(st.sampled_from(sorted(bill)))
    ledger = {each: exact(usd) for each, usd in bill.items()} | {key: exact(bill[key] + Decimal("1e-12"))}
    found = reconcile(bill, ledger)
    assert not found.equal
    assert "BILL MISMATCH" in found.sentence


def test_two_errors_that_cancel_in_the_sum_are_found() -> None:
    found = reconcile({"a": Decimal(1), "b": Decimal(2)}, {"a": exact("2"), "b": exact("1")})
    assert found.billed == found.booked
    assert len(found.findings) == 2


def test_a_call_on_one_side_only_is_found() -> None:
    assert "not in the ledger" in reconcile({"a": Decimal(1)}, {}).findings[0]
    assert "not on the bill" in reconcile({}, {"a": exact("1")}).findings[0]
    assert reconcile({}, {"refused": exact("0")}).equal


def test_where_the_ledger_knows_a_range_the_bill_must_lie_in_it() -> None:
    ledger = {"cut": Booked(None, Decimal(1), Decimal(3))}
    assert reconcile({"cut": Decimal(2)}, ledger).equal
    assert "booked between $1 and $3" in reconcile({"cut": Decimal(4)}, ledger).findings[0]
