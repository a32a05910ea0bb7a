"""Who held the floor while a cache expired: the time between two requests of a lane, split by what went on in it."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
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
    known = activities_of(calls) if activities is None else activities
    by_key = {call.fact.key: call for call in calls}
    found = []
    for one in explained:
        rebuilt = [charge for charge in one.charges if charge.cause == EXPIRY_REBUILD]
        call = by_key[one.key]
        if not rebuilt or one.idle_s is None:
            continue
        until = call.fact.requested_at
        since = max(
            earlier.fact.requested_at
            for earlier in calls
            if (earlier.fact.model, earlier.fact.lane) == (call.fact.model, call.fact.lane)
            and (earlier.fact.requested_at, earlier.fact.key) < (until, one.key)
            and not (earlier.fact.outcome == "refused" and earlier.fact.tokens is None)
        )
        found.append(
            Expiry(
                one.key,
                call.role,
                one.idle_s,
                tuple(_held(call.role, since, until, known)),
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


def _held(role: str, since: datetime, until: datetime, activities: Sequence[Activity]) -> list[tuple[str, Kind, float]]:
    seconds: dict[tuple[str, Kind], float] = {}
    for started, ended, holder in _pieces(role, since, until, activities):
        seconds[holder] = seconds.get(holder, 0.0) + (ended - started).total_seconds()
    return sorted(((*holder, held) for holder, held in seconds.items()), key=lambda piece: -piece[2])


def _pieces(
    role: str, since: datetime, until: datetime, activities: Sequence[Activity]
) -> Iterator[tuple[datetime, datetime, tuple[str, Kind]]]:
    """The gap cut where an activity begins or ends. Of several at once another role's comes before the lane's own, and
    an answer before a tool: that is what the lane waited for."""
    inside = [one for one in activities if one.started_at < until and one.ended_at > since]
    edges = sorted(
        {since, until, *(min(max(edge, since), until) for one in inside for edge in (one.started_at, one.ended_at))}
    )
    for started, ended in itertools.pairwise(edges):
        going_on = [one for one in inside if one.started_at <= started and one.ended_at >= ended]
        first = min(going_on, key=lambda one: (one.role == role, _FIRST.index(one.kind), one.role), default=None)
        yield started, ended, (USER, "wait") if first is None else (first.role, first.kind)
