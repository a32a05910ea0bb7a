"""Keep-alive pings over the wire: when they are sent, what they say, and when they stop."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
import pytest

from agents.clock import VirtualClock, WallClock
from agents.crew import Limits, RoleModel, Seat, hire
from agents.errors import VisitEnded
from agents.keep_alive import Background, KeepAlive
from agents.role import Role
from agents.transport import open_http
from cost_model.calls import CallSent, SpendingStopped
from experiments.errors import SpecError
from experiments.loading import load
from tests.experiment_files import write_spec
from tests.test_agents_role import APPROVE, MODELS, PLANNER, TIME, Answer, bash
from tests.wire_answers import anthropic_pieces, openai_pieces, responses_pieces
from tests.wire_provider import EPOCH, NONCE, BareShell, Notes, Provider, Script, entry

ALL = {**MODELS, "responses": "sim-gpt-6.1-sol"}
EVERY_280_S = KeepAlive(280)
DELEGATE: Answer = ("", [("c1", "delegate", '{"brief": "work"}')])
PIECES = {"anthropic": anthropic_pieces, "openai": openai_pieces, "responses": responses_pieces}


def usage(protocol: str, read: int, uncached: int) -> dict[str, object]:
    if protocol == "anthropic":
        return {"input_tokens": 0, "cache_read_input_tokens": read, "cache_creation_input_tokens": uncached,
                "cache_creation": {"ephemeral_5m_input_tokens": uncached, "ephemeral_1h_input_tokens": 0},
                "output_tokens": 0}  # fmt: skip
    prompt, output = ("prompt", "completion") if protocol == "openai" else ("input", "output")
    return {f"{prompt}_tokens": read + uncached, f"{prompt}_tokens_details": {"cached_tokens": read},
            f"{output}_tokens": 1, "total_tokens": read + uncached + 1}  # fmt: skip


def pong(protocol: str = "anthropic", read: int = 5000, uncached: int = 0, seconds: float = 2) -> Script:
    """The whole answer to a ping."""
    shapes: dict[str, dict[str, object]] = {
        "anthropic": {"id": "m", "type": "message", "role": "assistant", "content": [], "stop_reason": "max_tokens"},
        "openai": {"id": "c", "object": "chat.completion", "choices": [{"index": 0, "finish_reason": "length"}]},
        "responses": {"id": "r", "object": "response", "status": "incomplete", "output": []},
    }
    body = orjson.dumps({**shapes[protocol], "model": "wire-model", "usage": usage(protocol, read, uncached)})
    return Script(body=body, headers={"x-fullchain-time": f"first={seconds};end={seconds};tool=0"})


class Scene:
    """A planner that is kept alive, and a worker that lets time pass."""

    def __init__(self, planner: Role, provider: Provider, notes: Notes, clock: VirtualClock) -> None:
        self.planner, self.provider, self.notes, self.clock = planner, provider, notes, clock

    async def work(self, seconds: float) -> None:
        async with self.clock.lane("worker-0"):
            await self.clock.sleep(seconds)

    @property
    def turns(self) -> list[tuple[str, float]]:
        return [(call.turn, (call.requested_at - EPOCH).total_seconds()) for call in self.notes.calls]


@asynccontextmanager
async def scene(
    folder: Path,
    *scripts: Answer | Script,
    protocol: str = "anthropic",
    plan: KeepAlive = EVERY_280_S,
    deadline: datetime | None = None,
    model: Callable[..., Any] = entry,
    notes: Notes | None = None,
) -> AsyncIterator[Scene]:
    made = [one if isinstance(one, Script) else Script(PIECES[protocol](*one), headers=TIME) for one in scripts]
    provider, notes, clock = Provider(*made), notes or Notes(), VirtualClock(EPOCH)
    async with open_http(simulator=provider.app) as http, Background.open() as background, clock.lane("graph"):
        limits = Limits(20, command_timeout_s=10, max_output_tokens=1000, deadline=deadline)
        seat = Seat("t1", 1, NONCE, clock, notes, notes, BareShell(str(folder)), limits, http, background)
        roles = hire([PLANNER], {"planner": RoleModel(model(ALL[protocol]), keep_alive=plan)}, seat, prompt_of=str)
        try:
            yield Scene(roles["planner"], provider, notes, clock)
        finally:
            await background.rest()


@pytest.mark.parametrize("protocol", list(ALL))
async def test_a_waiting_lane_is_asked_again_from_the_start_of_its_last_request_on(
    protocol: str, tmp_path: Path
) -> None:
    pings = [pong(protocol), pong(protocol)]
    async with scene(tmp_path, DELEGATE, *pings, APPROVE, protocol=protocol) as seen:
        await seen.planner.visit("do it")
        await seen.work(700)
        await seen.planner.visit("the worker reports")
    assert seen.turns == [("1", 0), ("k1", 280), ("k2", 560), ("2", 703)]
    first, ping, again, _ = (request.json for request in seen.provider.received)
    assert ping == again
    limit = {"anthropic": "max_tokens", "openai": "max_tokens", "responses": "max_output_tokens"}[protocol]
    least = {"anthropic": 0, "openai": 1, "responses": 16}[protocol]
    first.pop("stream_options", None)
    assert ping == {**first, limit: least, "stream": False}
    calls, ends = seen.notes.calls, seen.notes.ends
    assert [(call.lane, call.blocks) for call in calls] == [("planner-0", 2)] * 3 + [("planner-0", 4)]
    assert [call.max_output_tokens for call in calls] == [1000, least, least, 1000]
    assert [end.usage for end in ends[1:3]] == [usage(protocol, 5000, 0)] * 2
    assert seen.planner.turns == 2


async def test_a_role_is_kept_alive_while_its_own_command_runs(tmp_path: Path) -> None:
    slow = Script(anthropic_pieces("", [bash("c1", "true")]), headers={"x-fullchain-time": "first=1;end=3;tool=300"})
    async with scene(tmp_path, slow, pong(), APPROVE) as seen:
        await seen.planner.visit("do it")
    assert seen.turns == [("1", 0), ("k1", 280), ("2", 303)]


async def test_no_more_pings_than_were_asked_for_are_sent_in_one_wait(tmp_path: Path) -> None:
    plan = KeepAlive(100, most=2)
    async with scene(tmp_path, DELEGATE, pong(), pong(), DELEGATE, pong(), APPROVE, plan=plan) as seen:
        await seen.planner.visit("do it")
        await seen.work(1000)
        await seen.planner.visit("first report")
        await seen.work(150)
        await seen.planner.visit("second report")
    assert [turn for turn, _ in seen.turns] == ["1", "k1", "k2", "2", "k3", "3"]


@pytest.mark.parametrize(
    "answer",
    [
        pong(read=2499, uncached=2501),
        pong(read=0, uncached=5000),
        Script(body=b'{"type": "message", "model": "m", "content": []}'),
        Script(status=529, body=b'{"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}'),
        Script(body=b"<html>"),
        Script(body=b'{"type": "message", "usage": {"input_tokens": -1, "output_tokens": 0}}'),
    ],
    ids=["misses most", "misses all", "without usage", "refused", "no JSON", "broken usage"],
)
async def test_pings_stop_for_good_when_one_misses_or_brings_no_answer(answer: Script, tmp_path: Path) -> None:
    async with scene(tmp_path, DELEGATE, answer, DELEGATE, APPROVE) as seen:
        await seen.planner.visit("do it")
        await seen.work(1000)
        await seen.planner.visit("first report")
        await seen.work(1000)
        await seen.planner.visit("second report")
    assert [turn for turn, _ in seen.turns] == ["1", "k1", "2", "3"]
    assert len(seen.notes.ends) == 4


async def test_a_ping_that_reads_at_least_half_of_the_prompt_has_not_missed(tmp_path: Path) -> None:
    async with scene(tmp_path, DELEGATE, pong(read=2500, uncached=2500), pong(), APPROVE) as seen:
        await seen.planner.visit("do it")
        await seen.work(600)
        await seen.planner.visit("the worker reports")
    assert [turn for turn, _ in seen.turns] == ["1", "k1", "k2", "2"]


async def test_a_ping_under_way_goes_on_beside_the_role_that_is_back(tmp_path: Path) -> None:
    async with scene(tmp_path, DELEGATE, pong(seconds=50), DELEGATE, pong(), APPROVE) as seen:
        await seen.planner.visit("do it")
        await seen.work(290)
        await seen.planner.visit("first report")
        await seen.work(300)
        await seen.planner.visit("second report")
    # The next wait counts from the role's own request at 293, not from the ping at 280.
    assert seen.turns == [("1", 0), ("k1", 280), ("2", 293), ("k2", 573), ("3", 596)]
    assert {end.outcome for end in seen.notes.ends} == {"complete"}


async def test_a_ping_under_way_when_the_trial_ends_is_waited_for_and_none_begins(tmp_path: Path) -> None:
    async with scene(tmp_path, DELEGATE, pong(seconds=50)) as seen:
        await seen.planner.visit("do it")
        await seen.work(290)
    assert [(end.key, end.outcome) for end in seen.notes.ends][1:] == [("t1/1/planner-0/k1/1", "complete")]
    assert seen.clock.now() == EPOCH + timedelta(seconds=330)


async def test_the_end_of_the_trial_is_not_put_off_to_the_next_ping(tmp_path: Path) -> None:
    async with scene(tmp_path, DELEGATE) as seen:
        await seen.planner.visit("do it")
        await seen.work(100)
    assert seen.clock.now() == EPOCH + timedelta(seconds=103)
    assert len(seen.notes.calls) == 1


async def test_no_ping_is_sent_after_the_deadline(tmp_path: Path) -> None:
    async with scene(tmp_path, DELEGATE, pong(), deadline=EPOCH + timedelta(seconds=500)) as seen:
        await seen.planner.visit("do it")
        await seen.work(900)
        with pytest.raises(VisitEnded, match="agent_timeout"):
            await seen.planner.visit("the worker reports")
    assert [turn for turn, _ in seen.turns] == ["1", "k1"]


async def test_an_answer_that_outlasted_its_cache_entry_is_not_followed_by_a_ping(tmp_path: Path) -> None:
    slow = Script(anthropic_pieces(*DELEGATE), headers={"x-fullchain-time": "first=1;end=301;tool=0"})
    async with scene(tmp_path, slow, APPROVE) as seen:
        await seen.planner.visit("do it")
        await seen.work(900)
        await seen.planner.visit("the worker reports")
    assert [turn for turn, _ in seen.turns] == ["1", "2"]


async def test_a_lane_that_was_left_is_pinged_no_more_and_a_new_one_knows_nothing_of_it(tmp_path: Path) -> None:
    async with scene(tmp_path, DELEGATE, pong(), DELEGATE, pong(), APPROVE) as seen:
        await seen.planner.visit("do it")
        await seen.work(300)
        await seen.planner.visit("look at this", anew=True)
        await seen.work(300)
        await seen.planner.visit("and again")
    calls = [(call.lane, call.turn, call.blocks) for call in seen.notes.calls]
    assert calls == [
        ("planner-0", "1", 2),
        ("planner-0", "k1", 2),
        ("planner-1", "2", 2),
        ("planner-1", "k2", 2),
        ("planner-1", "3", 4),
    ]
    second = seen.provider.received[2].json["messages"]
    assert [message["role"] for message in second] == ["user"]
    assert second[0]["content"][0]["text"] == "look at this"
    heads = [(lane, idx) for lane, _, idx, role, *_ in seen.notes.messages if role == "system"]
    assert heads == [("planner-0", 0), ("planner-1", 0)]
    assert len(seen.notes.roles) == 1


async def test_spending_that_is_stopped_stops_pings_and_what_breaks_in_one_comes_out_at_the_end(
    tmp_path: Path,
) -> None:
    class Stopped(Notes):
        async def sent(self, call: CallSent) -> None:
            if call.turn == "k1":
                raise SpendingStopped("the budget is used up")
            await super().sent(call)

    class Broken(Notes):
        async def sent(self, call: CallSent) -> None:
            if call.turn == "k1":
                raise RuntimeError("the journal is gone")
            await super().sent(call)

    async with scene(tmp_path, DELEGATE, notes=Stopped()) as seen:
        await seen.planner.visit("do it")
        await seen.work(900)
    assert [turn for turn, _ in seen.turns] == ["1"]

    async def broken() -> None:
        async with scene(tmp_path, DELEGATE, notes=Broken()) as seen:
            await seen.planner.visit("do it")
            await seen.work(900)

    with pytest.raises(RuntimeError, match="the journal is gone"):
        await broken()


async def test_a_cancelled_trial_cuts_its_pings_off_and_leaves_no_task(tmp_path: Path) -> None:
    before, notes = asyncio.all_tasks(), Notes()

    async def cancelled() -> None:
        async with scene(tmp_path, DELEGATE, pong(seconds=500), notes=notes) as seen:
            await seen.planner.visit("do it")
            await seen.work(300)
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await cancelled()
    assert [end.outcome for end in notes.ends] == ["complete", "cancelled"]
    assert asyncio.all_tasks() == before


async def test_on_the_machines_clock_pings_come_in_real_time(tmp_path: Path) -> None:
    provider, notes = Provider(Script(anthropic_pieces(*DELEGATE)), pong(seconds=0)), Notes()
    async with open_http(simulator=provider.app) as http, Background.open() as background:
        limits = Limits(20, command_timeout_s=10, max_output_tokens=1000, deadline=None)
        seat = Seat("t1", 1, NONCE, WallClock(), notes, notes, BareShell(str(tmp_path)), limits, http, background)
        model = RoleModel(entry(ALL["anthropic"]), keep_alive=KeepAlive(0.1, most=1))
        await hire([PLANNER], {"planner": model}, seat, prompt_of=str)["planner"].visit("do it")
        async with asyncio.timeout(60):
            # Notes have no event to wait for.
            while len(notes.ends) < 2:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        await background.rest()
    assert notes.calls[1].requested_at - notes.calls[0].requested_at >= timedelta(seconds=0.1)


KEPT = """\
  - name: alone
    topology: solo
    roles: {{solo: {{model: {model}, keep_alive: {keep_alive}}}}}
