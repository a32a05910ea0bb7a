"""A call as the ledger has it, for the comparison with a bill."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import NamedTuple

from experiments.bills.bill_line import EVERYTHING, Classes


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a call's bill that is of one of `classes`: so many units and dollars at least and at most.

    `model`: whose price it is, where that is not the call's own (an advisor's).
    """

    classes: Classes
    low: int
    high: int
    usd_low: Decimal
    usd_high: Decimal
    model: str | None = None


class Share(NamedTuple):
    """What of a call falls into some classes, at least and at most."""

    low: Decimal
    high: Decimal


NOTHING = Share(Decimal(0), Decimal(0))


@dataclass(frozen=True, slots=True)
class LedgerCall:
    """`attempt` is "trial/number". `ids`: what the provider may call it. `cost_usd` None: a range only.

    `billed`: its dollars are the provider's own bill and not the sum of its pieces. `settled_by` names the bill that
    settled it. `outcome` None: in flight.
    """

    key: str
    attempt: str
    model: str
    wire_model: str
    response_model: str | None
    provider: str
    requested_at: datetime
    ended_at: datetime | None
    outcome: str | None
    turn: str
    try_number: int
    cost_usd: Decimal | None
    low: Decimal
    high: Decimal
    billed: bool
    ids: tuple[str, ...]
    settled_by: str | None
    pieces: tuple[Piece, ...]

    @property
    def day(self) -> date:
        """UTC."""
        return self.requested_at.date()

    @property
    def days(self) -> frozenset[date]:
        """Those that it touches: a provider may count it on the day of its end."""
        return frozenset((self.day,) if self.ended_at is None else (self.day, self.ended_at.date()))

    @property
    def doubts(self) -> tuple[str, ...]:
        """Why a bill may say something else of it, in words; empty for an ordinary call."""
        found = []
        if self.outcome != "complete":
            found.append(f"{self.outcome or 'in flight'}{f', settled by {self.settled_by}' if self.settled_by else ''}")
        if self.cost_usd is None:
            found.append("what it cost is known as a range")
        if self.try_number > 1:
            found.append(f"try {self.try_number}")
        if self.turn.startswith("k"):
            found.append("a keep-alive ping")
        if len(self.days) > 1:
            found.append("over midnight")
        return tuple(found)

    def units(self, classes: Classes, pieces: Iterable[Piece]) -> Share:
        """Tokens (searches) of the classes in these of its pieces."""
        return _share(classes, ((piece.classes, piece.low, piece.high) for piece in pieces))

    def usd(self, classes: Classes, pieces: Sequence[Piece]) -> Share:
        """Dollars of the classes in these of its pieces. Of a call that the provider itself billed only the whole is
        its bill; the parts are at list price."""
        if self.billed and classes >= EVERYTHING and any(piece.model is None for piece in pieces):
            return Share(self.low, self.high)
        return _share(classes, ((piece.classes, piece.usd_low, piece.usd_high) for piece in pieces))


def _share(classes: Classes, parts: Iterable[tuple[Classes, Decimal | int, Decimal | int]]) -> Share:
    """What certainly is of the classes counts for the low, what may be of them for the high."""
    low = high = Decimal(0)
    for own, least, most in parts:
        if own <= classes:
            low, high = low + least, high + most
        elif own & classes:
            high += most
    return Share(low, high)
