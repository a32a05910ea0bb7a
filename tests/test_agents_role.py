"""A role's visits, over the wire, against a scripted provider and a real bash."""

import asyncio
import json
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from agents.clock import Clock, VirtualClock, WallClock
from agents.crew import Limits, RoleModel, Seat, hire
from agents.errors import RegistryError, VisitEnded
from agents.handover import HandoverTool, RoleDesign
from agents.limits import LOOP
from agents.role import Role
from agents.tools.bash import HEAD, TAIL, bash_result
from agents.transport import open_http
from cost_model.calls import CallSent, SpendingStopped
from harbor_tasks.sandbox import OUTPUT_LIMIT, Output
from tests.wire_answers import anthropic_pieces, openai_pieces
from tests.wire_provider import EPOCH, NONCE, BareShell, Notes, Provider, Script, entry

PLANNER = RoleDesign(
    "planner",
    "planner",
    (
        HandoverTool("delegate", "worker", "Hands work to the worker.", "brief", "What to do."),
        HandoverTool("approve", None, "Ends the work.", "summary", "What was done."),
    ),
)
MODELS = {"anthropic": "sim-claude-opus-5-5", "openai": "sim-deepseek-v4-flash"}
BOTH = pytest.mark.parametrize("protocol", list(MODELS))
TIME = {"x-fullchain-time": "first=1;end=3;tool=7"}
Answer = tuple[str, Sequence[tuple[str, str, str]]] | tuple[str, Sequence[tuple[str, str, str]], str]


class Stage:
    """A role that is about to play `answers`, and everything that can be seen of it."""

    def __init__(self, role: Role, notes: Notes, provider: Provider, clock: Clock) -> None:
        self.role, self.notes, self.provider, self.clock = role, notes, provider, clock

    def heard(self) -> list[Any]:
        """The messages of the newest request, without its marks."""
        messages = self.provider.received[-1].json["messages"]
        for message in messages:
            for block in message["content"] if isinstance(message["content"], list) else ():
                block.pop("cache_control", None)
        return [message for message in messages if message["role"] != "system"]


SetUp = Callable[..., "Any"]


@pytest.fixture
async def stage(tmp_path: Path) -> Any:
    async with AsyncExitStack() as stack:

        async def set_up(
            protocol: str,
            *answers: Answer,
            deadline: datetime | None = None,
            max_turns: int = 20,
            clock: Clock | None = None,
            headers: dict[str, str] | None = None,
            stall: bool = False,
        ) -> Stage:
            pieces = anthropic_pieces if protocol == "anthropic" else openai_pieces
            scripts = [Script(pieces(*answer), headers=TIME if headers is None else headers) for answer in answers]
            if stall:
                scripts.append(Script(pieces("x"), cut_after=1, stall=True))
            provider, notes, clock = Provider(*scripts), Notes(), clock or VirtualClock(EPOCH)
            http = await stack.enter_async_context(open_http(simulator=provider.app))
            limits = Limits(max_turns, command_timeout_s=10, max_output_tokens=1000, deadline=deadline)
            seat = Seat("t1", 1, NONCE, clock, notes, notes, BareShell(str(tmp_path)), limits, http)
            models = {"planner": RoleModel(entry(MODELS[protocol]))}
            roles = hire([PLANNER], models, seat, prompt_of=lambda name: f"Your role: {name}.")
            return Stage(roles["planner"], notes, provider, clock)

        yield set_up


def bash(call_id: str, command: str) -> tuple[str, str, str]:
    return call_id, "bash", json.dumps({"command": command})


APPROVE = ("", [("c9", "approve", '{"summary": "all good"}')])


