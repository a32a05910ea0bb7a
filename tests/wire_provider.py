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

from agents.clients import ClientOptions
from agents.clock import Clock, VirtualClock
from agents.context import Rewrite
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
        paths = ("/v1/messages", "/v1/chat/completions", "/v1/responses")
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
    ended_visits: list[tuple[str, str, datetime, str | None]] = field(default_factory=list)
    rewrites: list[Rewrite] = field(default_factory=list)

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

    def rewrite(self, rewrite: Rewrite) -> None:
        self.rewrites.append(rewrite)

    def command(
        self,
        lane: str,
        turn: int,
        command: str,
        exit_code: int | None,
        output: str,
        size: int,
        timed_out: bool,
        started_at: datetime,
        ended_at: datetime,
        refused: str | None = None,
    ) -> None:
        row = {"turn": turn, "command": command, "exit_code": exit_code, "started_at": started_at, "ended_at": ended_at}
        self.commands.append(row if refused is None else {**row, "refused": refused})

    def span(self, kind: str, lane: str, name: str, started_at: datetime, ended_at: datetime) -> None:
        self.spans.append((kind, lane, name, started_at, ended_at))

    def handover(self, from_role: str, handover: Handover, at: datetime, call: str = "") -> None:
        self.handovers.append((from_role, handover, at))

    def visit_ended(self, role: str, ended_by: str, at: datetime, call: str | None) -> None:
        self.ended_visits.append((role, ended_by, at, call))


class BareShell:
    """A real bash in a folder of the test's own, without isolation: for commands that the tests write themselves."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    async def run(self, command: str, *, timeout_s: float, keep: bool = True) -> Output:
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


def options(**more: Any) -> ClientOptions:
    return ClientOptions(**{"max_output_tokens": 1000, "cache_key": f"{NONCE}-solo", **more})


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
    server = uvicorn.Server(uvicorn.Config(app, log_level="critical", lifespan="off", ws="none", timeout_keep_alive=75))
    task = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        async with asyncio.timeout(60):
            # The server has no event to wait for.
            while not server.started:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = server.force_exit = True
        await asyncio.wait([task], timeout=10)
        listener.close()
