"""What a role forgets on purpose: when its policy acts, what it takes out, and that nothing else ever changes."""

from contextlib import suppress
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.context import KEPT, ContextPolicy, Policy
from agents.errors import VisitEnded
from tests.forgetful_role import MODELS, OVERLAYS, Desk, Played, Said

ALWAYS, NEVER = 1, 1_000_000
"""Tokens: every answer of the provider says that it had 5,392."""

LONG = 60
"""So often a command's text is printed: some hundred bytes."""

EVERY_WAY = pytest.mark.parametrize("way", list(MODELS))


def runs(*names: str, times: int = LONG) -> Said:
    return "", [("bash", f"{name} {times}") for name in names]


def policy(kind: Policy, above: int = ALWAYS, keep_last: int = 1, **more: int) -> ContextPolicy:
    return ContextPolicy(kind, above, keep_last, **more)


said = st.tuples(
    st.text("ab \n", max_size=20),
    st.lists(st.tuples(st.just("bash"), st.builds("{} {}".format, st.text("xyz", min_size=1), st.integers(0, 90)))),
).map(lambda drawn: (drawn[0], drawn[1]))
turns: st.SearchStrategy[Said] = st.one_of(said, st.just(("", [("delegate", "go on")])), st.just(("hm", [])))
summaries = st.sampled_from([("short", []), ("", []), ("I would rather work", [("bash", "x 1")]), ("l" * 3000, [])])
policies = st.one_of(
    st.none(),
    st.builds(
        ContextPolicy,
        st.sampled_from(["truncate", "clear", "compact"]),
        st.sampled_from([ALWAYS, ALWAYS, NEVER]),
        st.integers(1, 3),
        st.integers(0, 100),
        st.sampled_from([0, 0, 800]),
    ),
)


async def play(plan: ContextPolicy | None, way: str, answers: list[Said], summaries: list[Said]) -> Played:
    desk = Desk(plan, answers, summaries, visits=["do it", *(f"report {n}" for n in range(40))], way=way)
    async with desk.open() as played:
        with suppress(VisitEnded):
            for message in desk.visits:
                if (await played.role.visit(message)).to_role is None:
                    break
    return played


@EVERY_WAY
@given(plan=policies, answers=st.lists(turns, max_size=9), summaries=st.lists(summaries, max_size=4))
@settings(max_examples=20, deadline=None)
async def test_only_a_stated_policy_changes_what_was_sent_and_only_from_where_it_says(
    way: str, plan: ContextPolicy | None, answers: list[Said], summaries: list[Said]
) -> None:
    played = await play(plan, way, answers, summaries)
    first = {(rewrite.lane, rewrite.version): rewrite.first for rewrite in played.notes.rewrites}
    prompts = played.prompts()
    for call, messages in prompts:
        assert messages == played.recorded(call)
        check_shape(messages)
    for (before, told), (after, then) in pairwise(prompts):
        altered = [first[after.lane, version] for version in range(before.version + 1, after.version + 1)]
        kept = min([before.blocks, *altered]) - 1
        flat = len(played.recorded(before)) if not altered else min(kept, len(told))
        assert then[:flat] == told[:flat]
        assert len(altered) == after.version - before.version <= 1
    if plan is None or plan.above_tokens == NEVER:
        assert not played.notes.rewrites
        assert {call.version for call, _ in prompts} == {0}
        bodies = [OVERLAYS.sub(b"", received.body) for received in played.provider.received]
        for one, other in pairwise(bodies):
            assert other.startswith(one.removesuffix(b"]}"))
    for received in played.provider.received:
        assert len(OVERLAYS.findall(received.body)) <= 4


def check_shape(messages: list[Any]) -> None:
    """Every call is answered by what comes next, once, and nothing else is."""
    waiting: list[str] = []
    for message in messages:
        content = message.get("content")
        blocks = content if isinstance(content, list) else []
        answers = [block["tool_use_id"] for block in blocks if block.get("type") == "tool_result"]
        answers += [message[name] for name in ("tool_call_id",) if name in message]
        if message.get("type") == "function_call_output":
            answers.append(message["call_id"])
        for answer in answers:
            waiting.remove(answer)
        if not answers and message.get("type") != "function_call":
            assert not waiting
        waiting += [block["id"] for block in blocks if block.get("type") == "tool_use"]
        waiting += [call["id"] for call in message.get("tool_calls", ())]
        if message.get("type") == "function_call":
            waiting.append(message["call_id"])
    assert not waiting


@EVERY_WAY
async def test_old_results_are_cleared_and_the_newest_stay(way: str) -> None:
    answers = [runs("a"), runs("b"), runs("c"), runs("d")]
    played = await Desk(policy("clear", keep_last=2), answers, way=way).play()
    last = str(played.prompts()[-1][1])
    assert last.count("[cleared: 252 bytes of a tool's output; run it again if you need it]") == 2
    assert f"c {LONG}" * LONG in last
    assert f"d {LONG}" * LONG in last
    rewrites = [(one.version, one.turn, one.first, one.results) for one in played.notes.rewrites]
    assert rewrites == [(1, 4, 3, 1), (2, 5, 5, 1)]
    for one in played.notes.rewrites:
        assert one.blocks_before == one.blocks_after
        assert one.bytes_before - one.bytes_after > 150


