"""What one model's prompt cache may hold: every prefix that was sent, who wrote it and who touched it last.

Prompts are kept as a tree of blocks; a node is one prefix. A lane only appends, so a call walks on from where the
lane's last call ended. What a call does to all prefixes of its prompt is noted once, with its lane, and carried to the
nodes only where the lane leaves them: the whole fold is one pass, linear in calls, however long a prompt grows.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Generic, TypeVar

from cost_model.prompt import PromptBlock as PromptBlock
from cost_model.prompt import shared_blocks


@dataclass(frozen=True, slots=True)
class Write:
    """A call that put a prefix into the cache. Readable once its answer has begun; `lifetime` None is without end.

    `readable_at` None: when the answer began was not recorded, and it is taken to have begun in time.
    """

    at: datetime
    readable_at: datetime | None
    lifetime: timedelta | None


T = TypeVar("T")
Noted = tuple[int, T]
"""A fact and the number of the call that it comes from: of two, the later holds."""


class Prefix:
    """One prefix: `size` bytes of blocks, `depth` blocks.

    `total`: the provider's prompt total of a call whose whole prompt it was. `entry`: a whole prompt, so a cache with
    breakpoints has an entry that ends here. `written`: some call wrote it. `lanes`: how many lanes run through it now;
    what these did to it last is noted with them, and here is only what was noted when a lane left it.
    """

    __slots__ = ("children", "depth", "entry", "lanes", "size", "total", "touched", "within", "write", "written")

    def __init__(self, depth: int, size: int) -> None:
        self.depth = depth
        self.size = size
        self.children: dict[str, Prefix] = {}
        self.lanes = 0
        self.written = False
        self.write: Noted[Write] | None = None
        self.touched: Noted[datetime] | None = None
        self.within: Noted[tuple[int, int]] | None = None
        self.total: int | None = None
        self.entry = False


class _UpTo(Generic[T]):
    """Facts that each hold for every prefix of a lane up to some depth; a later one covers an earlier one."""

    __slots__ = ("_facts",)

    def __init__(self) -> None:
        self._facts: list[tuple[int, Noted[T]]] = []

    def note(self, depth: int, fact: Noted[T]) -> None:
        while self._facts and self._facts[-1][0] <= depth:
            self._facts.pop()
        self._facts.append((depth, fact))

    def at(self, depth: int) -> Noted[T] | None:
        return next((fact for upto, fact in reversed(self._facts) if upto >= depth), None)

    def cut(self, depth: int) -> None:
        """The lane is left with so many blocks."""
        latest = self.at(depth) if depth else None
        self._facts = [(upto, fact) for upto, fact in self._facts if upto < depth]
        if latest is not None:
            self._facts.insert(0, (depth, latest))


@dataclass(slots=True)
class _Lane:
    """The prompt that a lane sent last, and what its calls did to the prefixes of it."""

    prompt: Sequence[PromptBlock] = ()
    nodes: list[Prefix] = field(default_factory=list)
    touched: _UpTo[datetime] = field(default_factory=_UpTo)
    within: _UpTo[tuple[int, int]] = field(default_factory=_UpTo)
    writes: list[tuple[int, int, Noted[Write]]] = field(default_factory=list)
    """(first block, end, write), both ascending: what a later call wrote anew is no longer in an earlier one."""
    wholes: list[int] = field(default_factory=list)
    entries: list[int] = field(default_factory=list)
    """Ascending, the depths of those of `nodes` whose `total` is known, and of those that are an `entry`."""

    def write(self, depth: int) -> Noted[Write] | None:
        place = bisect_left(self.writes, depth, key=lambda written: written[0]) - 1
        if place < 0 or self.writes[place][1] < depth:
            return None
        return self.writes[place][2]

    def wrote(self, first: int, fact: Noted[Write]) -> None:
        while self.writes and self.writes[-1][0] >= first:
            self.writes.pop()
        self.writes.append((first, len(self.nodes), fact))

    def leave(self, depth: int) -> None:
        """The lane goes another way behind so many blocks: what it did to the others is kept with them."""
        for node in self.nodes[depth:]:
            node.lanes -= 1
            node.touched = _later(node.touched, self.touched.at(node.depth))
            node.within = _later(node.within, self.within.at(node.depth))
            node.write = _later(node.write, self.write(node.depth))
        del self.nodes[depth:]
        self.touched.cut(depth)
        self.within.cut(depth)
        del self.writes[bisect_left(self.writes, depth, key=lambda written: written[0]) :]
        for place in range(len(self.writes) - 1, -1, -1):
            first, end, fact = self.writes[place]
            if end <= depth:
                break
            self.writes[place] = (first, depth, fact)
        del self.wholes[bisect_right(self.wholes, depth) :]
        del self.entries[bisect_right(self.entries, depth) :]

    def enter(self, node: Prefix) -> None:
        """The lane goes on to one more block."""
        node.lanes += 1
        self.nodes.append(node)
        if node.total is not None:
            self.wholes.append(node.depth)
        if node.entry:
            self.entries.append(node.depth)


def _later(one: Noted[T] | None, other: Noted[T] | None) -> Noted[T] | None:
    if one is None or other is None:
        return one or other
    return one if one[0] > other[0] else other


class Path:
    """The prefixes of one prompt, shortest first: `nodes[n - 1]` has n blocks. Good until the lane's next call."""

    __slots__ = ("_prefixes", "lane", "nodes")

    def __init__(self, prefixes: "Prefixes", lane: _Lane) -> None:
        self._prefixes = prefixes
        self.lane = lane
        self.nodes = lane.nodes

    def __len__(self) -> int:
        return len(self.nodes)

    def write(self, depth: int) -> Write | None:
        """The latest write of the first `depth` blocks."""
        node = self.nodes[depth - 1]
        latest = node.write
        for lane in self.lanes(node):
            latest = _later(latest, lane.write(depth))
        return None if latest is None else latest[1]

    def touched_at(self, depth: int) -> datetime | None:
        """When the first `depth` blocks were last written or read."""
        node = self.nodes[depth - 1]
        latest = node.touched
        for lane in self.lanes(node):
            latest = _later(latest, lane.touched.at(depth))
        return None if latest is None else latest[1]

    def within(self, depth: int) -> tuple[int, int] | None:
        """(tokens, bytes) of the latest whole prompt that begins with the first `depth` blocks."""
        node = self.nodes[depth - 1]
        latest = node.within
        for lane in self.lanes(node):
            latest = _later(latest, lane.within.at(depth))
        return None if latest is None else latest[1]

    def lanes(self, node: Prefix) -> Iterator[_Lane]:
        """Those that run through it."""
        return iter((self.lane,)) if node.lanes == 1 else self._prefixes.through(node)

    def next_number(self) -> int:
        self._prefixes.calls += 1
        return self._prefixes.calls


