"""How much of a prompt lies within what was read: found in leaps, it is what a plain walk finds."""

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from cost_model.lengths import length, read_depth, whole_before
from cost_model.prefixes import Path, Prefixes, Write, entry_depth, touch, written_depth
from cost_model.prompt import PromptBlock, PromptRange, Rewritten
from tests.cost_calls import START

calls = st.lists(
    st.tuples(
        st.sampled_from(["a", "b"]),
        st.integers(0, 12),
        st.integers(1, 6),
        st.integers(0, 300),
        st.booleans(),
        st.booleans(),
    ),
    max_size=12,
)


def walked(path: Path, depth: int, read: int, total: int) -> int:
    """Step by step, leaping over whole prompts that are longer than what was read."""
    if total <= read:
        return depth
    while depth and length(path, depth, total).tokens > read:
        depth -= 1
        for place in range(depth, 0, -1):
            known = path.nodes[place - 1].total
            if known is not None:
                if known <= read:
                    break
                depth = place - 1
    return depth


@given(calls)
def test_what_was_read_and_what_is_known_exactly_is_found_as_a_walk_would(
    drawn: list[tuple[str, int, int, int, bool, bool]],
) -> None:
    prefixes = Prefixes()
    lanes: dict[str, tuple[list[PromptBlock] | Rewritten, int]] = {"a": ([], 0), "b": ([], 0)}
    for number, (lane, kept, added, read, known, writes) in enumerate(drawn):
        blocks, count = lanes[lane]
        first = min(kept, count)
        # The first two blocks are the same in both lanes.
        own = [
            PromptBlock(f"{n}" if n < 2 else f"{lane}{number}.{n}", 1 + 13 * n % 40)
            for n in range(first, first + added)
        ]
        now = Rewritten(blocks, first, own) if first else own
        lanes[lane] = now, len(now)
        prompt = PromptRange(now, len(now))
        path = prefixes.path(lane, prompt)
        assert [node.depth for node in path.nodes] == list(range(1, len(now) + 1))
        total = sum(block.size for block in now) // 3
        for depth in range(len(now) + 1):
            before = [node for node in path.nodes[: max(depth - 1, 0)] if node.total is not None]
            assert whole_before(path, depth) is (before[-1] if before else None)
            entries = [node.depth for node in path.nodes[:depth] if node.entry]
            assert entry_depth(path, depth) == (entries[-1] if entries else min(depth, 1))
        written = written_depth(path)
        for tokens in {read, read // 2, total // 2, total}:
            assert read_depth(path, written, tokens, total) == walked(path, written, tokens, total)
        at = START + timedelta(seconds=number)
        write = Write(at, at, None) if writes else None
        kept_blocks = read_depth(path, written, read, total)
        touch(path, at, kept=kept_blocks, write=write, total=total if known else None)
