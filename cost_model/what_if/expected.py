"""What a cache that keeps to its policy would let each call read: nothing evicted, nothing kept beyond its lifetime."""

from dataclasses import dataclass, field

from cost_model.call_fact import CallFact
from cost_model.lengths import length, read_depth
from cost_model.prefixes import Path, Prefixes, Write, entry_depth, touch, written_depth
from cost_model.stored import Stored
from cost_model.tokens import Tokens


@dataclass(slots=True)
class ExpectedCache:
    """The caches of one scope, by model. Calls are put to it in order: first `readable`, then `take`."""

    prefixes: dict[str, Prefixes] = field(default_factory=dict)
    stored: dict[tuple[str, str], Stored] = field(default_factory=dict)

    def readable(self, call: CallFact, total: int, altered_from: int | None = None) -> int:
        """Tokens of a prompt of `total` that could be read. `altered_from`: where the lane's prompt stops to be what it
        sent before; None when it only grew. Of a call without blocks nothing else shows it."""
        if call.policy.matching == "none" or total < call.policy.minimum_tokens:
            return 0
        if call.prompt:
            tokens = self._readable_blocks(call, total)
        else:
            tokens = self._stored(call).readable(call.requested_at, call.policy)
            tokens = tokens if altered_from is None else min(tokens, altered_from)
        if call.policy.matching == "prefix":
            tokens = min(tokens, total - 1)
        tokens = min(tokens, total)
        tokens -= tokens % call.policy.multiple
        return tokens if tokens >= call.policy.minimum_tokens else 0

    def take(self, call: CallFact, tokens: Tokens | None) -> None:
        """The call was made, and read and wrote so; None when nobody knows what it did."""
        if call.policy.matching == "none" or (call.outcome == "refused" and tokens is None):
            return
        if not call.prompt:
            stored = self._stored(call)
            if tokens is None:
                stored.touched_at = call.requested_at
            else:
                stored.take(call, tokens)
            return
        path = self._path(call)
        lifetime = call.policy.lifetime(call.lifetime)
        write = Write(call.requested_at, call.first_token_at, lifetime) if call.served else None
        written = written_depth(path)
        total = None if tokens is None else tokens.prompt
        kept = written if tokens is None else read_depth(path, written, tokens.cache_read, tokens.prompt)
        touch(path, call.requested_at, kept=kept, write=write, total=total)

    def last_prompt(self, call: CallFact) -> int:
        """The tokens that the lane of a call without blocks sent last."""
        return self._stored(call).prompt_tokens

    def _readable_blocks(self, call: CallFact, total: int) -> int:
        path, marked = self._path(call), call.policy.matching == "breakpoints"
        depth = written_depth(path)
        depth = entry_depth(path, depth) if marked else depth
        while depth and not _alive(path, depth, call):
            depth = entry_depth(path, depth - 1) if marked else depth - 1
        return length(path, depth, total).tokens

    def _path(self, call: CallFact) -> Path:
        return self.prefixes.setdefault(call.model, Prefixes()).path(call.lane, call.prompt)

    def _stored(self, call: CallFact) -> Stored:
        return self.stored.setdefault((call.model, call.lane), Stored())


def _alive(path: Path, depth: int, call: CallFact) -> bool:
    write, touched_at = path.write(depth), path.touched_at(depth)
    if write is None or touched_at is None:
        return False
    if write.readable_at is not None and write.readable_at > call.requested_at:
        return False
    clock_start = touched_at if call.policy.sliding else write.at
    return write.lifetime is None or call.requested_at - clock_start <= write.lifetime
