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


class PromptRange(Sequence[PromptBlock]):
    """The first `count` blocks of a list that its lane only appends to: a prompt that is no copy.

    Two ranges over the very same list share their blocks without a look at them.
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
    """How many blocks two prompts have in common at their heads."""
    shorter = min(len(known), len(prompt))
    if isinstance(known, PromptRange) and isinstance(prompt, PromptRange) and known.blocks is prompt.blocks:
        return shorter
    # Blocks of one lane are mostly the very same objects, which lists compare without a look inside.
    if known[:shorter] == prompt[:shorter]:
        return shorter
    pairs = zip(known, prompt, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0].hash == pair[1].hash, pairs))
