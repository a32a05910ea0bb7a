"""Who held the floor while a cache expired, as rows: from an attempt's charges, calls and spans.

Spans tell more exactly than calls: what a command took, and what a role waited for. An attempt without them (of an
imported log) is told by its calls alone.
"""

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal

from cost_model.causes import EXPIRY_REBUILD
from cost_model.idle import Activity, Floor, Kind, between
from experiments.store.rows import Row, Rows, moment

KINDS: dict[str, Kind] = {"command": "tool", "wait": "wait", "visit": "wait"}
"""A span's kind -> what it tells of the floor. Of a visit only what no call and no command fills is waiting. Model time
is taken from the calls: a span `call` also covers a wait before its request."""


def expiry_rows(calls: Sequence[Row], charges: Sequence[Row], spans: Sequence[Row]) -> Rows:
    """The tables `expiries` and `expiry_holds` of one attempt, whose calls have been explained.

    Times are ISO-8601 text or aware date-times, dollars text or Decimal.
    """
    rebuilt: dict[object, list[Row]] = {}
    for charge in charges:
        if charge["cause"] == EXPIRY_REBUILD:
            rebuilt.setdefault(charge["call"], []).append(charge)
    rows: Rows = {"expiries": [], "expiry_holds": []}
    if not rebuilt:
        return rows
    floor = Floor(_activities(calls, spans))
    for call in calls:
        if call["key"] not in rebuilt:
            continue
        idle_s = call["idle_s"]
        held = floor.held(
            str(call["role"]), moment(call["requested_at"]), idle_s if isinstance(idle_s, float) else None
        )
        holder, kind, seconds = held[0] if held else (None, None, None)
        of_it = rebuilt[call["key"]]
        rows["expiries"].append(
            {
                "call": call["key"],
                "trial_id": call["trial_id"],
                "attempt": call["attempt"],
                "role": call["role"],
                "idle_s": idle_s,
                "holder": holder,
                "kind": kind,
                "held_s": seconds,
                "tokens": _tokens(of_it),
                "excess_usd": format(sum((Decimal(str(one["excess_usd"])) for one in of_it), Decimal(0)), "f"),
            }
        )
        rows["expiry_holds"] += [
            {"call": call["key"], "holder": name, "kind": what, "seconds": seconds} for name, what, seconds in held
        ]
    return rows


def _tokens(charges: Sequence[Row]) -> int | None:
    """None where what was rebuilt is not known."""
    units = [charge["units"] for charge in charges]
    known = [count for count in units if isinstance(count, int)]
    return sum(known) if len(known) == len(units) else None


def _activities(calls: Sequence[Row], spans: Sequence[Row]) -> list[Activity]:
    answering = sorted(
        (Activity(str(call["role"]), "model", moment(call["requested_at"]), _end(call)) for call in calls),
        key=lambda one: one.started_at,
    )
    roles = {call["lane"]: str(call["role"]) for call in calls}
    told = [
        Activity(
            roles.get(span["lane"], str(span["lane"])),
            KINDS[str(span["kind"])],
            moment(span["started_at"]),
            moment(span["ended_at"]),
        )
        for span in spans
        if span["kind"] in KINDS
    ]
    return answering + (told or between(answering, [True] * len(answering)))


def _end(call: Row) -> datetime:
    """Of a call without an end no time is known in which it was answered."""
    started = moment(call["requested_at"])
    ended = call["ended_at"] or call["first_token_at"]
    return started if ended is None else max(started, moment(ended))
