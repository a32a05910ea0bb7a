"""Serves an ASGI app over loopback HTTP, and closes it."""

import asyncio
import ipaddress
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

import uvicorn  # noqa: TID253 - this module is imported only when something is served

from agents.simulated.errors import SimulatorError

if TYPE_CHECKING:
    from starlette.types import ASGIApp

START_TIMEOUT_S = 10.0
STOP_TIMEOUT_S = 5
KEEP_ALIVE_S = 75
"""An unused connection is the client's to close (ours does after 5 s): where both did so at one time, a request that
was just then sent would be lost, and its call broken off."""


class _Server(uvicorn.Server):
    """Leaves signals to the program that it runs in."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@asynccontextmanager
async def serve(app: "ASGIApp", host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[int]:
    """Serves `app` while the context is open; gives the port that was bound (a free one for port 0).

    Raises SimulatorError when `host` is no loopback address or the port cannot be had.
    """
    listener = _listen(host, port)
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="off",
        server_header=False,
        date_header=False,
        timeout_graceful_shutdown=STOP_TIMEOUT_S,
        timeout_keep_alive=KEEP_ALIVE_S,
    )
    server = _Server(config)
    running = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        async with asyncio.timeout(START_TIMEOUT_S):
            while not server.started:
                if running.done():
                    await running
                    raise SimulatorError(f"{host}:{port}: the server ended while it started")
                await asyncio.sleep(0.005)
        yield int(listener.getsockname()[1])
    finally:
        server.should_exit = True
        try:
            async with asyncio.timeout(2 * STOP_TIMEOUT_S):
                await running
        finally:
            running.cancel()
            listener.close()


def _listen(host: str, port: int) -> socket.socket:
    try:
        address = ipaddress.ip_address("127.0.0.1" if host == "localhost" else host)
    except ValueError:
        raise SimulatorError(f"{host}: expected an address such as 127.0.0.1") from None
    if not address.is_loopback:
        raise SimulatorError(f"{host}: the simulator is served on loopback only; use 127.0.0.1 or ::1")
    listener = socket.socket(socket.AF_INET6 if address.version == 6 else socket.AF_INET)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((str(address), port))
    except OSError as error:
        listener.close()
        raise SimulatorError(f"{host}:{port}: cannot be bound ({error.strerror}); choose another --port") from None
    return listener
