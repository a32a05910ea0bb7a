"""Who held the floor while a cache expired: the time between two requests of a lane, split by what went on in it."""

import bisect
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Literal

from cost_model.causes import EXPIRY_REBUILD
from cost_model.scope import ExplainedCall
from cost_model.what_if.stored_call import StoredCall, in_order

Kind = Literal["model", "tool", "wait"]
"""model: a call was being answered. tool: a role that had been answered went on by itself, with its tools. wait:
neither; a role's own (it had the floor and held back, to try again or for money), or the user's."""

USER = "user"
"""The holder of a wait in which no role had the floor: whoever is outside the chain."""

Held = tuple[str, Kind, float]
"""Holder, kind and seconds."""

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

    `idle_s`: since the lane's last request began, the cache's clock; None for the first call of a lane, which wrote
    again what another lane had written. `held`: seconds of it by (holder, kind), most first; they sum to `idle_s`.
    `tokens`: what was rebuilt; `excess_usd`: what that cost over reading them.
    """

    call: str
    role: str
    idle_s: float | None
    held: tuple[Held, ...]
    tokens: int
    excess_usd: Decimal

    @property
    def holder(self) -> tuple[str, Kind] | None:
        """Who held the floor the longest, and with what; None where no time is known."""
        return self.held[0][:2] if self.held else None


def expiries(
    calls: Sequence[StoredCall], explained: Iterable[ExplainedCall], activities: Sequence[Activity] | None = None
) -> list[Expiry]:
    """The expiries of one cache scope, in order. `activities` None: what the calls themselves show."""
    floor = Floor(activities_of(calls) if activities is None else activities)
    by_key = {call.fact.key: call for call in calls}
    found = []
    for one in explained:
        rebuilt = [charge for charge in one.charges if charge.cause == EXPIRY_REBUILD]
        if rebuilt:
            call = by_key[one.key]
            found.append(
                Expiry(
                    one.key,
                    call.role,
                    one.idle_s,
                    floor.held(call.role, call.fact.requested_at, one.idle_s),
                    sum(charge.units or 0 for charge in rebuilt),
                    sum((charge.excess_usd for charge in rebuilt), Decimal(0)),
                )
            )
    return found


def activities_of(calls: Sequence[StoredCall]) -> list[Activity]:
    """What calls alone show: each is model time, but for keep-alive pings. From its end to the role's next call it runs
    tools, unless another role called meanwhile or the answer is known to ask for none (`asks_for_tools`)."""
    ordered = [call for call in in_order(calls) if not call.pinged]
    answering = [Activity(call.role, "model", call.fact.requested_at, call.end) for call in ordered]
    tools = [one.asks_for_tools is not False for one in ordered]
    return answering + between(answering, tools)


def between(answering: Sequence[Activity], tools: Sequence[bool]) -> list[Activity]:
    """Tool time from each call's end to the next call of the same role, where `tools` says that there may be some."""
    return [
        Activity(call.role, "tool", call.ended_at, following.started_at)
        for (call, following), may in zip(itertools.pairwise(answering), tools, strict=False)
        if may and call.role == following.role and following.started_at > call.ended_at
    ]


class Floor:
    """Who held the floor when, asked for any stretch of time. Linear in what overlaps the stretch."""

    def __init__(self, activities: Iterable[Activity]) -> None:
        self._activities = sorted(activities, key=lambda one: one.started_at)
        # The latest end so far: all before the first that reaches into a stretch can be left out.
        self._reaches = list(itertools.accumulate((one.ended_at for one in self._activities), max))

    def held(self, role: str, until: datetime, seconds: float | None) -> tuple[Held, ...]:
        """Who held it in the `seconds` before `until`, while `role`'s lane was idle: most first. Nothing for None."""
        if not seconds:
            return ()
        held: dict[tuple[str, Kind], timedelta] = {}
        for started, ended, holder in self._pieces(role, until - timedelta(seconds=seconds), until):
            held[holder] = held.get(holder, timedelta(0)) + (ended - started)
        most_first = sorted(held.items(), key=lambda piece: -piece[1])
        return tuple((*holder, time.total_seconds()) for holder, time in most_first)

    def _pieces(
        self, role: str, since: datetime, until: datetime
    ) -> Iterator[tuple[datetime, datetime, tuple[str, Kind]]]:
        """The stretch cut where an activity begins or ends. Of several at once another role's comes before the lane's
        own, an answer before a tool and a tool before a wait: that is what the lane waited for."""
        inside = self._inside(since, until)
        edges = sorted(
            {since, until, *(min(max(edge, since), until) for one in inside for edge in (one.started_at, one.ended_at))}
        )
        coming, going_on = 0, list[Activity]()
        for started, ended in itertools.pairwise(edges):
            while coming < len(inside) and inside[coming].started_at <= started:
                going_on.append(inside[coming])
                coming += 1
            going_on = [one for one in going_on if one.ended_at >= ended]
            first = min(going_on, key=lambda one: (one.role == role, _FIRST.index(one.kind), one.role), default=None)
            yield started, ended, (USER, "wait") if first is None else (first.role, first.kind)

    def _inside(self, since: datetime, until: datetime) -> list[Activity]:
        first = bisect.bisect_right(self._reaches, since)
        last = bisect.bisect_left(self._activities, until, key=lambda one: one.started_at)
        return [one for one in self._activities[first:last] if one.ended_at > since and one.ended_at > one.started_at]
