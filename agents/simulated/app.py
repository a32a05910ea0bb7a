"""The simulated provider as an ASGI app: POST /v1/messages, /v1/chat/completions and /v1/responses, GET /v1/models.

Time crosses the wire in headers. A request may say what time it is (`x-fullchain-time`, ISO-8601 UTC); the answer then
says in the same header how long it took, and whoever keeps the clock does the waiting. Without it the wall clock is
used and answers take no time. `x-fullchain-call` names the call in the simulator's bill.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from starlette.applications import Starlette  # noqa: TID253 - imported only when something is simulated
from starlette.requests import ClientDisconnect, Request  # noqa: TID253
from starlette.responses import Response  # noqa: TID253
from starlette.routing import Route  # noqa: TID253

from agents.simulated import anthropic_answer, openai_answer, responses_answer
from agents.simulated.bill import Bill, Item
from agents.simulated.catalogue import Catalogue
from agents.simulated.errors import Refused
from agents.simulated.persona import Protocol, load_personas
from agents.simulated.prompt_chain import fingerprint
from agents.simulated.provider import Provider, Served, Timing

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from harbor_tasks.format import Task

TIME_HEADER = "x-fullchain-time"
CALL_HEADER = "x-fullchain-call"
MAX_BODY_BYTES = 32 << 20

_MADE = datetime(2026, 1, 1, tzinfo=UTC)


def simulated_provider(
    *, tasks: Sequence["Task"], seed: int = 0, bill: Path | None = None, personas: Path | None = None
) -> "ASGIApp":
    """The app. Its personas can play `tasks`; `personas` adds a file or directory of them to the shipped ones.

    With `bill`, each request appends one JSON line to that file. Raises SimulatorError on a wrong persona file, a
    script that cannot be played, or a bill that cannot be written.
    """
    provider = Provider(load_personas(personas), Catalogue(tasks), seed)
    front = _Front(provider, None if bill is None else Bill(bill))
    return Starlette(
        routes=[
            Route("/v1/messages", front.messages, methods=["POST"]),
            Route("/v1/chat/completions", front.chat_completions, methods=["POST"]),
            Route("/v1/responses", front.responses, methods=["POST"]),
            Route("/v1/models", front.models, methods=["GET"]),
        ]
    )


class _Chunks(Response):
    """A body in chunks that are all at hand: no task group, no iterator thread."""

    def __init__(self, chunks: Iterable[bytes], status: int, headers: dict[str, str]) -> None:
        self.chunks = chunks
        self.status_code = status
        self.background = None
        self.body = b""
        self.raw_headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        for chunk in self.chunks:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


class _Front:
    """HTTP on one side, the provider on the other."""

    def __init__(self, provider: Provider, bill: Bill | None) -> None:
        self._provider = provider
        self._bill = bill

    async def messages(self, request: Request) -> Response:
        return await self._answer("anthropic_messages", request)

    async def chat_completions(self, request: Request) -> Response:
        return await self._answer("openai_chat", request)

    async def responses(self, request: Request) -> Response:
        return await self._answer("openai_responses", request)

    async def models(self, request: Request) -> Response:
        protocol: Protocol = "anthropic_messages" if "anthropic-version" in request.headers else "openai_chat"
        try:
            _key(protocol, request)
        except Refused as refused:
            return _refusal(protocol, refused, fingerprint(("models",)))
        ids = self._provider.models(protocol)
        if protocol == "anthropic_messages":
            body = anthropic_answer.models(ids, _MADE.isoformat().replace("+00:00", "Z"))
        else:
            body = openai_answer.models(ids, int(_MADE.timestamp()))
        return _whole(body)

    async def _answer(self, protocol: Protocol, request: Request) -> Response:
        at, call = datetime.now(UTC), request.headers.get(CALL_HEADER, "")[:512] or None
        body = b""
        try:
            sent_at = _time(request)
            at = sent_at or at
            key = _key(protocol, request)
            body = await _body(request)
            served = self._provider.serve(protocol, key, body, at, timed=sent_at is not None)
        except Refused as refused:
            if self._bill is not None:
                error = f"{refused.kind}: {refused.message}"
                self._bill.add(Item(call, None, None, at, refused.status, error=error))
            return _refusal(protocol, refused, fingerprint((call or "", body)))
        chunks, response_id, streamed = _shape(protocol, served, at)
        if self._bill is not None:
            model = served.persona.model
            self._bill.add(Item(call, response_id, model, at, 200, served.tokens, served.usd))
        headers = {TIME_HEADER: served.timing.header(), **_request_id(protocol, served.emission.id)}
        if not streamed:
            return _whole(b"".join(chunks), headers)
        return _Chunks(chunks, 200, {"content-type": "text/event-stream; charset=utf-8", **headers})


def _shape(protocol: Protocol, served: Served, at: datetime) -> tuple[Iterable[bytes], str, bool]:
    """The body's chunks, the response id in them, and whether they are a stream."""
    model, emission, document = served.persona.model, served.emission, served.document
    streamed = bool(document.get("stream"))
    if protocol == "anthropic_messages":
        if streamed:
            return anthropic_answer.stream(emission, model, served.split), f"msg_sim_{emission.id}", True
        return [anthropic_answer.whole(emission, model, served.split)], f"msg_sim_{emission.id}", False
    created = int(at.timestamp())
    if protocol == "openai_responses":
        implicit, lifetime = served.caching or (True, "")
        answering = responses_answer.Answering(
            emission, model, document, served.split, created, implicit=implicit, lifetime=lifetime
        )
        chunks = responses_answer.stream(answering) if streamed else [responses_answer.whole(answering)]
        return chunks, f"resp_sim_{emission.id}", streamed
    totals = openai_answer.usage(served.split, emission, served.persona.shape)
    thought = openai_answer.shown(emission, served.persona.shape)
    if streamed:
        options = document.get("stream_options")
        wanted = isinstance(options, dict) and bool(options.get("include_usage"))
        chunks = openai_answer.stream(emission, model, created, totals if wanted else None, thought)
        return chunks, f"chatcmpl-sim-{emission.id}", True
    return [openai_answer.whole(emission, model, created, totals, thought)], f"chatcmpl-sim-{emission.id}", False


