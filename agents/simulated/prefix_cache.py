"""The prefix caches of the simulated provider: one that matches at blocks, one that matches in steps of tokens.

An entry lives for its lifetime from the START of the request that wrote it or last read it, and becomes readable only
when the first token of the answer to the request that wrote it was out. Times are microseconds on whichever clock the
request came with. Clocks of different conversations need not agree, so nothing expires by another conversation's time:
entries are grouped by the first link of their prefix, a group forgets what has expired on its own time, and when there
are too many entries the group that was longest unused goes.
"""

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Generic, NamedTuple, Protocol, TypeVar

from agents.simulated.prompt_chain import BlockChain, UnitChain
from cost_model.policy import CachePolicy

LOOKBACK = 20
"""How many blocks a marked block looks back for an entry, itself included."""

MAX_ENTRIES = 1_000_000

_SWEEP_FLOOR = 256


class Mark(NamedTuple):
    """A cache breakpoint: the block it closes, the lifetime asked for, and where in the request it stands."""

    block: int
    lifetime: str
    path: str


@dataclass(frozen=True, slots=True)
class Split:
    """How the cache took a prompt, in tokens: `read` first, then `written` by lifetime, then `uncached`."""

    read: int
    written: Mapping[str, int]
    uncached: int


class _Group(Protocol):
    def __len__(self) -> int: ...


G = TypeVar("G", bound=_Group)


class _Groups(Generic[G]):
    """Groups in order of use; the total of their entries is bounded."""

    def __init__(self, limit: int) -> None:
        self._groups: OrderedDict[tuple[str, bytes], G] = OrderedDict()
        self._limit = limit
        self._entries = 0

    def get(self, key: tuple[str, bytes], empty: type[G]) -> G:
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = empty()
        self._groups.move_to_end(key)
        return group

    def drop(self, key: tuple[str, bytes]) -> None:
        self._entries -= len(self._groups.pop(key, ()))

    def grown(self, by: int) -> None:
        """Accounts for entries added (or, negative, dropped) and drops the groups longest unused."""
        self._entries += by
        while self._entries > self._limit and len(self._groups) > 1:
            _, dropped = self._groups.popitem(last=False)
            self._entries -= len(dropped)

    def __len__(self) -> int:
        return self._entries


@dataclass(slots=True)
class _Entry:
    used: int
    readable: int
    lifetime: int

    def alive(self, at: int) -> bool:
        return at - self.used <= self.lifetime


@dataclass(slots=True)
class _Marked:
    entries: dict[bytes, _Entry] = field(default_factory=dict)
    swept: int = 0

    def __len__(self) -> int:
        return len(self.entries)


class BreakpointCache:
    """Entries stand at blocks: those that were marked, or chosen by the provider's rules."""

    def __init__(self, policy: CachePolicy, limit: int = MAX_ENTRIES) -> None:
        self._policy = policy
        self._groups: _Groups[_Marked] = _Groups(limit)

    def __len__(self) -> int:
        return len(self._groups)

    def take(self, scope: str, chain: BlockChain, marks: Sequence[Mark], at: int, first_token_at: int) -> Split:
        """Reads and writes for one request: each mark reads the longest entry among the `LOOKBACK` blocks that end with
        it, and writes. `marks` in prompt order, longer lifetimes first."""
        usable = [mark for mark in marks if chain.ends[mark.block] >= self._policy.minimum_tokens]
        if not usable:
            return Split(0, {}, chain.tokens)
        group = self._groups.get((scope, chain.links[0]), _Marked)
        before = len(group)
        found = max(self._read(group, chain, mark.block, at) for mark in usable)
        return self._settle(group, before, chain, found, usable, (at, first_token_at))

    def take_at(
        self, scope: str, chain: BlockChain, places: Sequence[int], marks: Sequence[Mark], times: tuple[int, int]
    ) -> Split:
        """Reads the longest entry at one of `places` (blocks, in prompt order) and writes at `marks`, in prompt order.
        `times`: when the request came, and when the first token of its answer is out."""
        ends, minimum = chain.ends, self._policy.minimum_tokens
        usable = [mark for mark in marks if ends[mark.block] >= minimum]
        places = [place for place in places if ends[place] >= minimum]
        if not usable and not places:
            return Split(0, {}, chain.tokens)
        group = self._groups.get((scope, chain.links[0]), _Marked)
        before = len(group)
        found = next((place for place in reversed(places) if self._hit(group, chain, place, times[0])), -1)
        return self._settle(group, before, chain, found, usable, times)

    def forget(self, scope: str, chain: BlockChain) -> None:
        """Forgets all that begins as `chain` does."""
        if chain.links:
            self._groups.drop((scope, chain.links[0]))

    def _settle(
        self,
        group: _Marked,
        before: int,
        chain: BlockChain,
        found: int,
        marks: Sequence[Mark],
        times: tuple[int, int],
    ) -> Split:
        """Writes at the marks beyond the block `found` (-1: none); `before` is the group's size at first."""
        at, first_token_at = times
        position = read = chain.ends[found] if found >= 0 else 0
        written: dict[str, int] = {}
        for mark in marks:
            if chain.ends[mark.block] > position:
                written[mark.lifetime] = written.get(mark.lifetime, 0) + chain.ends[mark.block] - position
                position = chain.ends[mark.block]
                self._write(group, chain.links[mark.block], mark.lifetime, at, first_token_at)
        self._sweep(group, at)
        self._groups.grown(len(group) - before)
        return Split(read, written, chain.tokens - position)

    def _read(self, group: _Marked, chain: BlockChain, block: int, at: int) -> int:
        """The block whose entry this mark reads; -1 for none."""
        candidates = range(block, max(-1, block - LOOKBACK), -1)
        return next((candidate for candidate in candidates if self._hit(group, chain, candidate, at)), -1)

    def _hit(self, group: _Marked, chain: BlockChain, block: int, at: int) -> bool:
        """Whether there is an entry at this block that can be read; it is refreshed when the policy says so."""
        entry = group.entries.get(chain.links[block])
        if entry is None or entry.readable > at or not entry.alive(at):
            return False
        if self._policy.sliding:
            entry.used = max(entry.used, at)
        return True

    def _write(self, group: _Marked, link: bytes, lifetime: str, at: int, first_token_at: int) -> None:
        old = group.entries.get(link)
        readable = min(old.readable, first_token_at) if old is not None and old.alive(at) else first_token_at
        group.entries[link] = _Entry(at, readable, _microseconds(self._policy.lifetimes[lifetime]))

    def _sweep(self, group: _Marked, at: int) -> None:
        if len(group.entries) > 2 * group.swept + _SWEEP_FLOOR:
            group.entries = {link: entry for link, entry in group.entries.items() if entry.alive(at)}
            group.swept = len(group.entries)


