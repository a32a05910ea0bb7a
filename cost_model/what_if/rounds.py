"""Rounds of hand-overs, read off the order of calls, and the chain without its last rounds."""

from collections.abc import Sequence
from dataclasses import replace

from cost_model.what_if.stored_call import StoredCall, in_order


def with_rounds(calls: Sequence[StoredCall]) -> list[StoredCall]:
    """The calls of one scope in order, each with its round.

    The role of the first call leads. A round begins when the floor passes from the lead to another role; the call that
    delegated belongs to the round before.
    """
    ordered = in_order(calls)
    numbered, number, with_lead = [], 0, True
    for call in ordered:
        lead = call.role == ordered[0].role
        if not call.pinged:
            number += with_lead and not lead
            with_lead = lead
        numbered.append(replace(call, round=number))
    return numbered


def fewer_rounds(calls: Sequence[StoredCall], fewer: int) -> list[StoredCall]:
    """The calls up to the hand-over before the last `fewer` ones. At least the first round stays, if there is one.

    The trial then ends where it had delegated once more: that call stands for the one that would have handed in.
    """
    rounds = {call.round for call in calls if call.round}
    first, last = min(rounds, default=0), max(rounds, default=0)
    keep = max(last - fewer, first)
    return [call for call in calls if call.round <= keep]
