"""The quick way, for nearly all calls: read the raw usage, add up tokens where prices stand still, multiply once.

A call goes this way when it is complete, its usage tells all tokens of one request and nothing beside them, every class
that occurs has a price, and the tokens are those that are stored: then the causes that are stored hold as well. All
others are for `single`. Dollars are linear in tokens within a cell, so the sum of a cell is exact.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from operator import attrgetter
from typing import Any, NamedTuple

import orjson

from cost_model.errors import PriceMissing, UsageError
from cost_model.policies import POLICIES
from cost_model.tokens import Tokens
from cost_model.usage import read_told
from cost_model.usage.plain import Counts, plain_counts
from cost_model.usage.reading import Reading
from cost_model.writes import settle_writes
from experiments.repricing.cells import Cell, Cells
from experiments.store.ledger import MOST_USD, TOKEN_COLUMNS, Facts

QUICK_COLUMNS = (
    "key", "trial_id", "attempt", "role", "model", "flavour", "lifetime", "epoch_us(requested_at)", "outcome", "usage",
    *TOKEN_COLUMNS,
)  # fmt: skip
"""What a row holds here; the tokens stand in the order of Counts."""

_counts = attrgetter(*TOKEN_COLUMNS.values())

Attempt = tuple[str, int]
"""A trial's id and the number of its attempt: one cache scope."""


class Slot(NamedTuple):
    """One sum: the calls of a role of a trial in one cell."""

    trial: str
    role: str
    cell: Cell


class Taken(NamedTuple):
    """A call that went the quick way. `bill`: what its provider billed, in proportion to the new list price."""

    key: str
    attempt: Attempt
    slot: Slot
    counts: Counts
    bill: Decimal | None


class Refused(NamedTuple):
    """A call that was never served and costs nothing."""

    attempt: Attempt
    role: str
    model: str


class Left(NamedTuple):
    """A call for `single`."""

    key: str
    attempt: Attempt


@dataclass(frozen=True, slots=True)
class Sorted:
    taken: list[Taken] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)
    left: list[Left] = field(default_factory=list)


class Quick:
    """`own` are the facts that the calls were booked with, `new` the same models at other prices."""

    def __init__(self, own: Facts, new: Facts) -> None:
        self._models = new.models
        self._own, self._new = Cells(own), Cells(new)

    def sort(self, rows: Iterable[Sequence[Any]]) -> Sorted:
        """Raises PriceMissing for a model without any price, JournalDamaged for one that its experiment lacks."""
        found = Sorted()
        for row in rows:
            taken = self._take(row)
            if taken is not None:
                found.taken.append(taken)
                continue
            key, trial, attempt, role, model = row[:5]
            if row[_OUTCOME] == "refused" and row[_USAGE] is None:
                found.refused.append(Refused((trial, attempt), role, model))
            else:
                found.left.append(Left(key, (trial, attempt)))
        return found

    def _take(self, row: Sequence[Any]) -> Taken | None:
        key, trial, attempt, role, model, flavour, lifetime, at, outcome, usage = row[:_TOKENS]
        if outcome != "complete" or usage is None:
            return None
        raw = orjson.loads(usage)
        if type(raw) is not dict:
            return None
        window = self._new.window(model, at)
        counts, reading = plain_counts(flavour, raw), None
        card = window.card
        if counts is None:
            reading = _of_one_step(raw, flavour)
            if reading is None:
                return None
            try:
                card = window.card_for(reading)
            except PriceMissing:
                return None
            counts = _counts(reading.tokens)
        if counts[_UNTOLD_WRITES]:
            policy = POLICIES[self._models[model].cache]
            counts = _counts(settle_writes(Tokens(*counts), policy=policy, lifetime=lifetime, card=card))
        if counts != tuple(row[_TOKENS:]):
            return None
        only = window.only if card is window.card else None
        cell = window.cell(card, sum(counts[:_OUTPUT])) if only is None else only
        if cell.lacking and not cell.covers(counts):
            return None
        bill = None
        if reading is not None and reading.bill is not None:
            bill = self._bill(reading, reading.bill.usd, model, at, counts, cell)
            if bill is None:
                return None
        return Taken(key, (trial, attempt), Slot(trial, role, cell), counts, bill)

    def _bill(
        self, reading: Reading, billed: Decimal, model: str, at: int, counts: Counts, cell: Cell
    ) -> Decimal | None:
        """As `bill_in_proportion`; None where that has more to say."""
        if billed >= MOST_USD:
            return None
        try:
            window = self._own.window(model, at)
            own = window.cell(window.card_for(reading), sum(counts[:_OUTPUT]))
        except PriceMissing:
            return None
        if not own.covers(counts):
            return None
        before = own.usd(counts)
        return round(billed * cell.usd(counts) / before, 12) if before else None


def _of_one_step(raw: Mapping[str, object], flavour: str) -> Reading | None:
    """What a usage tells, if that is the tokens of one request, all of them, and nothing beside them."""
    try:
        reading, complaint = read_told(raw, flavour)
    except UsageError:
        return None
    whole = complaint is None and not reading.untold and not reading.beside and len(reading.steps) <= 1
    return reading if whole else None


_OUTCOME, _USAGE = QUICK_COLUMNS.index("outcome"), QUICK_COLUMNS.index("usage")
_TOKENS = _USAGE + 1
_UNTOLD_WRITES, _OUTPUT = (list(TOKEN_COLUMNS.values()).index(name) for name in ("cache_write_unknown", "output"))