@dataclass(slots=True)
class _Units:
    used: dict[bytes, int] = field(default_factory=dict)
    readable: dict[bytes, int] = field(default_factory=dict)
    latest: int = 0
    swept: int = 0

    def __len__(self) -> int:
        return len(self.used)


class UnitCache:
    """Every full unit of a prompt is an entry; the longest run of known units from the start is read."""

    def __init__(self, policy: CachePolicy, limit: int = MAX_ENTRIES) -> None:
        self._policy = policy
        lifetime = policy.lifetime(None)
        self._lifetime = 0 if lifetime is None else _microseconds(lifetime)
        self._groups: _Groups[_Units] = _Groups(limit)

    def __len__(self) -> int:
        return len(self._groups)

    def take(self, scope: str, chain: UnitChain, at: int, first_token_at: int) -> Split:
        """Reads and writes for one request."""
        units = chain.links
        if chain.tokens < self._policy.minimum_tokens or not units:
            return Split(0, {}, chain.tokens)
        group = self._groups.get((scope, units[0]), _Units)
        before = len(group)

        def dead(unit: bytes) -> bool:
            used = group.used.get(unit)
            return used is None or at - used > self._lifetime or group.readable[unit] > at

        # Whatever touched a unit touched all units before it: along a chain the living come first.
        known = bisect_left(units, True, key=dead)
        # The last token is always computed afresh: an answer needs something to follow from.
        count = min(known, (chain.tokens - 1) // chain.unit)
        if count * chain.unit < self._policy.minimum_tokens:
            count = 0
        self._write(group, units, known, at, first_token_at)
        self._sweep(group, at)
        self._groups.grown(len(group) - before)
        read = count * chain.unit
        written: dict[str, int] = {}
        lifetime = self._policy.default_lifetime
        if lifetime is not None and lifetime in self._policy.write_class:
            written[lifetime] = (len(units) - count) * chain.unit
        return Split(read, written, chain.tokens - read - sum(written.values()))

    def forget(self, scope: str, chain: UnitChain) -> None:
        """Forgets all that begins as `chain` does."""
        if chain.links:
            self._groups.drop((scope, chain.links[0]))

    def _write(self, group: _Units, units: Sequence[bytes], known: int, at: int, first_token_at: int) -> None:
        for unit in units[known:]:
            used = group.used.get(unit)
            if used is not None and at - used <= self._lifetime:
                group.readable[unit] = min(group.readable[unit], first_token_at)
            else:
                group.readable[unit] = first_token_at
        touched = units if self._policy.sliding else units[known:]
        if at >= group.latest:
            group.latest = at
            group.used.update(dict.fromkeys(touched, at))
        else:
            for unit in touched:
                group.used[unit] = max(group.used.get(unit, at), at)

    def _sweep(self, group: _Units, at: int) -> None:
        if len(group.used) > 2 * group.swept + _SWEEP_FLOOR * 16:
            group.used = {unit: used for unit, used in group.used.items() if at - used <= self._lifetime}
            group.readable = {unit: group.readable[unit] for unit in group.used}
            group.swept = len(group.used)


def _microseconds(span: timedelta) -> int:
    return span // timedelta(microseconds=1)