def _time(request: Request) -> datetime | None:
    """The time that the request says it is; None without the header."""
    text = request.headers.get(TIME_HEADER)
    if text is None:
        return None
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        at = None
    if at is None or at.tzinfo is None:
        raise Refused(
            f"{TIME_HEADER}: expected an ISO-8601 time with its zone, such as 2026-01-01T00:00:00.000000+00:00"
        )
    return at.astimezone(UTC)


def _key(protocol: Protocol, request: Request) -> str:
    """The API key, any but an empty one. Raises Refused (401, and 400 without Anthropic's version header)."""
    scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
    bearer = bearer.strip() if scheme.lower() == "bearer" else ""
    if protocol == "anthropic_messages":
        key = request.headers.get("x-api-key", "").strip() or bearer
        if not key:
            raise Refused("x-api-key header is required", status=401, kind="authentication_error")
        if not request.headers.get("anthropic-version"):
            raise Refused("anthropic-version: header is required")
        return key
    if not bearer:
        raise Refused(
            "You didn't provide an API key. You need to provide your API key in an Authorization header using Bearer "
            "auth (i.e. Authorization: Bearer YOUR_KEY).",
            status=401,
        )
    return bearer


async def _body(request: Request) -> bytes:
    too_large = Refused("Request exceeds the maximum size", status=413, kind="request_too_large")
    declared = request.headers.get("content-length", "0")
    if declared.isdecimal() and int(declared) > MAX_BODY_BYTES:
        raise too_large
    chunks: list[bytes] = []
    size = 0
    try:
        async for chunk in request.stream():
            size += len(chunk)
            if size > MAX_BODY_BYTES:
                raise too_large
            chunks.append(chunk)
    except ClientDisconnect:
        raise Refused("The client went away before the request was complete.") from None
    return b"".join(chunks)


def _refusal(protocol: Protocol, refused: Refused, name: str) -> Response:
    request_id = _request_id(protocol, name)
    if protocol == "anthropic_messages":
        body = anthropic_answer.error(refused, *request_id.values())
    else:
        body = openai_answer.error(refused)
    return _whole(body, {TIME_HEADER: Timing().header(), **request_id}, refused.status)


def _request_id(protocol: Protocol, name: str) -> dict[str, str]:
    return {"request-id" if protocol == "anthropic_messages" else "x-request-id": f"req_sim_{name[:24]}"}


def _whole(body: bytes, headers: dict[str, str] | None = None, status: int = 200) -> Response:
    return Response(body, status, headers, "application/json")
