"""The ledger against bills: a row a model, day (UTC) and set of token classes that a bill tells together."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Literal

from experiments.bills.bill_line import EVERYTHING, Bill, BillLine, Classes
from experiments.bills.ledger_call import LedgerCall, Piece, Share
from experiments.bills.model_names import ModelNames
from experiments.errors import BillError

USD_DECIMALS = 12

Unit = Literal["units", "usd"]
Cell = tuple[str, date]


@dataclass(frozen=True, slots=True)
class Row:
    """`bill` and the ledger's `low` to `high`, in tokens (searches) or dollars, of one model, day and set of classes.

    `calls` are the ledger's calls of the model that touch the day.
    """

    model: str
    day: date
    classes: Classes
    unit: Unit
    bill: Decimal
    low: Decimal
    high: Decimal
    calls: tuple[LedgerCall, ...]

    @property
    def difference(self) -> Decimal:
        """How far the bill lies above the ledger, below it when negative; 0 inside of its range."""
        if self.bill > self.high:
            return self.bill - self.high
        return min(self.bill - self.low, Decimal(0))

    @property
    def exact(self) -> bool:
        return self.low == self.high

    @property
    def doubtful(self) -> tuple[LedgerCall, ...]:
        """The calls that may explain a difference, the widest range first."""
        found = (call for call in self.calls if call.doubts)
        return tuple(sorted(found, key=lambda call: (call.low - call.high, call.key)))


@dataclass(frozen=True, slots=True)
class Untold:
    """What the ledger has, in tokens (searches) or dollars, of classes that no bill tells for a model's day.

    `elsewhere`: the same classes are compared in the other unit.
    """

    model: str
    day: date
    classes: Classes
    unit: Unit
    low: Decimal
    high: Decimal
    elsewhere: bool


@dataclass(frozen=True, slots=True)
class Comparison:
    """`other`: lines of models and days that the ledger has no call for. `outside`: calls that no bill speaks of.
    `untold`: what is not compared of the models' days that are."""

    rows: tuple[Row, ...]
    other: tuple[BillLine, ...]
    outside: tuple[LedgerCall, ...]
    untold: tuple[Untold, ...] = ()

    @property
    def differing(self) -> tuple[Row, ...]:
        return tuple(row for row in self.rows if row.difference)


def compare(calls: Sequence[LedgerCall], bills: Sequence[Bill]) -> Comparison:
    """Raises BillError where two kinds of bill tell the same figure twice."""
    names = ModelNames(calls)
    side = _LedgerSide(calls, names)
    placed: dict[tuple[Cell, Unit], list[BillLine]] = {}
    other: list[BillLine] = []
    teller: dict[tuple[Cell, Unit, str], Bill] = {}
    expected: dict[tuple[Cell, Unit], set[Classes]] = {}
    for bill in bills:
        told: dict[Unit, set[Classes]] = {}
        found: set[str] = set()
        for line in bill.lines:
            unit: Unit = "units" if line.usd is None else "usd"
            cell = side.cell(line)
            if cell is None:
                other.append(line)
                continue
            first = teller.setdefault((cell, unit, bill.provider), bill)
            if first is not bill:
                raise BillError(
                    f"{bill.files[0]}: tells the {'tokens' if unit == 'units' else 'dollars'} of {cell[0]} on "
                    f"{cell[1]}, which {first.files[0]} ({first.format}) tells already; give one of the two"
                )
            placed.setdefault((cell, unit), []).append(line)
            told.setdefault(unit, set()).add(line.classes)
            found.add(cell[0])
        for unit, groups in told.items():
            for cell in side.cells_of(bill, found):
                expected.setdefault((cell, unit), set()).update(groups)
    compared = sorted(_with_lines(expected, placed).items(), key=lambda each: _order(*each[0]))
    rows = [
        row
        for (cell, unit), groups in compared
        for row in _rows(cell, unit, _merged(groups), placed.get((cell, unit), ()), side)
    ]
    spoken = {call.key for row in rows for call in row.calls}
    outside = tuple(call for call in calls if call.key not in spoken and call.high)
    told_in = {place: frozenset[str]().union(*groups) for place, groups in compared}
    return Comparison(tuple(rows), tuple(other), outside, tuple(_untold(told_in, side)))


