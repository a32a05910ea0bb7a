"""HTTP below the SDKs: the meter that books every request, and the ways to real and simulated providers."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import httpx2

    from agents.transport.streaming_asgi import ASGIApp

CALL_LIMIT_S = 1_800.0
"""One call's, from its first byte to the last of its answer: a failed try after that, whatever the task allows."""


@asynccontextmanager
async def open_http(
    *,
    simulator: "ASGIApp | None" = None,
    simulator_url: str | None = None,
    call_limit_s: float = CALL_LIMIT_S,
) -> "AsyncIterator[httpx2.AsyncClient]":
    """The one HTTP client of a run, shared by all its lanes: every request through it is booked in `CALL`'s book.

    Simulated calls go to the app `simulator`, or to the one served at `simulator_url`; all others to the internet,
    where no call takes longer than `call_limit_s` seconds of real time. Raises ValueError when both are given or the
    URL is no http(s) address.
    """
    import httpx2

    from agents.transport.meter import Meter
    from agents.transport.routes import Internet, Routes, Served
    from agents.transport.streaming_asgi import StreamingASGITransport
    from agents.transport.surroundings import LIMITS, TIMEOUT
    from agents.transport.virtual_time import VirtualTime

    if simulator is not None and simulator_url is not None:
        raise ValueError("give a simulator or its URL, not both")
    simulated: httpx2.AsyncBaseTransport | None = None
    if simulator is not None:
        simulated = VirtualTime(StreamingASGITransport(simulator))
    elif simulator_url is not None:
        base = httpx2.URL(simulator_url)
        if base.scheme not in ("http", "https") or not base.host:
            raise ValueError(f"simulator URL {simulator_url!r}: expected an address such as http://127.0.0.1:8000")
        simulated = VirtualTime(Served(base))
    transport = Meter(Routes(simulated, Internet(call_limit_s)))
    async with httpx2.AsyncClient(transport=transport, limits=LIMITS, timeout=TIMEOUT) as http:
        yield http