@BOTH
async def test_a_role_runs_commands_until_it_hands_over(stage: SetUp, protocol: str, tmp_path: Path) -> None:
    seen = await stage(protocol, ("first", [bash("c1", "echo hi > note; cat note; exit 3")]), APPROVE)
    handover = await seen.role.visit("do it")
    assert (handover.kind, handover.to_role, handover.payload) == ("approve", None, "all good")
    assert (tmp_path / "note").read_text() == "hi\n"
    assert "exit code 3\\nhi\\n" in str(seen.heard()[-1]).replace("\\\\", "\\")
    [command] = seen.notes.commands
    assert (command["command"], command["exit_code"], command["turn"]) == ("echo hi > note; cat note; exit 3", 3, 1)
    assert command["started_at"] == EPOCH + timedelta(seconds=3)
    assert command["ended_at"] == EPOCH + timedelta(seconds=10)
    assert seen.clock.now() == EPOCH + timedelta(seconds=13)
    assert [(kind, name) for kind, _, name, _, _ in seen.notes.spans] == [
        ("call", "t1/1/planner-0/1/1"),
        ("command", "bash"),
        ("turn", "1"),
        ("call", "t1/1/planner-0/2/1"),
        ("turn", "2"),
        ("visit", "planner"),
    ]
    assert seen.notes.validity == {"t1/1/planner-0/1/1": True, "t1/1/planner-0/2/1": True}
    assert [call.blocks for call in seen.notes.calls] == [2, 4]


@BOTH
async def test_everything_that_was_sent_is_recorded_once_as_a_block(stage: SetUp, protocol: str) -> None:
    seen = await stage(protocol, ("first", [bash("c1", "true")]), APPROVE)
    await seen.role.visit("do it")
    blocks = seen.notes.messages
    assert [(lane, version, idx, role) for lane, version, idx, role, *_ in blocks] == [
        ("planner-0", 0, 0, "system"),
        ("planner-0", 0, 1, "user"),
        ("planner-0", 0, 2, "assistant"),
        ("planner-0", 0, 3, "user" if protocol == "anthropic" else "tool"),
        ("planner-0", 0, 4, "assistant"),
    ]
    assert [content for _, _, _, _, content, _, _ in blocks[1:4]] == seen.heard()
    assert NONCE not in str(blocks)
    assert all(size > 10 and len(digest) == 32 for *_, digest, size in blocks)
    [(role, lane, model, prompt, tools)] = seen.notes.roles
    assert (role, lane, model, prompt) == ("planner", "planner-0", MODELS[protocol], "Your role: planner.")
    assert len(tools) == 3


@BOTH
async def test_a_second_visit_answers_the_pending_hand_over(stage: SetUp, protocol: str) -> None:
    calls = [bash("c1", "echo one"), ("c2", "delegate", '{"brief": "work"}'), bash("c3", "echo never > never")]
    seen = await stage(protocol, ("go", calls), APPROVE)
    handover = await seen.role.visit("do it")
    assert (handover.kind, handover.to_role, handover.payload, handover.tool_call_id) == (
        "delegate",
        "worker",
        "work",
        "c2",
    )
    assert [command["command"] for command in seen.notes.commands] == ["echo one"]
    await seen.role.visit("the worker reports")
    answers = seen.heard()[2:]
    if protocol == "anthropic":
        [message] = answers
        given = [(block["tool_use_id"], block["content"], block.get("is_error")) for block in message["content"]]
        assert [flag for *_, flag in given] == [None, None, True]
        pairs = [(call_id, content) for call_id, content, _ in given]
    else:
        pairs = [(message["tool_call_id"], message["content"]) for message in answers]
    assert pairs[:2] == [("c1", "exit code 0\none\n"), ("c2", "the worker reports")]
    assert pairs[2][0] == "c3"
    assert pairs[2][1].startswith("not run")
    assert [(who, handed.kind) for who, handed, _ in seen.notes.handovers] == [
        ("planner", "delegate"),
        ("planner", "approve"),
    ]
    assert seen.role.lane.blocks == 5 if protocol == "anthropic" else 7