"""


@pytest.mark.parametrize(
    ("model", "keep_alive", "message"),
    [
        (
            "sim-claude-opus-5-5",
            "{every_s: 300}",
            "keep_alive.every_s: pings every 300 s come too late for entries that",
        ),
        ("sim-claude-opus-5-5", "{every_s: 0}", "keep_alive.every_s:"),
        ("sim-claude-opus-5-5", "{every_s: 200, most: 0}", "keep_alive.most:"),
        ("sim-claude-opus-5-5", "{most: 3}", "keep_alive.every_s:"),
        ("sim-claude-opus-5-5", "{every_s: 200, at_most: 3}", "at_most"),
        ("sim-claude-opus-5-5", "200", "keep_alive:"),
    ],
)
def test_what_cannot_be_kept_alive_is_refused_in_one_line(
    model: str, keep_alive: str, message: str, tmp_path: Path
) -> None:
    path = write_spec(tmp_path, KEPT.format(model=model, keep_alive=keep_alive))
    with pytest.raises(SpecError) as refused:
        load(path)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


OWN = """\
models:
  {name}:
    provider: own
    protocol: anthropic_messages
    model: m
    base_url: http://127.0.0.1:1
    self_hosted: true
    cache: {cache}
    extra_body: {body}
    limits: {{max_output_tokens: 9000, context_tokens: 100000}}
