"""The causes of one prompt, by position: why each of its tokens was read, or billed at more than a read.

A prompt of T tokens:

    0 ........ R ............. D ................ L ............ T
       hit      a miss of what    change_rebuild     growth, or
                was sent before                      first_write

R is what the provider read. D is what some earlier call to the same model had sent before, block by block the same (up
to the last breakpoint, where a cache reads at breakpoints only). L is how long the lane's last prompt was. The miss
between R and D is, the first that holds: below_minimum (D is too short to be cached), expiry_rebuild (nobody touched D
for longer than its lifetime), race (the call that wrote D had not begun to answer), uncacheable (less than one step of
the cache; or D ends more blocks before the prompt's end than the cache looks back, and whether a breakpoint lay between
is not known), else eviction. Where the lane's last prompt was too short to be cached, D to L is below_minimum: nothing
of it can have been lost. A prompt too short for the cache is below_minimum behind R; without a cache, uncacheable.

A call whose blocks nobody kept is split by its counts: see `cost_model.stored`.
"""

from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal

from cost_model.call_fact import CallFact
from cost_model.causes import (
    BELOW_MINIMUM,
    CHANGE_REBUILD,
    EVICTION,
    EXPIRY_REBUILD,
    FIRST_WRITE,
    GROWTH,
    HIT,
    RACE,
    UNCACHEABLE,
    Cause,
)
from cost_model.ledger import Stretch
from cost_model.lengths import Length, length, read_depth, whole_before
from cost_model.prefixes import Path, entry_depth, written_depth
from cost_model.stored import Stored
from cost_model.tokens import Tokens


@dataclass(slots=True)
class LaneState:
    """What is known of a lane before its next call.

    `last_request`: the start of the last one that was not refused. The prompt's tokens (None: not known) and request
    bytes are those of the last call that was served, `tokens_per_byte` those of the last whose usage is known.
    `stored` is kept for calls without blocks.
    """

    last_request: datetime | None = None
    served: bool = False
    prompt_tokens: int | None = None
    prompt_bytes: int = 0
    tokens_per_byte: Decimal | None = None
    stored: Stored = field(default_factory=Stored)


def split(call: CallFact, tokens: Tokens, lane: LaneState, path: Path) -> tuple[list[Stretch], int]:
    """The causes of a prompt by position, and how many of its blocks this call did not write anew."""
    total, read = tokens.prompt, tokens.cache_read
    stretches = [Stretch(HIT, read)]
    if call.policy.matching == "none" or total < call.policy.minimum_tokens:
        rest = UNCACHEABLE if call.policy.matching == "none" else BELOW_MINIMUM
        return [*stretches, Stretch(rest, total)], 0
    if not call.prompt:
        return lane.stored.split(call, tokens, _lane_length(call, lane, total) if lane.served else None), 0

    written = written_depth(path)
    depth = entry_depth(path, written) if call.policy.matching == "breakpoints" else written
    sent_before = _settle_length(path, depth, read, length(path, depth, total))
    kept = read_depth(path, written, read, total)
    if read < sent_before.tokens:
        # The last token of a prompt is always computed: who sends the same prompt again cannot read all of it.
        readable = min(sent_before.tokens, total - 1) if call.policy.matching == "prefix" else sent_before.tokens
        cause = _why_missed(call, path, depth, readable - read, sent_before.tokens)
        stretches.append(Stretch(cause, sent_before.tokens, sent_before.estimated))
        if cause == RACE or (cause == UNCACHEABLE and not _out_of_reach(call, path, depth)):
            # What the earlier call wrote stands: in a race it comes first, and a rest below a step was not rewritten.
            kept = depth
    before = _lane_length(call, lane, total)
    if before.tokens > stretches[-1].end:
        # What was too short to be cached was never stored: whatever was altered in it cost nothing.
        altered: Cause = BELOW_MINIMUM if before.tokens < call.policy.minimum_tokens else CHANGE_REBUILD
        stretches.append(Stretch(altered, min(before.tokens, total), before.estimated))
    stretches.append(Stretch(GROWTH if lane.served else FIRST_WRITE, total))
    return stretches, kept


def _settle_length(path: Path, depth: int, read: int, measured: Length) -> Length:
    """A read that ends in the very stretch in which an estimated length ends tells the length better than bytes do."""
    if not measured.estimated:
        return measured
    below = whole_before(path, depth)
    surely = (below.total or 0) if below else 0
    return Length(read, estimated=True) if surely < read < measured.tokens else measured


def _why_missed(call: CallFact, path: Path, depth: int, missed: int, sent_before: int) -> Cause:
    """Why the provider did not read the last `missed` tokens of a prefix that an earlier call had sent."""
    if sent_before < call.policy.minimum_tokens:
        return BELOW_MINIMUM
    write, touched_at = path.write(depth), path.touched_at(depth)
    if write is None or touched_at is None:
        raise ValueError("a prefix that no call wrote cannot have been sent before")
    clock_start = touched_at if call.policy.sliding else write.at
    if write.lifetime is not None and call.requested_at - clock_start > write.lifetime:
        return EXPIRY_REBUILD
    if write.readable_at is not None and write.readable_at > call.requested_at:
        return RACE
    if missed < call.policy.multiple or _out_of_reach(call, path, depth):
        return UNCACHEABLE
    return EVICTION


def _out_of_reach(call: CallFact, path: Path, depth: int) -> bool:
    """Whether the end of the first `depth` blocks lies further back than a breakpoint at the prompt's end looks.

    A block of ours is at least one content block, so what is too far by ours surely is.
    """
    reach = call.policy.look_back_blocks
    return not call.marks_known and reach is not None and len(path) - depth > reach


def _lane_length(call: CallFact, lane: LaneState, total: int) -> Length:
    """How long the lane's last prompt was, in tokens; by this call's tokens a byte where its usage never came."""
    if not lane.served or lane.prompt_tokens is not None:
        return Length(lane.prompt_tokens or 0, estimated=False)
    if not call.prompt_bytes:
        return Length(lane.stored.prompt_tokens, estimated=True)
    return Length(lane.prompt_bytes * total // max(call.prompt_bytes, 1), estimated=True)
