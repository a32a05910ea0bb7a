"""The clock of a chain in which some roles are faster or slower.

All the time in which a role holds the floor is stretched: its calls, and what it does between them. Where calls of
several roles are in flight the slowest of them sets the pace. Order is kept: nobody overtakes anybody.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from fractions import Fraction

from cost_model.what_if.stored_call import StoredCall, in_order

MICROSECOND = timedelta(microseconds=1)


def at_other_speeds(calls: Sequence[StoredCall], times_faster: Mapping[str, Fraction]) -> list[StoredCall]:
    """The calls of one scope at their new times. `times_faster` by role, above 0: 2 halves all of its time."""
    ordered = in_order(calls)
    if not ordered or all(speed == 1 for speed in times_faster.values()):
        return ordered
    start = ordered[0].fact.requested_at
    moments = sorted({moment for call in ordered for moment in (call.fact.requested_at, call.end)})
    slowness = {role: 1 / speed for role, speed in times_faster.items()}
    moved: dict[datetime, Fraction] = {}
    passed, previous = Fraction(0), start
    holders = _holders(ordered, moments)
    for moment in moments:
        pace = max((slowness.get(role, Fraction(1)) for role in holders[previous]), default=Fraction(1))
        passed += pace * ((moment - previous) // MICROSECOND)
        moved[moment] = passed
        previous = moment
    return in_order(_moved(call, start, moved) for call in ordered)


def _holders(ordered: Sequence[StoredCall], moments: Sequence[datetime]) -> dict[datetime, frozenset[str]]:
    """Who holds the floor from each moment to the next: those whose calls are in flight, else who was answered last."""
    starting: dict[datetime, list[StoredCall]] = {}
    ending: dict[datetime, list[StoredCall]] = {}
    for call in ordered:
        starting.setdefault(call.fact.requested_at, []).append(call)
        ending.setdefault(call.end, []).append(call)
    in_flight: dict[str, StoredCall] = {}
    latest = ordered[0].role
    held: dict[datetime, frozenset[str]] = {}
    for moment in moments:
        for call in starting.get(moment, ()):
            in_flight[call.fact.key] = call
        for call in ending.get(moment, ()):
            del in_flight[call.fact.key]
            latest = call.role
        held[moment] = frozenset(call.role for call in in_flight.values()) or frozenset({latest})
    return held


def _moved(call: StoredCall, start: datetime, moved: Mapping[datetime, Fraction]) -> StoredCall:
    asked, began, end = call.fact.requested_at, call.fact.first_token_at, call.end

    def at(moment: datetime) -> datetime:
        return start + round(moved[moment]) * MICROSECOND

    if began is not None:
        # In proportion within the call, which one pace may not cover whole.
        share = Fraction((began - asked) // MICROSECOND, max((end - asked) // MICROSECOND, 1))
        began = at(asked) + round(share * ((at(end) - at(asked)) // MICROSECOND)) * MICROSECOND
    return replace(
        call,
        fact=replace(call.fact, requested_at=at(asked), first_token_at=began),
        ended_at=None if call.ended_at is None else at(end),
    )
