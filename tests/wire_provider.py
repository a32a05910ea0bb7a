"""A provider for wire tests, which answers from a script and keeps every request; and books to write into."""

import asyncio
import contextlib
import socket
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import orjson
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from agents.clock import Clock, VirtualClock
from agents.handover import Handover
from agents.registry import ModelEntry, find_model, load_models
from agents.transport.call import CallIdentity, CurrentCall
from cost_model.calls import Book, CallEnded, CallSent
from harbor_tasks.sandbox import Output

EPOCH = datetime(2026, 3, 1, 12, tzinfo=UTC)
NONCE = "0123456789abcdef"


@dataclass
class Script:
    """One answer: SSE pieces, or `body`; `cut_after` breaks the stream after so many pieces, `stall` hangs there."""

    pieces: Sequence[bytes] = ()
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    cut_after: int | None = None
    stall: bool = False


@dataclass(frozen=True)
class Received:
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return orjson.loads(self.body)


class Provider:
    """Answers with its scripts in order; asking for more is an error of the test."""

    def __init__(self, *scripts: Script) -> None:
        self.scripts = deque(scripts)
        self.received: list[Received] = []
        self.stalled = asyncio.Event()
        paths = ("/v1/messages", "/v1/chat/completions")
        self.app = Starlette(routes=[Route(path, self._answer, methods=["POST"]) for path in paths])

    async def _answer(self, request: Request) -> Response:
        self.received.append(Received(request.url.path, dict(request.headers), await request.body()))
        script = self.scripts.popleft()
        if script.body is not None:
            headers = {"content-type": "application/json", **script.headers}
            return Response(script.body, script.status, headers)
        return StreamingResponse(
            self._stream(script), script.status, dict(script.headers), media_type="text/event-stream"
        )

    async def _stream(self, script: Script) -> AsyncIterator[bytes]:
        for index, piece in enumerate(script.pieces):
            if index == script.cut_after:
                if script.stall:
                    self.stalled.set()
                    await asyncio.sleep(60)
                raise ConnectionResetError("cut by the script")
            yield piece


def sse(event: Mapping[str, object]) -> bytes:
    kind = event.get("type")
    name = b"" if kind is None else b"event: " + str(kind).encode() + b"\n"
    return name + b"data: " + orjson.dumps(event) + b"\n\n"


def halves(text: str) -> tuple[str, str]:
    middle = len(text) // 2
    return text[:middle], text[middle:]


ANTHROPIC_USAGE = {
    "input_tokens": 12,
    "cache_creation_input_tokens": 300,
    "cache_read_input_tokens": 5000,
    "cache_creation": {"ephemeral_5m_input_tokens": 300, "ephemeral_1h_input_tokens": 0},
    "output_tokens": 1,
    "service_tier": "standard",
}


def anthropic_pieces(
    text: str = "", calls: Sequence[tuple[str, str, str]] = (), stop_reason: str | None = None
) -> list[bytes]:
    """`calls` are (id, name, arguments as JSON text); arguments come in two fragments."""
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "wire-model", "content": []}
    events: list[Mapping[str, object]] = [
        {"type": "message_start", "message": {**message, "stop_reason": None, "usage": ANTHROPIC_USAGE}},
        {"type": "ping"},
        {"type": "an_event_from_the_future", "index": 0},
    ]
    blocks: list[tuple[dict[str, object], list[dict[str, object]]]] = []
    if text:
        deltas: list[dict[str, object]] = [{"type": "text_delta", "text": part} for part in halves(text)]
        blocks.append(({"type": "text", "text": ""}, deltas))
    for call_id, name, arguments in calls:
        deltas = [{"type": "input_json_delta", "partial_json": part} for part in halves(arguments)]
        blocks.append(({"type": "tool_use", "id": call_id, "name": name, "input": {}}, deltas))
    for index, (block, deltas) in enumerate(blocks):
        events.append({"type": "content_block_start", "index": index, "content_block": block})
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": index})
    reason = stop_reason or ("tool_use" if calls else "end_turn")
    delta = {"stop_reason": reason, "stop_sequence": None}
    events.append({"type": "message_delta", "delta": delta, "usage": {"output_tokens": 80}})
    events.append({"type": "message_stop"})
    return [sse(event) for event in events]


OPENAI_USAGE = {
    "prompt_tokens": 5312,
    "completion_tokens": 80,
    "total_tokens": 5392,
    "prompt_tokens_details": {"cached_tokens": 5000, "audio_tokens": None},
}


