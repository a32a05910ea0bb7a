"""Who held the floor while a cache expired: the time between two requests of a lane, split by what went on in it."""

import itertools
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Literal

from cost_model.causes import EXPIRY_REBUILD
from cost_model.scope import ExplainedCall
from cost_model.what_if.stored_call import StoredCall, in_order

Kind = Literal["model", "tool", "wait"]
"""model: a call was being answered. tool: a role that had been answered went on by itself, with its tools. wait: nobody
of the chain did anything."""

USER = "user"
"""The holder of a wait: whoever is outside the chain."""

_FIRST: tuple[Kind, ...] = ("model", "tool", "wait")


@dataclass(frozen=True, slots=True)
class Activity:
    """What a role, or the user, did for a while. Times are aware, the end is not included."""

    role: str
    kind: Kind
    started_at: datetime
    ended_at: datetime


@dataclass(frozen=True, slots=True)
class Expiry:
    """A prefix that was written again because its lifetime had passed.

    `idle_s`: since the lane's last request began, the cache's clock. `held`: seconds of it by (holder, kind), most
    first; they sum to `idle_s`. `tokens`: what was rebuilt; `excess_usd`: what that cost over reading them.
    """

    call: str
    role: str
    idle_s: float
    held: tuple[tuple[str, Kind, float], ...]
    tokens: int
    excess_usd: Decimal

    @property
    def holder(self) -> tuple[str, Kind]:
        """Who held the floor the longest, and with what."""
        return self.held[0][:2]


def expiries(
    calls: Sequence[StoredCall], explained: Iterable[ExplainedCall], activities: Sequence[Activity] | None = None
) -> list[Expiry]:
    """The expiries of one cache scope, in order. `activities` None: what the calls themselves show."""
    known = _Activities(activities_of(calls) if activities is None else activities)
    told = {one.key: one for one in explained}
    last_request: dict[tuple[str, str], datetime] = {}
    found = []
    for call in in_order(calls):
        fact, one = call.fact, told.get(call.fact.key)
        since = last_request.get((fact.model, fact.lane))
        if not (fact.outcome == "refused" and fact.tokens is None):
            last_request[fact.model, fact.lane] = fact.requested_at
        rebuilt = [] if one is None else [charge for charge in one.charges if charge.cause == EXPIRY_REBUILD]
        if one is None or one.idle_s is None or since is None or not rebuilt:
            continue
        found.append(
            Expiry(
                one.key,
                call.role,
                one.idle_s,
                tuple(_held(call.role, since, fact.requested_at, known)),
                sum(charge.units or 0 for charge in rebuilt),
                sum((charge.excess_usd for charge in rebuilt), Decimal(0)),
            )
        )
    return found


def activities_of(calls: Sequence[StoredCall]) -> list[Activity]:
    """Each call is model time, but for keep-alive pings. From its end to the role's next call it runs tools, unless
    another role called meanwhile or the answer is known to ask for none (`asks_for_tools`)."""
    ordered = [call for call in in_order(calls) if not call.pinged]
    done = [Activity(call.role, "model", call.fact.requested_at, call.end) for call in ordered]
    for call, following in itertools.pairwise(ordered):
        started, ended = call.end, following.fact.requested_at
        if call.role == following.role and call.asks_for_tools is not False and ended > started:
            done.append(Activity(call.role, "tool", started, ended))
    return done


class _Activities:
    """What went on, to be asked for a stretch of time without a look at everything."""

    def __init__(self, activities: Iterable[Activity]) -> None:
        self._all = sorted(activities, key=lambda one: one.started_at)
        self._latest_end = list(itertools.accumulate((one.ended_at for one in self._all), max))

    def within(self, since: datetime, until: datetime) -> list[Activity]:
        """Those that had begun before `until` and not ended by `since`, in order of their start."""
        place, inside = bisect_left(self._all, until, key=lambda one: one.started_at), []
        while place and self._latest_end[place - 1] > since:
            place -= 1
            if self._all[place].ended_at > since:
                inside.append(self._all[place])
        return inside[::-1]


def _held(role: str, since: datetime, until: datetime, activities: _Activities) -> list[tuple[str, Kind, float]]:
    seconds: dict[tuple[str, Kind], timedelta] = {}
    for started, ended, holder in _pieces(role, since, until, activities.within(since, until)):
        seconds[holder] = seconds.get(holder, timedelta()) + (ended - started)
    return sorted(((*holder, held.total_seconds()) for holder, held in seconds.items()), key=lambda piece: -piece[2])


def _pieces(
    role: str, since: datetime, until: datetime, inside: Sequence[Activity]
) -> Iterator[tuple[datetime, datetime, tuple[str, Kind]]]:
    """The gap cut where an activity begins or ends. Of several at once another role's comes before the lane's own, and
    an answer before a tool: that is what the lane waited for."""
    edges = sorted(
        {since, until, *(min(max(edge, since), until) for one in inside for edge in (one.started_at, one.ended_at))}
    )
    going_on: list[Activity] = []
    begun = 0
    for started, ended in itertools.pairwise(edges):
        while begun < len(inside) and inside[begun].started_at <= started:
            going_on.append(inside[begun])
            begun += 1
        going_on = [one for one in going_on if one.ended_at > started]
        first = min(going_on, key=lambda one: (one.role == role, _FIRST.index(one.kind), one.role), default=None)
        yield started, ended, (USER, "wait") if first is None else (first.role, first.kind)
