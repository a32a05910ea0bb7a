"""The rows of table `reviews`: what the hand-overs of an attempt say that are a reviewer's verdict."""

from collections.abc import Mapping, Sequence

from experiments.store.journal import Event
from experiments.store.rows import Row


def review_row(event: Event, number: int, handovers: Sequence[Row], calls: Mapping[object, Row]) -> Row:
    """Of a hand-over's event with a verdict in it; `number` counts the attempt's verdicts from 1, `handovers` are all
    up to its own. Raises KeyError when its call is none of the attempt's."""
    given = event["review"]
    if not isinstance(given, dict):
        raise TypeError(f"a review must be an object, not {type(given).__name__}")
    call = calls[event["call"]]
    reviewed = [row["seq"] for row in handovers if row["to_role"] == event["from_role"]]
    return {
        "trial_id": event["trial_id"],
        "attempt": event["attempt"],
        "number": number,
        "role": event["from_role"],
        "lane": call["lane"],
        "turn": int(str(call["turn"])),
        "call": event["call"],
        "round": len(reviewed),
        "handover": handovers[-1]["seq"],
        "reviewed": reviewed[-1] if reviewed else None,
        "verdict": given["verdict"],
        "confidence": given["confidence"],
        "findings": given["findings"],
        "given_at": event["at"],
        "truth": None,
    }
