"""Calls as a ledger has them, for the tests of bills."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path

from experiments.bills.bill_line import Bill, one
from experiments.bills.formats import FORMATS
from experiments.bills.ledger_call import LedgerCall, Piece
from experiments.bills.reading import read_document
from tests.store_trials import EPOCH

PRICE = {
    "input": Decimal("0.000004"),
    "cache_read": Decimal("0.0000004"),
    "cache_write_5m": Decimal("0.000005"),
    "cache_write_1h": Decimal("0.000008"),
    "output": Decimal("0.00002"),
}


def booked(
    number: int = 0,
    tokens: Mapping[str, int] | None = None,
    *,
    model: str = "claude-alpha-5",
    at: datetime = EPOCH,
    seconds: float = 4,
    answered_as: str | None = None,
    outcome: str = "complete",
    provider: str = "anthropic",
    high: str = "0",
    ids: tuple[str, ...] = (),
) -> LedgerCall:
    """`tokens` None: not known, and then it may have cost up to `high`."""
    pieces = tuple(Piece(one(name), n, n, n * PRICE[name], n * PRICE[name]) for name, n in (tokens or {}).items())
    if tokens is None and high != "0":
        pieces = (
            Piece(frozenset(PRICE) - {"output"}, 0, 5_000, Decimal(0), Decimal(high)),
            Piece(one("output"), 0, 1_000, Decimal(0), Decimal(0)),
        )  # fmt: skip
    usd = sum((piece.usd_low for piece in pieces), Decimal(0))
    known = tokens is not None or high == "0"
    return LedgerCall(
        key=f"trial/1/solo/{number}/1",
        attempt="trial/1",
        model=f"our-{model}",
        wire_model=model,
        response_model=answered_as,
        provider=provider,
        requested_at=at,
        ended_at=at + timedelta(seconds=seconds),
        outcome=outcome,
        turn=str(number),
        try_number=1,
        cost_usd=usd if known else None,
        low=usd,
        high=usd if known else Decimal(high),
        billed=False,
        ids=ids,
        settled_by=None,
        pieces=pieces,
    )


def read_text(form: str, *texts: str) -> Bill:
    """The texts of files, read as a bill."""
    documents = [read_document(Path(f"bill-{number}"), text.encode()) for number, text in enumerate(texts)]
    return FORMATS[form].read(documents)