@BOTH
async def test_calls_that_cannot_be_carried_out_are_answered_so_that_the_model_can_mend_them(
    stage: SetUp, protocol: str
) -> None:
    calls = [("c1", "bash", '{"cmd": "ls"}'), ("c2", "shell", "{}"), ("c3", "bash", '{"command": "l')]
    seen = await stage(protocol, ("", calls), APPROVE)
    await seen.role.visit("do it")
    told = str(seen.heard()[2:])
    assert told.count("error: not run, the arguments must be a JSON object with the string") == 2
    assert "there is no tool" in told
    assert seen.notes.validity["t1/1/planner-0/1/1"] is False
    assert not seen.notes.commands


@BOTH
async def test_a_call_that_was_cut_at_the_token_limit_is_answered_as_cut(stage: SetUp, protocol: str) -> None:
    reason = "max_tokens" if protocol == "anthropic" else "length"
    seen = await stage(protocol, ("", [("c1", "bash", '{"command": "cat <<')], reason), APPROVE)
    await seen.role.visit("do it")
    assert "cut at 1000 tokens" in str(seen.heard()[-1])


@BOTH
async def test_a_role_that_calls_no_tool_is_nudged_twice_and_then_the_visit_ends(stage: SetUp, protocol: str) -> None:
    seen = await stage(protocol, ("hm", []), ("", []), ("well", []))
    with pytest.raises(VisitEnded, match="no_handover"):
        await seen.role.visit("do it")
    assert sum("You called no tool" in str(message) for message in seen.heard()) == 2
    assert seen.notes.validity == {}


@BOTH
async def test_a_refusal_ends_the_visit(stage: SetUp, protocol: str) -> None:
    seen = await stage(protocol, ("I cannot", [], "refusal" if protocol == "anthropic" else "content_filter"))
    with pytest.raises(VisitEnded, match="refusal"):
        await seen.role.visit("do it")


async def test_turns_are_counted_over_all_visits(stage: SetUp) -> None:
    delegate = ("", [("c1", "delegate", '{"brief": "work"}')])
    seen = await stage("anthropic", delegate, ("", [bash("c2", "true")]), max_turns=2)
    await seen.role.visit("do it")
    with pytest.raises(VisitEnded, match="max_turns"):
        await seen.role.visit("done")
    assert len(seen.provider.received) == 2
    assert [name for kind, _, name, _, _ in seen.notes.spans if kind == "turn"] == ["1", "2"]


async def test_the_same_command_with_the_same_output_again_and_again_is_a_loop(stage: SetUp) -> None:
    def turn(n: int, command: str) -> Answer:
        return ("", [bash(f"c{n}", command)])

    answers = [turn(n, "echo same") for n in range(LOOP - 1)] + [turn(8, "echo other")]
    seen = await stage("anthropic", *answers, *(turn(20 + n, "echo same") for n in range(LOOP)))
    with pytest.raises(VisitEnded, match="loop"):
        await seen.role.visit("do it")
    assert len(seen.notes.commands) == 2 * LOOP


@pytest.mark.parametrize("passes_after", [2.0, 3.0, 6.0, 10.0])
async def test_the_deadline_of_the_virtual_clock_ends_the_visit_at_its_moment(
    stage: SetUp, passes_after: float
) -> None:
    deadline = EPOCH + timedelta(seconds=passes_after)
    seen = await stage("anthropic", ("", [bash("c1", "true")]), APPROVE, deadline=deadline)
    with pytest.raises(VisitEnded, match="agent_timeout"):
        await seen.role.visit("do it")
    assert seen.clock.now() == deadline
    assert [end.outcome for end in seen.notes.ends] == (["cancelled"] if passes_after == 2 else ["complete"])
    assert len(seen.notes.commands) == (passes_after > 3)


