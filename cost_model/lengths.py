"""How long a prefix is in tokens: exact where it was a whole prompt, apportioned by bytes inside one."""

from bisect import bisect_left, bisect_right
from dataclasses import dataclass

from cost_model.apportion import apportion
from cost_model.prefixes import Path, Prefix


@dataclass(frozen=True, slots=True)
class Length:
    """A prefix measured in tokens; `estimated` when bytes had to apportion it."""

    tokens: int
    estimated: bool


def length(path: Path, depth: int, total: int) -> Length:
    """The tokens of the first `depth` blocks of a prompt of `total` tokens, never more than `total`.

    Exact where the prefix was the whole prompt of an earlier call. Inside one, the tokens between the whole prompts
    on both sides are apportioned by bytes.
    """
    if depth == 0:
        return Length(0, estimated=False)
    if depth == len(path):
        return Length(total, estimated=False)
    node = path.nodes[depth - 1]
    if node.total is not None:
        return Length(min(node.total, total), estimated=False)
    below = whole_before(path, depth)
    tokens_below, bytes_below = (below.total or 0, below.size) if below else (0, 0)
    tokens_above, bytes_above = path.within(depth) or (total, path.nodes[-1].size)
    shares = apportion(max(tokens_above - tokens_below, 0), (node.size - bytes_below, bytes_above - node.size))
    return Length(min(tokens_below + shares[0], total), estimated=True)


def whole_before(path: Path, depth: int) -> Prefix | None:
    """The longest prefix of fewer than `depth` blocks whose tokens are known exactly."""
    wholes = path.lane.wholes
    place = bisect_left(wholes, depth)
    return path.nodes[wholes[place - 1] - 1] if place else None


def read_depth(path: Path, depth: int, read: int, total: int) -> int:
    """How many of the first `depth` blocks lie wholly within the first `read` tokens."""
    if total <= read:
        return depth
    while depth and length(path, depth, total).tokens > read:
        # Whatever ends behind a whole prompt is no shorter than that: a long prompt that was missed is left in leaps.
        depth -= 1
        below = 0
        wholes = path.lane.wholes
        for at in range(bisect_right(wholes, depth) - 1, -1, -1):
            place = wholes[at]
            if (path.nodes[place - 1].total or 0) <= read:
                below = place
                break
            depth = place - 1
        if depth > below and _measured_alike(path, below, depth):
            lengths = range(below + 1, depth + 1)
            return below + bisect_right(lengths, read, key=lambda each: length(path, each, total).tokens)
    return depth


def _measured_alike(path: Path, below: int, depth: int) -> bool:
    """Whether all prefixes longer than `below` blocks, up to `depth`, are apportioned out of the same tokens and bytes,
    so that of two of them the longer one has no fewer tokens."""
    nodes = path.nodes[below:depth]
    return path.within(below + 1) == path.within(depth) and all(node.within is None for node in nodes)
