"""Some trials' calls, priced anew: read from the open database, quickly where that is exact."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from cost_model.causes import REBUILDS
from cost_model.ledger import usd_range
from cost_model.scope import ExplainedCall
from cost_model.usage.plain import Counts
from experiments.errors import JournalDamaged
from experiments.repricing.cells import Cell, by_class
from experiments.repricing.quick import QUICK_COLUMNS, Quick, Slot, Sorted, Taken
from experiments.repricing.single import Single
from experiments.repricing.sums import NOTHING, Part, Place, Sums
from experiments.store.ledger import Facts
from experiments.store.rows import Row

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_CALLS = f"""
SELECT {", ".join(QUICK_COLUMNS)} FROM calls WHERE trial_id IN (SELECT unnest($trials)) AND outcome IS NOT NULL
"""  # noqa: S608

_UNITS = """
WITH apart AS (SELECT unnest($keys::VARCHAR[]) AS call, unnest($slots::INTEGER[]) AS slot),
usual AS (SELECT unnest($usual_trials::VARCHAR[]) AS trial_id, unnest($usual_roles::VARCHAR[]) AS role,
    unnest($usual_models::VARCHAR[]) AS model, unnest($usual_slots::INTEGER[]) AS slot)
SELECT slot, token_class, cause, sum(units)::BIGINT FROM of_batch JOIN apart USING (call) WHERE slot >= 0 GROUP BY ALL
UNION ALL
SELECT slot, token_class, cause, units FROM (
    SELECT trial_id, role, model, token_class, cause, sum(units)::BIGINT AS units
    FROM of_batch ANTI JOIN apart USING (call) GROUP BY ALL
) JOIN usual USING (trial_id, role, model)
"""
"""Nearly all calls of a trial's role and model lie in one slot, its usual one: only the others are named."""

_CHARGES = """
CREATE OR REPLACE TEMP TABLE of_batch AS
SELECT charges.call, charges.line, charges.token_class, charges.cause, charges.units, mine.trial_id, mine.role,
    mine.model
FROM charges JOIN calls AS mine ON mine.key = charges.call
WHERE mine.trial_id IN (SELECT unnest($trials))
"""
"""The charges of a batch: looked for once among all that there are."""

Trials = Mapping[str, tuple[str, str]]
"""Trial id -> (arm, task)."""