"""


@pytest.mark.parametrize(
    ("cache", "body", "message"),
    [
        ("none", "{}", "has no cache that pings could keep alive"),
        ("anthropic-1024", "{thinking: {type: enabled, budget_tokens: 2000}}", "sets thinking.budget_tokens"),
    ],
)
def test_a_model_that_cannot_be_pinged_is_refused(cache: str, body: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "models.yaml").write_text(OWN.format(name="own", cache=cache, body=body))
    path = write_spec(tmp_path, KEPT.format(model="own", keep_alive="{every_s: 200}"), more="models: [models.yaml]\n")
    with pytest.raises(SpecError, match=message):
        load(path)


def test_pings_are_part_of_an_arms_identity_only_where_they_are_asked_for(tmp_path: Path) -> None:
    def parts(model: str) -> object:
        arms = f"  - {{name: alone, topology: solo, roles: {{solo: {model}}}}}\n"
        return load(write_spec(tmp_path, arms)).plan().arms[0].parts["roles"]

    bare = parts("sim-claude-opus-5-5")
    kept = parts("{model: sim-claude-opus-5-5, keep_alive: {every_s: 200}}")
    assert "keep_alive" not in str(bare)
    assert kept["solo"]["keep_alive"] == {"every_s": 200, "most": None}  # type: ignore[index]  # a tree of JSON
    assert kept != bare
