"""Where a request goes: to the simulated provider or to the real one, each with what it needs."""

import httpx2  # noqa: TID253  (this module is loaded by open_http alone)

from agents.transport.call import CALL

LIMITS = httpx2.Limits(max_connections=256, max_keepalive_connections=128)
TIMEOUT = httpx2.Timeout(300.0, connect=15.0, write=60.0, pool=60.0)
"""Seconds; reading waits so long for the next bytes of an answer, not for the whole of it."""


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
    """Plain HTTP, through the proxies that the environment names.

    A client with a transport of its own ignores them, so a second client stands below it. It is made when first needed:
    its TLS context costs more than a hundred simulated calls.
    """

    def __init__(self) -> None:
        self._client: httpx2.AsyncClient | None = None

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if self._client is None:
            self._client = httpx2.AsyncClient(limits=LIMITS, timeout=TIMEOUT)
        return await self._client.send(request, stream=True, auth=None, follow_redirects=False)

    async def aclose(self) -> None:
        if self._client is not None:
            await self._client.aclose()
