"""An exec's socket as asyncio streams.

Docker sends both outputs over one connection in frames: a byte that says which (1 stdout, 2 stderr), three zeros, the
length as four bytes, big-endian, and then as many bytes. Input goes the other way as it is; its end is half a close.
"""

import asyncio
import contextlib
import os
import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from docker import APIClient

BUFFERED = 1 << 18
ERRORS_KEPT = 1 << 16
"""Bytes of stderr. What follows is read and dropped: whoever waits for stdout must not wait for it."""
_HEADER = 8
_STDERR = 2


class Duplex:
    """Both outputs as streams of their own and the input as a writer. A full stdout holds the other side up."""

    def __init__(self, source: asyncio.StreamReader, writer: asyncio.StreamWriter, early: bytes = b"") -> None:
        self.stdout = asyncio.StreamReader(limit=BUFFERED)
        self.stderr = asyncio.StreamReader()
        self.writer = writer
        self._valve = _Valve()
        self.stdout.set_transport(self._valve)
        self._source = source
        self._early = early
        self._reading = asyncio.ensure_future(self._read())

    async def close(self) -> None:
        self._reading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._reading
        self.writer.close()
        with contextlib.suppress(OSError):
            await self.writer.wait_closed()

    async def _read(self) -> None:
        errors = 0
        try:
            while header := await self._some(_HEADER, whole=True):
                left = int.from_bytes(header[4:])
                while left:
                    data = await self._some(left)
                    if not data:
                        return
                    left -= len(data)
                    if header[0] != _STDERR:
                        self.stdout.feed_data(data)
                        await self._valve.opened.wait()
                    elif errors < ERRORS_KEPT:
                        errors += len(data)
                        self.stderr.feed_data(data)
        except (OSError, asyncio.IncompleteReadError):
            return
        finally:
            self.stdout.feed_eof()
            self.stderr.feed_eof()

    async def _some(self, most: int, *, whole: bool = False) -> bytes:
        """At most so many bytes, or just as many; none at the end."""
        early, self._early = self._early[:most], self._early[most:]
        if whole and len(early) < most:
            try:
                return early + await self._source.readexactly(most - len(early))
            except asyncio.IncompleteReadError as error:
                if error.partial or early:
                    raise
                return b""
        return early or await self._source.read(min(most, 1 << 16))


class _Valve(asyncio.ReadTransport):
    """What a StreamReader closes when more is waiting in it than it should hold."""

    def __init__(self) -> None:
        super().__init__()
        self.opened = asyncio.Event()
        self.opened.set()

    def pause_reading(self) -> None:
        self.opened.clear()

    def resume_reading(self) -> None:
        self.opened.set()


def start_exec(
    api: "APIClient", container: str, argv: Sequence[str], **settings: Any
) -> tuple[str, socket.socket, bytes]:
    """Runs a program inside. Blocks; returns its id, its connection and what the SDK had read of that too early."""
    made: str = api.exec_create(container, list(argv), stdin=True, **settings)["Id"]
    return made, *_taken(api.exec_start(made, socket=True))


def hear(api: "APIClient", container: str) -> tuple[socket.socket, bytes]:
    """What a container's first process will say. Blocks."""
    return _taken(api.attach_socket(container, params={"stdout": 1, "stderr": 1, "stream": 1}))


def _taken(stream: Any) -> tuple[socket.socket, bytes]:
    # The SDK gives the bare connection out from under the buffer with which it read the answer's head. The first frames
    # may be in there already.
    answer = stream._response
    stream._sock.settimeout(0)
    early = answer.raw._fp.fp.peek() or b""
    connection = socket.socket(fileno=os.dup(stream.fileno()))
    connection.setblocking(False)
    answer.close()
    return connection, early


async def attach(connection: socket.socket, early: bytes) -> Duplex:
    try:
        source, writer = await asyncio.open_connection(sock=connection, limit=BUFFERED)
    except BaseException:
        connection.close()
        raise
    return Duplex(source, writer, early)
