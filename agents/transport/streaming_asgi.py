"""Reaches an ASGI app in-process and really streams.

The response is handed over when the app starts it, pieces follow as they come, an exception in the app is a cut stream,
and closing the response is a disconnect. (httpx2's own ASGI transport runs the app to its end before the first byte, so
that stalls, cuts and first-token times cannot be seen through it.)
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import httpx2  # noqa: TID253  (this module is loaded by open_http alone)

from agents.transport.body import Body

ASGIMessage = MutableMapping[str, Any]
ASGIApp = Callable[
    [ASGIMessage, Callable[[], Awaitable[ASGIMessage]], Callable[[ASGIMessage], Awaitable[None]]], Awaitable[None]
]

_NOTHING_TO_DRAIN = {"http_version": b"HTTP/2"}
"""No connection is kept that an SDK would have to read to its end before the next request."""

_QUEUED = 64
_WIND_UP_S = 10.0
_log = logging.getLogger(__name__)


class StreamingASGITransport(httpx2.AsyncBaseTransport):
    """Honours the read time-out of a request. An app that fails before it answers is a ConnectError."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        exchange = _Exchange(self._app, await request.aread(), _read_timeout(request))
        status, headers = await exchange.begin(_scope(request))
        return httpx2.Response(status, headers=headers, stream=exchange, extensions=_NOTHING_TO_DRAIN)


class _Exchange(Body):
    """One request to the app, run in a task of its own; also the body of its answer."""

    def __init__(self, app: ASGIApp, body: bytes, timeout_s: float | None) -> None:
        self._app, self._body, self._timeout_s = app, body, timeout_s
        self._pieces: asyncio.Queue[bytes | Exception | None] = asyncio.Queue(_QUEUED)
        self._started: asyncio.Future[tuple[int, list[tuple[bytes, bytes]]]] = (
            asyncio.get_running_loop().create_future()
        )
        self._gone = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._asked = self._whole = self._over = False

    async def begin(self, scope: ASGIMessage) -> tuple[int, list[tuple[bytes, bytes]]]:
        self._task = asyncio.create_task(self._run(scope))
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._started
        except TimeoutError:
            await self.aclose()
            raise httpx2.ReadTimeout("no answer in time") from None
        except BaseException:
            await self.aclose()
            raise

    async def __anext__(self) -> bytes:
        if self._over:
            raise StopAsyncIteration
        if self._pieces.empty():
            try:
                async with asyncio.timeout(self._timeout_s):
                    piece = await self._pieces.get()
            except TimeoutError:
                raise httpx2.ReadTimeout("the answer stalled") from None
        else:
            piece = self._pieces.get_nowait()
        if isinstance(piece, bytes):
            return piece
        self._over = True
        if piece is None:
            raise StopAsyncIteration
        raise piece

    async def aclose(self) -> None:
        self._gone.set()
        task, self._task = self._task, None
        if task is None or task.done():
            return
        if self._whole:
            # The app may still have work to finish, as it would behind a real server.
            while not self._pieces.empty():
                self._pieces.get_nowait()
        else:
            task.cancel()
        await asyncio.wait([task], timeout=_WIND_UP_S)

    async def _run(self, scope: ASGIMessage) -> None:
        try:
            await self._app(scope, self._receive, self._send)
            failure = None if self._whole else "the app ended before its answer did"
        except Exception as error:
            _log.error("the ASGI app failed", exc_info=error)
            failure = f"the app failed: {type(error).__name__}"
        if not self._started.done():
            self._started.set_exception(httpx2.ConnectError(failure or "the app gave no answer"))
        elif not self._whole:
            # The words of the real transport, so that both ways to a provider leave the same rows.
            await self._pieces.put(
                httpx2.RemoteProtocolError(
                    "peer closed connection without sending complete message body (incomplete chunked read)"
                )
            )

    async def _receive(self) -> ASGIMessage:
        if not self._asked:
            self._asked = True
            return {"type": "http.request", "body": self._body, "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: ASGIMessage) -> None:
        if message["type"] == "http.response.start":
            if not self._started.done():
                self._started.set_result((message["status"], list(message.get("headers", ()))))
        elif message["type"] == "http.response.body":
            if message.get("body"):
                await self._pieces.put(bytes(message["body"]))
            if not message.get("more_body", False):
                self._whole = True
                await self._pieces.put(None)


def _scope(request: httpx2.Request) -> ASGIMessage:
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": request.method,
        "headers": [(name.lower(), value) for name, value in request.headers.raw],
        "scheme": request.url.scheme,
        "path": request.url.path,
        "raw_path": request.url.raw_path.split(b"?")[0],
        "query_string": request.url.query,
        "server": (request.url.host, request.url.port),
        "client": ("127.0.0.1", 1),
        "root_path": "",
    }


def _read_timeout(request: httpx2.Request) -> float | None:
    timeouts = request.extensions.get("timeout")
    value = timeouts.get("read") if isinstance(timeouts, dict) else None
    return float(value) if isinstance(value, int | float) else None