async def test_old_results_are_cut_in_the_middle_and_not_touched_again() -> None:
    answers = [runs("a"), runs("b"), runs("c", times=1), runs("d", times=1), runs("e", times=1)]
    played = await Desk(policy("truncate", keep_bytes=40), answers).play()
    texts = [
        block["content"]
        for message in played.prompts()[-1][1]
        for block in message["content"]
        if block["type"] == "tool_result"
    ]
    # 252 bytes: the exit code's line and sixty times "a 60".
    assert texts[0] == f"exit code 0\n{'a 60' * 2}\n[cut: 212 bytes left out here]\n{'a 60' * 5}"
    assert texts[2] == "exit code 0\nc 1"
    assert [one.results for one in played.notes.rewrites] == [1, 1]
    assert {call.version for call, _ in played.prompts()[-3:]} == {2}


async def test_what_the_model_has_not_read_is_never_cut() -> None:
    played = await Desk(policy("clear"), [runs("a", "b", "c"), runs("d")]).play()
    second, third = (str(messages) for _, messages in played.prompts()[1:])
    assert "cleared" not in second
    assert third.count("cleared") == 3


async def test_what_another_role_reported_is_no_tools_output() -> None:
    report = "the worker's long report " * 30
    answers = [runs("a"), ("", [("bash", f"b {LONG}"), ("delegate", "go")]), runs("c"), runs("d"), runs("e")]
    played = await Desk(policy("clear"), answers, visits=["do it", report]).play()
    last = str(played.prompts()[-1][1])
    assert report in last
    assert last.count("cleared") == 4


async def test_a_policy_waits_until_enough_can_go_at_once() -> None:
    answers = [runs(name) for name in "abcdefg"]
    played = await Desk(policy("clear", at_least_bytes=500), answers).play()
    assert [one.results for one in played.notes.rewrites] == [3, 3]


async def test_without_a_total_of_the_providers_own_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.wire_answers.OPENAI_USAGE", None)
    kinds: tuple[Policy, ...] = ("clear", "compact")
    for kind in kinds:
        played = await Desk(policy(kind), [runs(name) for name in "abcd"], way="chat").play()
        assert not played.notes.rewrites
        assert len(played.provider.received) == 5


@EVERY_WAY
async def test_a_compacted_lane_holds_the_task_the_summary_and_the_newest_answers(way: str) -> None:
    answers = [runs(name) for name in "abcde"]
    desk = Desk(policy("compact", keep_last=2), answers, [("a and b were run", [])] * 9, visits=["the task"], way=way)
    played = await desk.play()
    asks = [place for place, (_, messages) in enumerate(played.prompts()) if "about to be compacted" in str(messages)]
    assert asks == [3, 5, 7]
    asked, then = played.prompts()[3], played.prompts()[4]
    assert then[1][0]["role"] == "user"
    assert f"the task\n\n{KEPT.format(2)}\n\na and b were run" in str(then[1][0]).replace("\\n", "\n").replace(
        '\\"', '"'
    )
    # The two newest answers as they were, and the request for the summary is gone.
    kept = len(then[1]) - 1
    assert then[1][1:] == asked[1][-1 - kept : -1]
    first, second, _ = played.notes.rewrites
    assert (first.version, first.turn, first.first, first.call) == (1, 5, 1, asked[0].key)
    assert first.blocks_after < first.blocks_before
    assert first.outcome == second.outcome == "rewritten"
    # A later summary takes the place of the one before.
    assert str(played.prompts()[-1][1]).count("was compacted") == 1
    # A summary is a turn like any other.
    assert [call.turn for call, _ in played.prompts()] == [str(n) for n in range(1, len(played.provider.received) + 1)]


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (("", []), "no_text"),
        (("let me look first", [("bash", f"x {LONG}")]), "tool_calls"),
        (("w" * 5000, []), "too_long"),
    ],
)
@EVERY_WAY
async def test_an_answer_that_is_no_summary_leaves_the_lane_as_it_was(way: str, answer: Said, outcome: str) -> None:
    answers = [runs(name) for name in "abcdefgh"]
    played = await Desk(policy("compact"), answers, [answer] * 9, way=way).play()
    # Tried once more, and then no more.
    assert [one.outcome for one in played.notes.rewrites] == [outcome] * 2
    assert [one.blocks_before - one.blocks_after for one in played.notes.rewrites] == [1, 1]
    assert not played.notes.commands or all("x " not in str(one["command"]) for one in played.notes.commands)
    last = str(played.prompts()[-1][1])
    assert "compacted" not in last
    assert all(f"{name} {LONG}" * LONG in last for name in "abcdefgh")


async def test_no_summary_is_asked_for_when_no_turn_is_left_to_go_on_with() -> None:
    desk = Desk(policy("compact"), [runs(name) for name in "abcd"], [("short", [])], max_turns=3)
    async with desk.open() as played:
        with pytest.raises(VisitEnded, match="max_turns"):
            await played.role.visit("do it")
    assert not played.notes.rewrites
    assert len(played.provider.received) == 3


async def test_a_new_lane_begins_with_nothing_known_of_the_last() -> None:
    desk = Desk(policy("clear"), [runs("a"), runs("b"), ("", [("delegate", "go")])])
    async with desk.open() as played:
        await played.role.visit("do it")
        await played.role.visit("do it once more", anew=True)
    assert [(one.lane, one.version) for one in played.notes.rewrites] == [("planner-0", 1)]
    assert played.notes.calls[-1].lane == "planner-1"
    assert played.notes.calls[-1].version == 0
