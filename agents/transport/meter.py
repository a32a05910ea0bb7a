"""Books every HTTP request below the SDKs, so that no retry and no cut stream escapes.

A request is on disk before its first byte leaves; its end is booked exactly once, when the answer is closed, whatever
happened. What the meter does not know: prices, prompts, and why a request was made.
"""

import asyncio
import sys
from collections.abc import Mapping
from datetime import datetime

import httpx2  # noqa: TID253  (this module is loaded by open_http alone)
import orjson

from agents.errors import DeadlinePassed, TryFailed
from agents.transport.answer_reader import LINE_LIMIT, AnswerReader
from agents.transport.body import Body, Continued, body_of
from agents.transport.call import CALL, CurrentCall
from agents.wire_text import hidden, holds, one_line, without
from cost_model.calls import CallEnded, Outcome, SpendingStopped

ANSWER_LIMIT = 64 << 20
"""Bytes of one answer, after which it is cut: a hostile server can fill neither our memory nor an SDK's."""

_NAME_CHARACTERS = 200

_NEVER_ARRIVED = (
    httpx2.ConnectError,
    httpx2.ConnectTimeout,
    httpx2.PoolTimeout,
    httpx2.ProxyError,
    httpx2.UnsupportedProtocol,
    httpx2.LocalProtocolError,
    TryFailed,
)
_GAVE_UP = (asyncio.CancelledError, DeadlinePassed)


class Meter(httpx2.AsyncBaseTransport):
    """Books with `CALL`'s book and clock. Raises RuntimeError for a request that no call stands behind."""

    def __init__(self, inner: httpx2.AsyncBaseTransport) -> None:
        self._inner = inner

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        call = CALL.get(None)
        if call is None:
            raise RuntimeError(f"a request to {request.url.host} outside a call cannot be booked")
        # A compressed answer cannot be read as it passes.
        request.headers["accept-encoding"] = "identity"
        sent = call.next_try(int(request.headers.get("content-length", 0)), call.clock.now())
        booking = _Booking(call, sent.key, request)
        try:
            await call.book.sent(sent)
        except SpendingStopped as error:
            # Nothing was recorded and nothing is sent.
            call.failure = error
            raise
        except _GAVE_UP:
            booking.end("cancelled")
            raise
        except Exception as error:
            call.failure = error
            booking.end("cut", _told(error))
            raise
        try:
            response = await self._inner.handle_async_request(request)
        except _GAVE_UP:
            booking.end("cancelled")
            raise
        except Exception as error:
            if not isinstance(error, httpx2.TransportError):
                call.failure = error
            # A request that did arrive may be billed though its answer never began.
            booking.end("refused" if isinstance(error, _NEVER_ARRIVED) else "cut", _told(error))
            raise
        return booking.follow(response)


