"""A role with a context policy, played over the wire against answers that a test draws, and what it sent."""

import re
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from agents.clock import VirtualClock
from agents.context import ContextPolicy
from agents.crew import Limits, RoleModel, Seat, hire
from agents.handover import HandoverTool, RoleDesign
from agents.role import Role
from agents.transport import open_http
from cost_model.calls import CallSent
from harbor_tasks.sandbox import Output
from tests.wire_answers import PIECES
from tests.wire_provider import EPOCH, NONCE, Notes, Provider, Received, entry

OVERLAYS = re.compile(rb',"(?:cache_control|prompt_cache_breakpoint)":\{[^{}]*\}')
ASKED = b"Your conversation is about to be compacted."
DESIGN = RoleDesign(
    "planner",
    "planner",
    (
        HandoverTool("delegate", "worker", "Hands work to the worker.", "brief", "What to do."),
        HandoverTool("approve", None, "Ends the work.", "summary", "What was done."),
    ),
)
MODELS = {
    "anthropic": entry("sim-claude-opus-5-5"),
    "chat": entry("sim-deepseek-v4-flash"),
    "chat-marks": entry(
        "openrouter-sonnet-5.5", provider="simulated", base_url="http://simulator.invalid/v1", key_variable=None
    ),
    "responses": entry("sim-gpt-6.1-sol"),
}

Said = tuple[str, Sequence[tuple[str, str]]]
"""An answer: its text, and the calls as (tool, text)."""

PARAMETERS = {"bash": "command", "delegate": "brief", "approve": "summary"}


class Printing:
    """A shell in which a command prints itself so often as its last word says."""

    async def run(self, command: str, *, timeout_s: float, keep: bool = False) -> Output:
        text = command * int(command.split()[-1])
        return Output(0, text, len(text), False, 0.0)

    async def close(self) -> None:
        pass


class Talker(Provider):
    """Says `answers` in turn, and `summaries` when it is asked for one; approves when it has no more to say."""

    def __init__(
        self, protocol: str, answers: Sequence[Said], summaries: Sequence[Said], *, keeps: bool = True
    ) -> None:
        super().__init__()
        self.protocol, self.keeps = protocol, keeps
        self.answers, self.summaries = deque(answers), deque(summaries)
        self.calls = 0

    async def _answer(self, request: Request) -> Response:
        body = await request.body()
        if self.keeps:
            self.received.append(Received(request.url.path, dict(request.headers), body))
        last = body.rpartition(b'"role":"user"')[2]
        if ASKED in last and self.summaries:
            text, calls = self.summaries.popleft()
        elif self.answers:
            text, calls = self.answers.popleft()
        else:
            text, calls = "", [("approve", "done")]
        named = []
        for tool, argument in calls:
            self.calls += 1
            named.append((f"c{self.calls}", tool, orjson.dumps({PARAMETERS[tool]: argument}).decode()))
        return StreamingResponse(iter(PIECES[self.protocol](text, named)), media_type="text/event-stream")


@dataclass
class Played:
    role: Role
    notes: Notes
    provider: Talker

    def prompts(self) -> list[tuple[CallSent, list[Any]]]:
        """Each call with the messages of its request, in order and without overlays."""
        return [
            (call, messages_of(OVERLAYS.sub(b"", received.body)))
            for call, received in zip(self.notes.calls, self.provider.received, strict=True)
        ]

    def recorded(self, call: CallSent) -> list[Any]:
        """The messages that the record has for a call: of each block the newest version up to the call's own."""
        newest: dict[int, Any] = {}
        for lane, version, idx, _, content, *_ in self.notes.messages:
            if lane == call.lane and version <= call.version and idx < call.blocks:
                newest[idx] = content
        assert sorted(newest) == list(range(call.blocks))
        flat: list[Any] = []
        for idx in range(1, call.blocks):
            content = newest[idx]
            flat += content["items"] if isinstance(content, Mapping) and "items" in content else [content]
        return flat


def messages_of(body: bytes) -> list[Any]:
    """What a request holds after the system text."""
    document = orjson.loads(body)
    messages = document.get("messages") or document["input"]
    return [message for message in messages if message.get("role") not in ("system", "developer")]


@dataclass
class Desk:
    """`visits` are the messages of the visits: the task, and then what is answered to each hand-over."""

    policy: ContextPolicy | None
    answers: Sequence[Said]
    summaries: Sequence[Said] = ()
    visits: Sequence[str] = ("do it", "the worker's report", "again")
    way: str = "anthropic"
    max_turns: int = 2000
    keeps: bool = True
    changes: Mapping[str, object] = field(default_factory=dict)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Played]:
        model = MODELS[self.way].model_copy(update=dict(self.changes))
        provider = Talker(model.protocol, self.answers, self.summaries, keeps=self.keeps)
        notes = Notes()
        async with open_http(simulator=provider.app) as http:
            limits = Limits(self.max_turns, command_timeout_s=10, max_output_tokens=1000, deadline=None)
            seat = Seat("t1", 1, NONCE, VirtualClock(EPOCH), notes, notes, Printing(), limits, http)
            models = {"planner": RoleModel(model, context=self.policy)}
            roles = hire([DESIGN], models, seat, prompt_of=lambda name: f"Your role: {name}.")
            yield Played(roles["planner"], notes, provider)

    async def play(self) -> Played:
        """All visits, until the role hands over for good."""
        async with self.open() as played:
            for message in self.visits:
                if (await played.role.visit(message)).to_role is None:
                    break
            return played