async def test_the_deadline_of_the_wall_clock_cuts_a_call_short(stage: SetUp) -> None:
    clock = WallClock()
    # What is loaded once, when a model of this protocol is first hired, must not use the deadline up.
    await stage("anthropic")
    deadline = clock.now() + timedelta(seconds=2)
    seen = await stage("anthropic", clock=clock, deadline=deadline, headers={}, stall=True)
    async with asyncio.timeout(60):
        with pytest.raises(VisitEnded, match="agent_timeout"):
            await seen.role.visit("do it")
    assert [end.outcome for end in seen.notes.ends] == ["cancelled"]


def test_long_output_is_cut_in_the_middle_and_every_gap_is_marked() -> None:
    text = "a" * HEAD + "b" * 500 + "\0" + "c" * (TAIL - 1)
    told = bash_result(Output(1, text + "\ud800", OUTPUT_LIMIT + 9, True, 1.0), 60)
    assert told.startswith("exit code 1\naaa")
    assert "[... 501 characters left out ...]" in told
    assert "what came after the first 65536 is lost" in told
    assert told.endswith("[stopped after 60 s]")
    assert "\0" not in told
    told.encode()
    assert bash_result(Output(0, "", 0, False, 0.0), 60) == "exit code 0\n"


async def test_a_role_without_a_model_or_with_an_unknown_lifetime_is_refused() -> None:
    async with open_http() as http:
        limits = Limits(1, 1, 1, None)
        notes = Notes()
        seat = Seat("t", 1, NONCE, WallClock(), notes, notes, BareShell("/"), limits, http)
        with pytest.raises(RegistryError, match="role planner: no model was given"):
            hire([PLANNER], {}, seat, prompt_of=str)
        with pytest.raises(RegistryError, match=r"has no cache lifetime '2h'; it has 5m, 1h"):
            hire([PLANNER], {"planner": RoleModel(entry("sim-claude-opus-5-5"), "2h")}, seat, prompt_of=str)


async def test_a_paused_answer_is_asked_for_again_as_things_stand(stage: SetUp) -> None:
    seen = await stage("anthropic", ("still at it", [], "pause_turn"), ("", [], "pause_turn"), APPROVE)
    assert (await seen.role.visit("do it")).payload == "all good"
    assert [[message["role"] for message in request.json["messages"]] for request in seen.provider.received] == [
        ["user"],
        ["user", "assistant"],
        ["user", "assistant"],
    ]
    assert seen.role.turns == 3


@BOTH
async def test_spending_that_is_stopped_ends_the_visit_as_it_is(
    stage: SetUp, protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = await stage(protocol, ("first", [bash("c1", "true")]), APPROVE)
    booked = seen.notes.sent

    async def sent(call: CallSent) -> None:
        if call.turn == "2":
            raise SpendingStopped("the budget is used up")
        await booked(call)

    monkeypatch.setattr(seen.notes, "sent", sent)
    with pytest.raises(SpendingStopped):
        await seen.role.visit("do it")
    assert [end.outcome for end in seen.notes.ends] == ["complete"]
    assert len(seen.provider.received) == 1


async def test_effort_and_temperature_of_a_role_reach_the_wire(tmp_path: Path) -> None:
    provider, notes = Provider(Script(anthropic_pieces(*APPROVE))), Notes()
    async with open_http(simulator=provider.app) as http:
        limits = Limits(5, command_timeout_s=10, max_output_tokens=1000, deadline=None)
        seat = Seat("t1", 1, NONCE, VirtualClock(EPOCH), notes, notes, BareShell(str(tmp_path)), limits, http)
        model = RoleModel(entry(MODELS["anthropic"]), lifetime="1h", effort="low", temperature=0.0)
        await hire([PLANNER], {"planner": model}, seat, prompt_of=str)["planner"].visit("do it")
    body = provider.received[0].json
    assert (body["output_config"], body["temperature"]) == ({"effort": "low"}, 0.0)
    assert body["system"][0]["cache_control"] == {"type": "ephemeral", "ttl": "1h"}
    assert notes.calls[0].lifetime == "1h"