def openai_pieces(
    text: str = "", calls: Sequence[tuple[str, str, str]] = (), finish_reason: str | None = None
) -> list[bytes]:
    """Parallel calls come interleaved: first halves of all arguments, then second halves."""
    base = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "wire-model"}

    def chunk(delta: object, reason: str | None = None) -> dict[str, object]:
        return {**base, "choices": [{"index": 0, "delta": delta, "finish_reason": reason}], "usage": None}

    events = [chunk({"role": "assistant", "content": None})]
    events += [chunk({"content": part}) for part in halves(text) if part]
    for index, (call_id, name, arguments) in enumerate(calls):
        function = {"name": name, "arguments": halves(arguments)[0]}
        events.append(
            chunk({"tool_calls": [{"index": index, "id": call_id, "type": "function", "function": function}]})
        )
    for index, (_, _, arguments) in enumerate(calls):
        events.append(chunk({"tool_calls": [{"index": index, "function": {"arguments": halves(arguments)[1]}}]}))
    events.append(chunk({}, finish_reason or ("tool_calls" if calls else "stop")))
    events.append({**base, "choices": [], "usage": OPENAI_USAGE})
    return [*(sse(event) for event in events), b"data: [DONE]\n\n"]


@dataclass
class Notes:
    """A book and a record in memory."""

    log: list[str] = field(default_factory=list)
    calls: list[CallSent] = field(default_factory=list)
    ends: list[CallEnded] = field(default_factory=list)
    validity: dict[str, bool] = field(default_factory=dict)
    roles: list[tuple[str, str, str, str, Sequence[object]]] = field(default_factory=list)
    messages: list[tuple[str, int, int, str, object, str, int]] = field(default_factory=list)
    commands: list[dict[str, object]] = field(default_factory=list)
    spans: list[tuple[str, str, str, datetime, datetime]] = field(default_factory=list)
    handovers: list[tuple[str, Handover, datetime]] = field(default_factory=list)

    async def sent(self, call: CallSent) -> None:
        await asyncio.sleep(0)
        self.log.append(f"sent {call.key}")
        self.calls.append(call)

    def ended(self, call: CallEnded) -> None:
        self.log.append(f"{call.outcome} {call.key}")
        self.ends.append(call)

    def judged(self, key: str, tool_calls_valid: bool) -> None:
        self.validity[key] = tool_calls_valid

    def role(self, role: str, lane: str, model: str, prompt: str, tools: Sequence[object]) -> None:
        self.roles.append((role, lane, model, prompt, tools))

    def message(self, lane: str, version: int, idx: int, role: str, content: object, hash: str, size: int) -> None:
        self.messages.append((lane, version, idx, role, content, hash, size))

    def command(
        self,
        lane: str,
        turn: int,
        command: str,
        exit_code: int,
        output: str,
        size: int,
        timed_out: bool,
        started_at: datetime,
        ended_at: datetime,
    ) -> None:
        self.commands.append(
            {"turn": turn, "command": command, "exit_code": exit_code, "started_at": started_at, "ended_at": ended_at}
        )

    def span(self, kind: str, lane: str, name: str, started_at: datetime, ended_at: datetime) -> None:
        self.spans.append((kind, lane, name, started_at, ended_at))

    def handover(self, from_role: str, handover: Handover, at: datetime) -> None:
        self.handovers.append((from_role, handover, at))


class BareShell:
    """A real bash in a folder of the test's own, without isolation: for commands that the tests write themselves."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    async def run(self, command: str, *, timeout_s: float) -> Output:
        process = await asyncio.create_subprocess_exec(
            "bash", "-c", command, cwd=self.folder, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        printed, _ = await asyncio.wait_for(process.communicate(), timeout_s)
        return Output(process.returncode or 0, printed.decode(errors="replace"), len(printed), False, 0.0)

    async def close(self) -> None:
        pass


def entry(name: str, **changes: object) -> ModelEntry:
    """A shipped model, changed where the test needs it."""
    return find_model(load_models(), name).model_copy(update=changes)


def identity(model: ModelEntry, *, turn: str = "1", lane: str = "solo-0", blocks: int = 2) -> CallIdentity:
    return CallIdentity(
        trial_id="t1",
        attempt=1,
        role="solo",
        lane=lane,
        version=0,
        turn=turn,
        model=model.name,
        wire_model=model.model,
        provider=model.provider,
        flavour=model.protocol,
        lifetime=None,
        blocks=blocks,
        max_output_tokens=1000,
        simulated=model.simulated,
    )


def current_call(model: ModelEntry, book: Book, clock: Clock | None = None, turn: str = "1") -> CurrentCall:
    return CurrentCall(identity(model, turn=turn), clock or VirtualClock(EPOCH), book)


@contextlib.asynccontextmanager
async def served(app: Starlette) -> AsyncIterator[str]:
    """The app behind real HTTP on loopback; yields its address."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="critical", lifespan="off", ws="none"))
    task = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        async with asyncio.timeout(10):
            # The server has no event to wait for.
            while not server.started:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = server.force_exit = True
        await asyncio.wait([task], timeout=10)
        listener.close()
