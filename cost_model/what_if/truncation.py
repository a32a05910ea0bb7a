"""A lane that forgets: when its prompt has become too long, all but its head and its latest part is dropped."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from cost_model.what_if.stored_call import StoredCall, in_order


@dataclass(frozen=True, slots=True)
class Truncation:
    """In tokens. A prompt of more than `above` is cut to `keep` before it is sent; its first `head` tokens (system text
    and tools) stay and can still be read from the cache, the rest that is kept is written anew."""

    above: int
    keep: int
    head: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.head <= self.keep <= self.above or self.keep == 0:
            raise ValueError(
                f"expected 0 <= head <= keep <= above and a keep above 0, not {self.head}, {self.keep}, {self.above}"
            )


@dataclass(frozen=True, slots=True)
class Cut:
    """What truncation made of a prompt: its tokens, and how many of its first ones are still what was sent before
    (None: all that were)."""

    total: int
    unaltered: int | None


def cut_prompts(calls: Sequence[StoredCall], truncating: Mapping[str, Truncation]) -> dict[str, Cut]:
    """By call key, for the calls of truncated roles whose usage is known.

    Between two cuts a lane grows as it was measured to. Where it was itself cut or compacted when it was measured, it
    starts again from that prompt.
    """
    dropped: dict[tuple[str, str], int] = {}
    before: dict[tuple[str, str], int] = {}
    cuts: dict[str, Cut] = {}
    for call in in_order(calls):
        plan, tokens = truncating.get(call.role), call.fact.tokens
        if plan is None or tokens is None:
            continue
        lane = (call.fact.model, call.fact.lane)
        measured = tokens.prompt
        if measured < before.get(lane, 0):
            dropped[lane] = 0
        before[lane] = measured
        total, unaltered = measured - dropped.get(lane, 0), None
        if total > plan.above:
            dropped[lane] = measured - plan.keep
            total, unaltered = plan.keep, plan.head
        cuts[call.fact.key] = Cut(total, unaltered)
    return cuts


def without_blocks(calls: Sequence[StoredCall], roles: Mapping[str, Truncation]) -> list[StoredCall]:
    """Calls of truncated roles are replayed by their counts: the blocks that they sent are not those that they would
    have sent."""
    return [replace(call, fact=replace(call.fact, prompt=())) if call.role in roles else call for call in calls]