class Prefixes:
    """The prefixes sent to one model within one cache scope. `calls` counts those that touched any."""

    def __init__(self) -> None:
        self._root = Prefix(0, 0)
        self._lanes: dict[str, _Lane] = {}
        self.calls = 0

    def path(self, lane: str, prompt: Sequence[PromptBlock]) -> Path:
        """The prefixes of a prompt. `lane` only says where to look first."""
        known = self._lanes.setdefault(lane, _Lane())
        shared = shared_blocks(known.prompt, prompt)
        if shared < len(known.nodes):
            known.leave(shared)
        node = known.nodes[-1] if known.nodes else self._root
        for place in range(shared, len(prompt)):
            block = prompt[place]
            child = node.children.get(block.hash)
            if child is None:
                child = node.children[block.hash] = Prefix(node.depth + 1, node.size + block.size)
            known.enter(child)
            node = child
        known.prompt = prompt
        return Path(self, known)

    def through(self, node: Prefix) -> Iterator[_Lane]:
        """The lanes whose last prompt begins with this prefix."""
        for lane in self._lanes.values():
            if len(lane.nodes) >= node.depth and lane.nodes[node.depth - 1] is node:
                yield lane


def written_depth(path: Path) -> int:
    """How many blocks of a prompt some earlier call had written."""
    depth = len(path)
    while depth and not path.nodes[depth - 1].written:
        depth -= 1
    return depth


def entry_depth(path: Path, depth: int) -> int:
    """The longest part, up to `depth` blocks, that ends at a breakpoint: a whole earlier prompt, or the first block.

    The first block is the head, tools and system text, which carries a breakpoint of its own.
    """
    place = bisect_right(path.lane.entries, depth)
    return path.lane.entries[place - 1] if place else min(depth, 1)


def touch(path: Path, at: datetime, *, kept: int, write: Write | None, total: int | None) -> None:
    """A call that started `at` used the cache: it read or left alone the first `kept` blocks and wrote the others.

    `write` None: it may have read, but nothing shows that it wrote. `total`: its prompt tokens, None when not known.
    """
    lane, nodes, number = path.lane, path.nodes, path.next_number()
    if write is None:
        lane.touched.note(written_depth(path), (number, at))
        return
    if not nodes:
        return
    lane.touched.note(len(nodes), (number, at))
    if kept < len(nodes):
        lane.wrote(kept, (number, write))
    for place in range(len(nodes) - 1, -1, -1):
        if nodes[place].written:
            break
        nodes[place].written = True
    if not nodes[-1].entry:
        nodes[-1].entry = True
        for other in path.lanes(nodes[-1]):
            insort(other.entries, len(nodes))
    if total is not None:
        if nodes[-1].total is None:
            for other in path.lanes(nodes[-1]):
                insort(other.wholes, len(nodes))
        nodes[-1].total = total
        lane.within.note(len(nodes), (number, (total, nodes[-1].size)))
