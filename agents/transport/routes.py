"""Where a request goes: to the simulated provider or to the real one, each with what it needs."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2  # noqa: TID253  (this module is loaded by open_http alone)

from agents.transport.body import Body, body_of
from agents.transport.call import CALL
from agents.transport.surroundings import LIMITS, client_of_environment


class Routes(httpx2.AsyncBaseTransport):
    """Chooses by the call, never by the address: a real provider is never told that a call is simulated."""

    def __init__(self, simulated: httpx2.AsyncBaseTransport | None, real: httpx2.AsyncBaseTransport) -> None:
        self._simulated, self._real = simulated, real

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if not CALL.get().identity.simulated:
            return await self._real.handle_async_request(request)
        if self._simulated is None:
            raise RuntimeError("a simulated model is called, but no simulated provider was opened")
        return await self._simulated.handle_async_request(request)

    async def aclose(self) -> None:
        if self._simulated is not None:
            await self._simulated.aclose()
        await self._real.aclose()


class Served(httpx2.AsyncBaseTransport):
    """The simulated provider that listens at `base`: every request goes there, and never through a proxy."""

    def __init__(self, base: httpx2.URL) -> None:
        self._base = base
        self._http = httpx2.AsyncHTTPTransport(limits=LIMITS, trust_env=False)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        path = self._base.raw_path.rstrip(b"/") + request.url.raw_path
        url = self._base.copy_with(raw_path=path)
        headers = httpx2.Headers(request.headers)
        headers["host"] = url.netloc.decode("ascii")
        return await self._http.handle_async_request(
            httpx2.Request(request.method, url, headers=headers, stream=request.stream, extensions=request.extensions)
        )

    async def aclose(self) -> None:
        await self._http.aclose()


class Internet(httpx2.AsyncBaseTransport):
    """Plain HTTP, through the proxies that the environment names. No call takes longer than `call_limit_s`, real time.

    A client with a transport of its own ignores proxies, so a second client stands below it. It is made when first
    needed: its TLS context costs more than a hundred simulated calls. Raises TryFailed when the environment does not
    let it be made.
    """

    def __init__(self, call_limit_s: float) -> None:
        self._client: httpx2.AsyncClient | None = None
        self._limit_s = call_limit_s

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if self._client is None:
            self._client = client_of_environment()
        limit = _CallLimit(self._limit_s)
        try:
            async with limit.kept():
                response = await self._client.send(request, stream=True, auth=None, follow_redirects=False)
        except (ExceptionGroup, UnicodeError) as error:
            # What the address of the host or its proxy says is no port, or no name.
            raise httpx2.ConnectError(_first_of(error)) from error
        response.stream = _Limited(body_of(response.stream), limit)
        return response

    async def aclose(self) -> None:
        if self._client is not None:
            await self._client.aclose()


def _first_of(error: Exception) -> str:
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"


class _CallLimit:
    """One call's: a server that sends a byte now and then passes every time-out of a single read."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._until = asyncio.get_running_loop().time() + seconds

    @asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        scope = asyncio.timeout_at(self._until)
        try:
            async with scope:
                yield
        except TimeoutError:
            if not scope.expired():
                raise
            raise httpx2.ReadTimeout(f"no whole answer within {self._seconds:,g} s") from None


class _Limited(Body):
    def __init__(self, inner: Body, limit: _CallLimit) -> None:
        self._inner, self._limit = inner, limit

    async def __anext__(self) -> bytes:
        async with self._limit.kept():
            return await self._inner.__anext__()

    async def aclose(self) -> None:
        await self._inner.aclose()