class _Booking:
    """One request's record, from `sent` to `ended`."""

    def __init__(self, call: CurrentCall, key: str, request: httpx2.Request) -> None:
        self._call, self._key, self._request = call, key, request
        self._response: httpx2.Response | None = None
        self._reader: AnswerReader | None = None
        self._first_token_at: datetime | None = None
        self._ended = False

    def follow(self, response: httpx2.Response) -> httpx2.Response:
        # Streams are all that is ever asked for: the SDKs read an answer as one whatever its type is called.
        kind = response.headers.get("content-type", "").lower()
        streamed = response.is_success and not kind.startswith("application/json")
        self._response, self._reader = response, AnswerReader(streamed=streamed)
        if "content-encoding" not in response.headers:
            response.stream = _Booked(body_of(response.stream), self, self._reader)
            return response
        # Compressed although identity was asked for: what it holds is handed on.
        kept = [(k, v) for k, v in response.headers.multi_items() if k not in ("content-encoding", "content-length")]
        stream = _Booked(Continued(response.aiter_bytes(), response), self, self._reader)
        return httpx2.Response(response.status_code, headers=kept, stream=stream, extensions=response.extensions)

    def begun(self) -> None:
        if self._first_token_at is None:
            self._first_token_at = self._call.clock.now()

    def end(self, fate: Outcome, error: str | None = None) -> None:
        """`fate` is how the transfer ended; what the answer itself said goes before it."""
        if self._ended:
            return
        self._ended = True
        response, reader = self._response, self._reader
        outcome = fate
        if response is not None and reader is not None:
            if not response.is_success:
                outcome, error = "refused", reader.error or reader.head_text() or response.reason_phrase
            elif reader.error is not None:
                outcome, error = "cut", reader.error
            elif reader.terminal:
                outcome, error = "complete", None
        keys = _keys_of(self._request)
        told = self._call.error = None if error is None else one_line(error, keys)
        usage = self._call.usage = None if reader is None else _kept_usage(reader.usage, keys)
        self._call.book.ended(
            CallEnded(
                key=self._key,
                outcome=outcome,
                status=None if response is None else response.status_code,
                first_token_at=self._first_token_at if response is not None and response.is_success else None,
                ended_at=self._call.clock.now(),
                usage=usage,
                response_id=None if reader is None else _name(reader.response_id, keys),
                response_model=None if reader is None else _name(reader.response_model, keys),
                request_id=None if response is None else _name(_request_id(response), keys),
                finish_reason=None if reader is None else _name(reader.finish_reason, keys),
                error=told,
            )
        )


class _Booked(Body):
    """An answer's body on its way to the SDK."""

    def __init__(self, inner: Body, booking: _Booking, reader: AnswerReader) -> None:
        self._inner, self._booking, self._reader = inner, booking, reader
        self._size = 0
        # Closed by us before its end, unless something else is learned.
        self._fate: Outcome = "cancelled"
        self._error: str | None = None

    async def __anext__(self) -> bytes:
        try:
            chunk = await self._inner.__anext__()
            self._size += len(chunk)
            if self._size > ANSWER_LIMIT:
                raise httpx2.ReadError(f"the answer is longer than {ANSWER_LIMIT >> 20} MiB")
        except StopAsyncIteration:
            self._reader.finish()
            self._fate, self._error = "cut", "the answer ended before its terminal event"
            raise
        except _GAVE_UP:
            raise
        except Exception as error:
            self._fate, self._error = "cut", _told(error)
            raise
        self._booking.begun()
        self._reader.feed(chunk)
        if self._reader.endless_line:
            # An SDK takes a minute of CPU for a line of 64 MiB.
            self._fate, self._error = "cut", f"a line of the answer is longer than {LINE_LIMIT >> 20} MiB"
            raise httpx2.ReadError(self._error)
        return chunk

    async def aclose(self) -> None:
        reason = sys.exc_info()[1]
        if self._fate == "cancelled" and isinstance(reason, Exception) and not isinstance(reason, _GAVE_UP):
            # Whoever reads the answer could make nothing of it, and closes it for that.
            self._fate, self._error = "cut", _told(reason)
        try:
            await self._inner.aclose()
        finally:
            self._booking.end(self._fate, self._error)


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _request_id(response: httpx2.Response) -> str | None:
    return response.headers.get("request-id") or response.headers.get("x-request-id")


def _name(told: str | None, keys: tuple[str, ...]) -> str | None:
    """A name that a server gave: without our key, should it have been echoed."""
    return hidden(told, keys)[:_NAME_CHARACTERS] if told else None


def _kept_usage(usage: Mapping[str, object] | None, keys: tuple[str, ...]) -> Mapping[str, object] | None:
    if usage is None:
        return None
    try:
        as_it_is = not holds(orjson.dumps(usage), keys)
    except orjson.JSONEncodeError:
        # Too deep for any JSON that is written here.
        as_it_is = False
    kept: Mapping[str, object] = usage if as_it_is else without(usage, keys)
    return kept


def _keys_of(request: httpx2.Request) -> tuple[str, ...]:
    authorization = request.headers.get("authorization", "")
    return (request.headers.get("x-api-key", ""), authorization.removeprefix("Bearer "))