class _LedgerSide:
    """The calls by the cells that they touch, and their pieces by the cell that these are booked in."""

    def __init__(self, calls: Sequence[LedgerCall], names: ModelNames) -> None:
        self._names = names
        self.touching: dict[Cell, list[LedgerCall]] = {}
        self.pieces: dict[Cell, list[tuple[LedgerCall, list[Piece]]]] = {}
        self._by_key = {call.key: call for call in calls}
        for call in calls:
            own = names.of_call(call)
            for day in call.days:
                self.touching.setdefault((own, day), []).append(call)
            by_model: dict[str, list[Piece]] = {}
            for piece in call.pieces:
                model = own if piece.model is None else names.find([piece.model]) or piece.model
                by_model.setdefault(model, []).append(piece)
            for model, pieces in by_model.items():
                self.pieces.setdefault((model, call.day), []).append((call, pieces))
                if model != own:
                    self.touching.setdefault((model, call.day), []).append(call)

    def cell(self, line: BillLine) -> Cell | None:
        """Where a line belongs; None for traffic that is not of these calls."""
        if line.call is not None:
            call = self._by_key[line.call]
            return self._names.of_call(call), call.day
        if line.foreign:
            return None
        model = self._names.find(line.models)
        if model is None:
            model = next((name for name in line.models if (name, line.day) in self.touching), None)
        return None if model is None or (model, line.day) not in self.touching else (model, line.day)

    def cells_of(self, bill: Bill, found: set[str]) -> Iterable[Cell]:
        """Cells with booked calls that the bill must have something to say of: its days, its provider or its models."""
        for model, day in self.pieces:
            if day in bill.days:
                calls = self.touching.get((model, day), ())
                if model in found or any(call.provider == bill.provider for call in calls):
                    yield model, day

    def share(self, cell: Cell, unit: Unit, classes: Classes) -> Share:
        low = high = Decimal(0)
        for call, pieces in self.pieces.get(cell, ()):
            part = call.units(classes, pieces) if unit == "units" else call.usd(classes, pieces)
            low, high = low + part.low, high + part.high
        return Share(low, high)


def _untold(told_in: Mapping[tuple[Cell, Unit], Classes], side: _LedgerSide) -> Iterable[Untold]:
    for (cell, unit), told in told_in.items():
        left: dict[Classes, Share] = {}
        for _, pieces in side.pieces.get(cell, ()):
            for piece in pieces:
                if not piece.classes & told:
                    low, high = left.get(piece.classes, (Decimal(0), Decimal(0)))
                    own = (piece.low, piece.high) if unit == "units" else (piece.usd_low, piece.usd_high)
                    left[piece.classes] = Share(low + own[0], high + own[1])
        other = told_in.get((cell, "usd" if unit == "units" else "units"), frozenset())
        for classes, (low, high) in sorted(left.items(), key=lambda each: sorted(each[0])):
            if high:
                yield Untold(cell[0], cell[1], classes, unit, low, high, classes <= other)


def _with_lines(
    expected: Mapping[tuple[Cell, Unit], set[Classes]], placed: Mapping[tuple[Cell, Unit], list[BillLine]]
) -> dict[tuple[Cell, Unit], set[Classes]]:
    groups = {place: set(known) for place, known in expected.items()}
    for place, lines in placed.items():
        groups.setdefault(place, set()).update(line.classes for line in lines)
    return groups


def _order(cell: Cell, unit: Unit) -> tuple[date, str, bool]:
    return cell[1], cell[0], unit == "usd"


def _merged(groups: Iterable[Classes]) -> list[Classes]:
    """Sets that share a class are compared together: a bill may lump in one line what it tells apart in another."""
    merged: list[Classes] = []
    for group in groups:
        whole = group
        for known in [each for each in merged if each & group]:
            merged.remove(known)
            whole |= known
        merged.append(whole)
    return sorted(merged, key=lambda each: (len(each) == len(EVERYTHING), sorted(each)))


def _rows(
    cell: Cell, unit: Unit, groups: Iterable[Classes], lines: Iterable[BillLine], side: _LedgerSide
) -> Iterable[Row]:
    lines = list(lines)
    for classes in groups:
        own = [line for line in lines if line.classes <= classes]
        figures = (Decimal(line.units or 0) if line.usd is None else line.usd for line in own)
        # The ledger's own decimals: what lies beyond is noise of numbers that were written as binary fractions.
        bill, (low, high) = round(sum(figures, Decimal(0)), USD_DECIMALS), side.share(cell, unit, classes)
        if bill or high:
            yield Row(cell[0], cell[1], classes, unit, bill, low, high, tuple(side.touching.get(cell, ())))
