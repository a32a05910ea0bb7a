"""A lane of 500 turns costs twice what one of 250 does, whatever its role forgets: counted, not timed."""

import sys
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace

import pytest

from agents import lane as lanes
from agents.context import ContextPolicy
from agents.lane import Block, Message
from cost_model import prompt as prompts
from cost_model.call_fact import CallFact
from cost_model.prompt import PromptBlock, PromptRange
from cost_model.scope import explain
from cost_model.tokens import Tokens
from experiments.store.prompts import Prompts
from tests.cost_calls import call
from tests.forgetful_role import Desk, Said

TURNS = 250
GROWTH = 2.2

POLICIES = {
    "none": None,
    "clear": ContextPolicy("clear", 1, 2),
    "compact": ContextPolicy("compact", 1, 2),
}


class Counted:
    """What a lane took: bytes encoded, bytes recorded, and bytes of memory that its role still holds at the end."""

    def __init__(self) -> None:
        self.encoded = self.recorded = self.held = 0


def block_counting(counted: Counted) -> Callable[[int, str, Message], Block]:
    plain = lanes._block

    def block(index: int, role: str, content: Message) -> Block:
        made = plain(index, role, content)
        counted.encoded += made.size
        return made

    return block


def held_by(*roots: object) -> int:
    """Bytes of all that can be reached from the roots by lists, mappings and the fields of dataclasses."""
    seen: set[int] = set()
    waiting, size = list(roots), 0
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        size += sys.getsizeof(one)
        if isinstance(one, Mapping):
            waiting += [*one.keys(), *one.values()]
        elif isinstance(one, list | tuple | deque):
            waiting += one
        elif is_dataclass(one):
            waiting += [getattr(one, each.name) for each in fields(one)]
    return size


async def taken(policy: ContextPolicy | None, turns: int) -> Counted:
    answers: list[Said] = [("I look.", [("bash", f"look at number {n:04} 30")]) for n in range(turns)]
    counted = Counted()
    desk = Desk(policy, answers, [("I have looked.", [])] * turns, way="chat", keeps=False)
    async with desk.open() as played:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(lanes, "_block", block_counting(counted))
            await played.role.visit("do it")
        counted.held = held_by(played.role.lane, played.role.context)
    assert len(played.notes.commands) == turns
    counted.recorded = sum(size for *_, size in played.notes.messages)
    assert bool(played.notes.rewrites) is (policy is not None)
    return counted


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", list(POLICIES))
async def test_a_long_lane_takes_what_its_turns_take(name: str) -> None:
    short, long = await taken(POLICIES[name], TURNS), await taken(POLICIES[name], 2 * TURNS)
    assert long.encoded <= GROWTH * short.encoded
    assert long.recorded <= GROWTH * short.recorded
    # Who forgets may hold less of twice as many turns.
    assert long.held <= GROWTH * short.held


def stored(turns: int) -> list[dict[str, object]]:
    """A lane that is rewritten before every turn from its fifth block from the end on."""
    rows: list[dict[str, object]] = []
    for turn in range(turns):
        first = 0 if turn == 0 else max(1, 2 * turn - 4)
        rows += [
            {"lane": "solo-0", "version": turn, "idx": idx, "hash": f"{turn} {idx}", "size": 1_000}
            for idx in range(first, 2 + 2 * turn)
        ]
    return rows


def explained(turns: int) -> int:
    """How many blocks were looked at to explain the calls of such a lane."""
    looked = 0
    recorded = Prompts(stored(turns))
    plain = prompts.PromptRange.__getitem__

    def look(self: PromptRange, index: int | slice) -> object:
        nonlocal looked
        looked += len(range(*index.indices(len(self)))) if isinstance(index, slice) else 1
        return plain(self, index)

    calls: list[CallFact] = []
    for turn in range(turns):
        made = call(20 * turn, "", Tokens(cache_write_5m=1_000 * (turn + 1), output=10), lane="solo-0")
        calls.append(replace(made, prompt=PromptRange(recorded.of("solo-0", turn), 2 + 2 * turn)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prompts.PromptRange, "__getitem__", look)
        assert len(explain(calls)) == turns
    return looked


def test_a_lane_that_is_rewritten_before_every_turn_is_explained_by_its_alterations_alone() -> None:
    assert 0 < explained(2 * TURNS) <= GROWTH * explained(TURNS)


def test_a_version_has_the_blocks_before_its_first_and_its_own() -> None:
    rows = stored(4)
    recorded = Prompts(rows)
    assert [block.hash for block in recorded.of("solo-0", 3)] == [
        "0 0", "2 1", "3 2", "3 3", "3 4", "3 5", "3 6", "3 7",
    ]  # fmt: skip
    assert [block.hash for block in recorded.of("solo-0", 1)] == ["0 0", "1 1", "1 2", "1 3"]
    assert list(recorded.of("solo-0", 7)) == list(recorded.of("other", 0)) == []
    # What comes after a block that was never stored is not known.
    gap = Prompts([row for row in rows if (row["version"], row["idx"]) != (3, 5)])
    assert len(gap.of("solo-0", 3)) == 5
    missing = Prompts([row for row in rows if row["version"] != 0])
    assert len(missing.of("solo-0", 3)) == 0


def test_ranges_over_rewritten_lists_share_what_the_rewritings_left_alone() -> None:
    plain = [PromptBlock(f"{n}", 1) for n in range(9)]
    once = prompts.Rewritten(plain, 6, [PromptBlock("x", 1)])
    twice = prompts.Rewritten(once, 3, [PromptBlock("y", 1)] * 5)
    assert [block.hash for block in twice] == ["0", "1", "2", *"yyyyy"]
    assert twice[-1].hash == "y"
    assert [block.hash for block in once[5:]] == ["5", "x"]
    for before, after, shared in ((plain, once, 6), (plain, twice, 3), (once, twice, 3), (twice, plain, 3)):
        ranges = PromptRange(before, len(before)), PromptRange(after, len(after))
        assert prompts.shared_blocks(*ranges) == shared
    with pytest.raises(ValueError, match="keeps 10 blocks out of 9"):
        prompts.Rewritten(plain, 10, [])
