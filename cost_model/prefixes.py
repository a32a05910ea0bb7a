"""What one model's prompt cache may hold: every prefix that was sent, who wrote it and who touched it last.

Prompts are kept as a tree of blocks; a node is one prefix. A lane only appends, so a call walks on from where the
lane's last call ended, and the whole fold is one pass.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import takewhile


@dataclass(frozen=True, slots=True)
class PromptBlock:
    """One block of a prompt: `hash` of its canonical content without cache marks and nonce, `size` in bytes of it."""

    hash: str
    size: int


@dataclass(frozen=True, slots=True)
class Write:
    """A call that put a prefix into the cache. Readable once its answer has begun; `lifetime` None is without end.

    `readable_at` None: when the answer began was not recorded, and it is taken to have begun in time.
    """

    at: datetime
    readable_at: datetime | None
    lifetime: timedelta | None


@dataclass(frozen=True, slots=True)
class Length:
    """A prefix measured in tokens; `estimated` when bytes had to apportion it."""

    tokens: int
    estimated: bool


class Prefix:
    """One prefix: `size` bytes of blocks, `depth` blocks.

    `total`: the provider's prompt total of a call whose whole prompt it was. `entry`: a whole prompt, so a cache with
    breakpoints has an entry that ends here. `within`: (tokens, bytes) of the latest whole prompt that it is part of.
    """

    __slots__ = ("children", "depth", "entry", "size", "total", "touched_at", "within", "write")

    def __init__(self, depth: int, size: int) -> None:
        self.depth = depth
        self.size = size
        self.children: dict[str, Prefix] = {}
        self.write: Write | None = None
        self.touched_at: datetime | None = None
        self.total: int | None = None
        self.within: tuple[int, int] | None = None
        self.entry = False


Path = list[Prefix]
"""The prefixes of one prompt, shortest first: path[n - 1] has n blocks."""


class Prefixes:
    """The prefixes sent to one model within one cache scope."""

    def __init__(self) -> None:
        self._root = Prefix(0, 0)
        self._latest: dict[str, tuple[list[str], Path]] = {}

    def path(self, lane: str, prompt: Sequence[PromptBlock]) -> Path:
        """The prefixes of a prompt. `lane` only says where to look first."""
        hashes = [block.hash for block in prompt]
        known_hashes, known = self._latest.get(lane, ([], []))
        shared = len(known)
        if hashes[:shared] != known_hashes:
            pairs = zip(hashes, known_hashes, strict=False)
            shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        path = known[:shared]
        node = path[-1] if path else self._root
        for block in prompt[shared:]:
            child = node.children.get(block.hash)
            if child is None:
                child = node.children[block.hash] = Prefix(node.depth + 1, node.size + block.size)
            path.append(child)
            node = child
        self._latest[lane] = hashes, path
        return path


def written_depth(path: Path) -> int:
    """How many blocks of a prompt some earlier call had written."""
    depth = len(path)
    while depth and path[depth - 1].write is None:
        depth -= 1
    return depth


def entry_depth(path: Path, depth: int) -> int:
    """The longest part, up to `depth` blocks, that ends at a breakpoint: a whole earlier prompt, or the first block.

    The first block is the head, tools and system text, which carries a breakpoint of its own.
    """
    while depth > 1 and not path[depth - 1].entry:
        depth -= 1
    return depth


def length(path: Path, depth: int, total: int) -> Length:
    """The tokens of the first `depth` blocks of a prompt of `total` tokens, never more than `total`.

    Exact where the prefix was the whole prompt of an earlier call. Inside one, the tokens between the whole prompts
    on both sides are apportioned by bytes.
    """
    if depth == 0:
        return Length(0, estimated=False)
    if depth == len(path):
        return Length(total, estimated=False)
    node = path[depth - 1]
    if node.total is not None:
        return Length(min(node.total, total), estimated=False)
    below = whole_before(path, depth)
    tokens_below, bytes_below = (below.total or 0, below.size) if below else (0, 0)
    tokens_above, bytes_above = node.within or (total, path[-1].size)
    shares = apportion(max(tokens_above - tokens_below, 0), (node.size - bytes_below, bytes_above - node.size))
    return Length(min(tokens_below + shares[0], total), estimated=True)


def whole_before(path: Path, depth: int) -> Prefix | None:
    """The longest prefix of fewer than `depth` blocks whose tokens are known exactly."""
    return next((node for node in reversed(path[: depth - 1]) if node.total is not None), None)


def apportion(total: int, weights: Sequence[int]) -> list[int]:
    """Whole shares of `total` in proportion to the weights, summing to it exactly, by largest remainder.

    Equal remainders go to the earlier weight; without any weight the first takes all.
    """
    whole = sum(weights)
    if whole == 0:
        return [total, *(0 for _ in weights[1:])]
    shares = [total * weight // whole for weight in weights]
    by_remainder = sorted(range(len(weights)), key=lambda index: -(total * weights[index] % whole))
    for index in by_remainder[: total - sum(shares)]:
        shares[index] += 1
    return shares


def read_depth(path: Path, depth: int, read: int, total: int) -> int:
    """How many of the first `depth` blocks lie wholly within the first `read` tokens."""
    while depth and length(path, depth, total).tokens > read:
        depth -= 1
    return depth


def touch(path: Path, at: datetime, *, kept: int, write: Write | None, total: int | None) -> None:
    """A call that started `at` used the cache: it read or left alone the first `kept` blocks and wrote the others.

    `write` None: it may have read, but nothing shows that it wrote. `total`: its prompt tokens, None when not known.
    """
    if write is None:
        for node in path[: written_depth(path)]:
            node.touched_at = at
        return
    for node in path:
        node.touched_at = at
    for node in path[kept:]:
        node.write = write
    if not path:
        return
    path[-1].entry = True
    if total is not None:
        path[-1].total = total
        within = (total, path[-1].size)
        for node in path:
            node.within = within
