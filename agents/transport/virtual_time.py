"""Carries the trial's time to a simulated provider and waits out, on the trial's clock, what its answer takes.

Request headers: `x-fullchain-time` (the trial's now, ISO-8601 UTC with microseconds) and `x-fullchain-call` (the call's
key). Response header `x-fullchain-time: first=<s>;end=<s>;tool=<s>`: decimal seconds from the request's start to the
first token and to the end of the answer, and what one tool call of this answer takes. The same headers travel
in-process and over HTTP, and so the times are the same.
"""

from math import isfinite

import httpx2  # noqa: TID253  (this module is loaded by open_http alone)

from agents.clock import Clock
from agents.transport.body import Body, body_of
from agents.transport.call import CALL

TIME_HEADER = "x-fullchain-time"
CALL_HEADER = "x-fullchain-call"


class VirtualTime(httpx2.AsyncBaseTransport):
    """Stands under the meter, above the transport that reaches the simulated provider."""

    def __init__(self, inner: httpx2.AsyncBaseTransport) -> None:
        self._inner = inner

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        call = CALL.get()
        request.headers[TIME_HEADER] = call.clock.now().isoformat(timespec="microseconds")
        request.headers[CALL_HEADER] = call.key
        response = await self._inner.handle_async_request(request)
        header = response.headers.get(TIME_HEADER)
        try:
            first, end, call.tool_seconds = (0.0, 0.0, 0.0) if header is None else _times(header)
        except httpx2.RemoteProtocolError:
            await response.aclose()
            raise
        response.stream = _Timed(body_of(response.stream), call.clock, first, end)
        return response


class _Timed(Body):
    """Hands on the first piece at `first` and the last at `end`: each is held until the next one is there."""

    def __init__(self, inner: Body, clock: Clock, first: float, end: float) -> None:
        self._inner, self._clock, self._first, self._end = inner, clock, first, end
        self._slept = 0.0
        self._held: bytes | None = None
        self._broken: httpx2.TransportError | None = None
        self._over = False

    async def __anext__(self) -> bytes:
        if self._held is None and not self._over:
            self._held = await self._next()
        handed = self._held
        self._held = None if self._over else await self._next()
        if handed is None:
            await self._until(self._end)
            if self._broken is not None:
                raise self._broken
            raise StopAsyncIteration
        moment = self._end if self._over else self._first
        if moment > self._slept:
            await self._until(moment)
        return handed

    async def _next(self) -> bytes | None:
        try:
            return await self._inner.__anext__()
        except StopAsyncIteration:
            self._over = True
        except httpx2.TransportError as error:
            self._over, self._broken = True, error
        return None

    async def _until(self, moment: float) -> None:
        if moment > self._slept:
            wait, self._slept = moment - self._slept, moment
            await self._clock.sleep(wait)

    async def aclose(self) -> None:
        await self._inner.aclose()


def _times(header: str) -> tuple[float, float, float]:
    """Raises RemoteProtocolError when the header is not what it must be: guessing would falsify every gap."""
    try:
        fields = dict(part.split("=", 1) for part in header[:200].split(";"))
        first, end, tool = (float(fields[name]) for name in ("first", "end", "tool"))
    except (KeyError, ValueError):
        first = end = tool = -1.0
    if not (0 <= first <= end and isfinite(end) and tool >= 0 and isfinite(tool)):
        raise httpx2.RemoteProtocolError(
            f"the provider's {TIME_HEADER} header must read first=<s>;end=<s>;tool=<s> with 0 <= first <= end, "
            f"not {header[:80]!r}"
        )
    return first, end, tool
