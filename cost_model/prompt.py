"""A prompt as the cost model sees it: blocks of content, in order."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import overload


@dataclass(frozen=True, slots=True)
class PromptBlock:
    """One block of a prompt: `hash` of its canonical content without cache marks and nonce, `size` in bytes of it."""

    hash: str
    size: int


class Rewritten(Sequence[PromptBlock]):
    """A lane's blocks since it was rewritten: the first `first` of what they were before, then `own`, which grows."""

    __slots__ = ("before", "first", "own")

    def __init__(self, before: Sequence[PromptBlock], first: int, own: Sequence[PromptBlock]) -> None:
        if not 0 <= first <= len(before):
            raise ValueError(f"a rewriting keeps {first} blocks out of {len(before)}")
        self.before = before
        self.first = first
        self.own = own

    def __len__(self) -> int:
        return self.first + len(self.own)

    @overload
    def __getitem__(self, index: int) -> PromptBlock: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[PromptBlock]: ...
    def __getitem__(self, index: int | slice) -> PromptBlock | Sequence[PromptBlock]:
        if isinstance(index, slice):
            return [self[place] for place in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        index %= len(self)
        blocks: Sequence[PromptBlock] = self
        while isinstance(blocks, Rewritten):
            if index >= blocks.first:
                return blocks.own[index - blocks.first]
            blocks = blocks.before
        return blocks[index]


class PromptRange(Sequence[PromptBlock]):
    """The first `count` blocks of a list that its lane only appends to: a prompt that is no copy.

    Two ranges over the very same list, or over one and what it was rewritten to, share their blocks without a look at
    them.
    """

    __slots__ = ("_count", "blocks")

    def __init__(self, blocks: Sequence[PromptBlock], count: int) -> None:
        if not 0 <= count <= len(blocks):
            raise ValueError(f"a prompt of {count} blocks out of {len(blocks)}")
        self.blocks = blocks
        self._count = count

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> PromptBlock: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[PromptBlock]: ...
    def __getitem__(self, index: int | slice) -> PromptBlock | Sequence[PromptBlock]:
        if isinstance(index, slice):
            return [self.blocks[place] for place in range(*index.indices(self._count))]
        if not -self._count <= index < self._count:
            raise IndexError(index)
        return self.blocks[index % self._count]


def shared_blocks(known: Sequence[PromptBlock], prompt: Sequence[PromptBlock]) -> int:
    """How many blocks two prompts have in common at their heads; of a lane and what it was rewritten to, how many the
    rewriting left alone."""
    shorter = min(len(known), len(prompt))
    if isinstance(known, PromptRange) and isinstance(prompt, PromptRange):
        kept = _kept(known.blocks, prompt.blocks)
        if kept is not None:
            return min(shorter, kept)
    # Blocks of one lane are mostly the very same objects, which lists compare without a look inside.
    if known[:shorter] == prompt[:shorter]:
        return shorter
    pairs = zip(known, prompt, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0].hash == pair[1].hash, pairs))


def _kept(before: Sequence[PromptBlock], after: Sequence[PromptBlock]) -> int | None:
    """How many blocks all rewritings from `before` to `after` left alone; None when `after` does not come from it."""
    kept = len(before)
    while after is not before:
        if not isinstance(after, Rewritten):
            return None
        kept = min(kept, after.first)
        after = after.before
    return kept
