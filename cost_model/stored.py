"""The causes of a prompt whose content nobody kept: from its token counts, its lane and the clock alone.

This is all that an imported log has. A lane is taken to append: its next prompt begins with the last one. What the last
call left in the cache is what it read and what it was billed as written (where writes are free: its whole prompt).

    0 ........ R ............. S ................ L ............ T
       hit      a miss of what    never stored:      growth, or
                was stored        uncacheable        first_write

What was never stored is below_minimum where the lane's last prompt was too short to be cached. The miss between R and S
is, the first that holds: below_minimum (S is too short), expiry_rebuild (the lifetime of that part was over), race (the
call that wrote it had not begun to answer), below_minimum (that part alone is too short), uncacheable (less than one
step of the cache). Else two causes are left that only the content could tell apart, and the likelier is taken:
change_rebuild where some of it was read (a cache keeps what lies before an altered place), eviction where nothing was.
A prompt that became shorter than the lane's last one was altered: change_rebuild from R to S.

What cannot be seen here: that lanes share a head (the first write of each is a first_write, never a race), and that a
breakpoint was too many blocks away to be found (an eviction).
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta

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
from cost_model.lengths import Length
from cost_model.policy import CachePolicy
from cost_model.tokens import PROMPT_CLASSES, Tokens


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of a stored prompt, from the end of the one before it to `end` (in tokens), written by one call.

    `lifetime` None: no end is stated. `readable_at` None: when the answer of its writer began was not recorded.
    """

    end: int
    lifetime: timedelta | None
    written_at: datetime
    readable_at: datetime | None


@dataclass(slots=True)
class Stored:
    """What a lane's calls left in the cache. `touched_at`: when the last one began that may have read it."""

    segments: list[Segment] = field(default_factory=list)
    touched_at: datetime | None = None
    prompt_tokens: int = 0

    @property
    def end(self) -> int:
        return self.segments[-1].end if self.segments else 0

    def readable(self, at: datetime, policy: CachePolicy) -> int:
        """How many tokens a request that starts `at` can read by the policy alone: up to the first dead segment."""
        alive = 0
        for segment in self.segments:
            if self._expired(segment, at, policy) or _unreadable(segment, at):
                break
            alive = segment.end
        return alive if alive >= policy.minimum_tokens else 0

    def split(self, call: CallFact, tokens: Tokens, before: Length | None) -> list[Stretch]:
        """The causes of a prompt by position. `before`: the lane's last prompt, None before the first that was served.

        A prompt below the minimum of its cache, or without a cache, is for the caller.
        """
        total, read = tokens.prompt, tokens.cache_read
        stretches = [Stretch(HIT, read)]
        if before is None:
            return [*stretches, Stretch(FIRST_WRITE, total)]
        if total < before.tokens:
            lost = Stretch(CHANGE_REBUILD, min(self.end, total))
            return [*stretches, *([lost] if lost.end > read else []), Stretch(UNCACHEABLE, total)]
        reach = min(max(before.tokens, self.end, read), total)
        for segment in self.segments:
            if segment.end > stretches[-1].end:
                cause = self._why_missed(segment, call, read, total)
                if cause == CHANGE_REBUILD:
                    stretches.append(Stretch(cause, reach, before.estimated))
                    break
                stretches.append(Stretch(cause, min(segment.end, total)))
        if reach > stretches[-1].end:
            never = BELOW_MINIMUM if before.tokens < call.policy.minimum_tokens else UNCACHEABLE
            stretches.append(Stretch(never, reach, before.estimated))
        return [*stretches, Stretch(GROWTH, total)]

    def take(self, call: CallFact, tokens: Tokens) -> None:
        """A call whose usage is known read and wrote."""
        lifetime = call.policy.lifetime(call.lifetime)
        kept = self._kept(call, tokens.cache_read, lifetime)
        end = tokens.cache_read
        for count, lives in _written(call.policy, tokens, lifetime):
            end += count
            if count:
                kept.append(Segment(end, lives, call.requested_at, call.first_token_at))
        self.segments = kept
        self.touched_at = call.requested_at
        self.prompt_tokens = tokens.prompt

    def _kept(self, call: CallFact, read: int, lifetime: timedelta | None) -> list[Segment]:
        """The segments that a call read. Read with others of the same lifetime, they will live and die with them."""
        kept: list[Segment] = []
        for segment in self.segments:
            if kept and kept[-1].end >= read:
                break
            end = min(segment.end, read)
            if kept and call.policy.sliding and kept[-1].lifetime == segment.lifetime:
                kept.pop()
            if end:
                kept.append(Segment(end, segment.lifetime, segment.written_at, None))
        if read > (kept[-1].end if kept else 0):
            # What the lane did not write itself was written in time by somebody else.
            kept.append(Segment(read, lifetime, call.requested_at, None))
        return kept

    def _why_missed(self, segment: Segment, call: CallFact, read: int, total: int) -> Cause:
        at, policy = call.requested_at, call.policy
        if self.end < policy.minimum_tokens:
            return BELOW_MINIMUM
        if self._expired(segment, at, policy):
            return EXPIRY_REBUILD
        if _unreadable(segment, at):
            return RACE
        if segment.end < policy.minimum_tokens:
            return BELOW_MINIMUM
        # The last token of a prompt is always computed: who sends the same prompt again cannot read all of it.
        readable = min(self.end, total - 1) if policy.matching == "prefix" else self.end
        if readable - read < policy.multiple:
            return UNCACHEABLE
        return CHANGE_REBUILD if read else EVICTION

    def _expired(self, segment: Segment, at: datetime, policy: CachePolicy) -> bool:
        clock_start = (self.touched_at or segment.written_at) if policy.sliding else segment.written_at
        return segment.lifetime is not None and at - clock_start > segment.lifetime


def _unreadable(segment: Segment, at: datetime) -> bool:
    return segment.readable_at is not None and segment.readable_at > at


def _written(policy: CachePolicy, tokens: Tokens, lifetime: timedelta | None) -> Iterator[tuple[int, timedelta | None]]:
    """What a call put into the cache behind its read, in order of position, with how long it lives."""
    if not policy.write_class:
        yield tokens.prompt - tokens.cache_read, lifetime
        return
    named = {token_class: policy.lifetimes[name] for name, token_class in policy.write_class.items()}
    for token_class in PROMPT_CLASSES:
        if token_class.startswith("cache_write"):
            yield tokens.of(token_class), named.get(token_class, lifetime)