class Batches:
    """`own` are the facts that the calls were booked with, `new` the same models at other prices. `causes`: whether the
    list prices are split by cause too."""

    def __init__(self, connection: "DuckDBPyConnection", own: Facts, new: Facts, *, causes: bool) -> None:
        self._connection = connection
        self._quick = Quick(own, new)
        self._single = Single(connection, own, new, causes=causes)
        self._causes = causes

    def price(self, trials: Trials) -> Sums:
        """All attempts of these trials; calls in flight are left out. Raises PriceMissing, JournalDamaged."""
        sums = Sums()
        if self._causes:
            self._connection.execute(_CHARGES, {"trials": list(trials)})
        rows = self._connection.execute(_CALLS, {"trials": list(trials)}).fetchall()
        found = self._quick.sort(rows)
        del rows
        priced, broken = self._single.price([left.key for left in found.left]) if found.left else ([], set())
        anew = self._single.explain_anew(broken)
        others = [left.key for left in found.left]
        if broken:
            others += [taken.key for taken in found.taken if taken.attempt in broken]
            found = Sorted(
                [taken for taken in found.taken if taken.attempt not in broken],
                [refused for refused in found.refused if refused.attempt not in broken],
            )
            priced = [(row, each) for row, each in priced if (row["trial_id"], row["attempt"]) not in broken]
        self._add_taken(found.taken, others, trials, sums)
        for (trial, _), role, model in found.refused:
            place = Place(*trials[trial], role, model)
            sums.cost_of(place)
            sums.counts_of(place).calls += 1
        for row, explained in (*priced, *anew):
            self._add_explained(row, explained, trials, sums)
        for place in {(str(row["trial_id"]), row["attempt"]): _place(row, trials) for row, _ in anew}.values():
            sums.counts_of(place).anew += 1
        return sums

    def _add_taken(self, taken: Sequence[Taken], others: Sequence[str], trials: Trials, sums: Sums) -> None:
        """`others` are the keys of the batch's other calls."""
        found: dict[Slot, list[Counts]] = {}
        for _, _, slot, counts, bill in taken:
            found.setdefault(slot, []).append(counts)
            if bill is not None:
                where = _place_of(slot, trials)
                listed = slot.cell.usd(counts)
                sums.cost_of(where).add(bill - listed, bill - listed)
                sums.counts_of(where).billed += 1
        totals = {slot: [sum(column) for column in zip(*rows, strict=True)] for slot, rows in found.items()}
        for slot, units in totals.items():
            place = _place_of(slot, trials)
            listed = slot.cell.usd(units)
            sums.cost_of(place).add(listed, listed)
            sums.counts_of(place).calls += len(found[slot])
            if not self._causes:
                for token_class, count in by_class(units).items():
                    _add_units(sums, Part(place, token_class, ""), slot.cell, count)
        if self._causes and taken:
            self._add_causes(taken, others, totals, {slot: len(found[slot]) for slot in totals}, trials, sums)

    def _add_causes(
        self,
        taken: Sequence[Taken],
        others: Sequence[str],
        totals: Mapping[Slot, Sequence[int]],
        sizes: Mapping[Slot, int],
        trials: Trials,
        sums: Sums,
    ) -> None:
        """List prices by cause: the stored charges say how many tokens of a class had which cause. `sizes`: the calls
        of each slot.

        Raises JournalDamaged where they do not add up to what the raw usage tells.
        """
        slots = {slot: number for number, slot in enumerate(totals)}
        usual: dict[tuple[str, str, str], Slot] = {}
        for slot in sorted(sizes, key=sizes.__getitem__):
            usual[slot.trial, slot.role, slot.cell.model] = slot
        of_usual = set(usual.values())
        apart = [(each.key, slots[each.slot]) for each in taken if each.slot not in of_usual]
        apart += [(key, -1) for key in others]
        lines = self._connection.execute(
            _UNITS,
            {
                "keys": [key for key, _ in apart],
                "slots": [slot for _, slot in apart],
                "usual_trials": [trial for trial, _, _ in usual],
                "usual_roles": [role for _, role, _ in usual],
                "usual_models": [model for _, _, model in usual],
                "usual_slots": [slots[slot] for slot in usual.values()],
            },
        ).fetchall()
        by_number = list(totals)
        charged: dict[Slot, dict[str, int]] = {}
        for number, token_class, cause, units in lines:
            slot = by_number[number]
            classes = charged.setdefault(slot, {})
            classes[token_class] = classes.get(token_class, 0) + (units or 0)
            _add_units(sums, Part(_place_of(slot, trials), token_class, cause), slot.cell, units or 0)
        for slot, units in totals.items():
            if charged.get(slot, {}) != by_class(units):
                raise JournalDamaged(
                    f"charges of the trial {slot.trial} ({slot.role}) do not add up to the usage of its calls; leave "
                    "out --by cause"
                )

    def _add_explained(self, row: Row, explained: ExplainedCall, trials: Trials, sums: Sums) -> None:
        place = _place(row, trials)
        counts = sums.counts_of(place)
        counts.calls += 1
        counts.inexact += explained.cost_usd is None
        counts.billed += explained.billed_usd is not None
        sums.cost_of(place).add(round(explained.cost_low_usd, 12), round(explained.cost_high_usd, 12))
        for charge in explained.charges:
            part = Part(place, charge.token_class, charge.cause if self._causes else "")
            sums.listed_of(part).add(
                round(charge.usd_low, 12),
                round(charge.usd_high, 12),
                round(charge.excess_usd, 12) if self._causes else NOTHING,
            )


def _add_units(sums: Sums, part: Part, cell: Cell, units: int) -> None:
    usd, _ = usd_range(cell.card, part.token_class, units, cell.prompt_tokens)
    excess = NOTHING
    if part.cause in _REBUILDS:
        low, high = usd_range(cell.card, "cache_read", units, cell.prompt_tokens)
        excess = usd - low if low == high else NOTHING
    sums.listed_of(part).add(usd, usd, excess)


_REBUILDS: frozenset[str] = frozenset[str](REBUILDS)


def _place_of(slot: Slot, trials: Trials) -> Place:
    return Place(*trials[slot.trial], slot.role, slot.cell.model)


def _place(row: Row, trials: Trials) -> Place:
    return Place(*trials[str(row["trial_id"])], str(row["role"]), str(row["model"]))
