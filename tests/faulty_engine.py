"""The real engine behind a socket that fails at chosen requests: what a loaded or dying engine looks like."""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

Fault = Literal["500", "400", "lost", "hang"]
"""`lost`: the engine does what was asked and its answer never comes. `hang`: nothing happens until the end."""


@dataclass
class Faults:
    """`plan`: for requests whose first line matches, what becomes of the next ones, in order; then all go through."""

    plan: dict[str, list[Fault]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def next(self, line: str) -> Fault | None:
        self.asked.append(line)
        for pattern, faults in self.plan.items():
            if faults and re.search(pattern, line):
                return faults.pop(0)
        return None

    def count(self, pattern: str) -> int:
        return sum(re.search(pattern, line) is not None for line in self.asked)


@asynccontextmanager
async def faulty(engine: Path, folder: Path, faults: Faults) -> AsyncIterator[str]:
    """Its address, for DOCKER_HOST."""
    connections: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.add(asyncio.current_task())  # type: ignore[arg-type]  # it runs in one
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            await _one(reader, writer, engine, faults)
        writer.close()

    path = folder / "engine.sock"
    async with await asyncio.start_unix_server(serve, path):
        try:
            yield f"unix://{path}"
        finally:
            for each in connections:
                each.cancel()
            await asyncio.gather(*connections, return_exceptions=True)


async def _one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, engine: Path, faults: Faults) -> None:
    """One connection, one request: the next one comes over another, and is looked at too."""
    head = await reader.readuntil(b"\r\n\r\n")
    fault = faults.next(head.split(b"\r\n", 1)[0].decode())
    if fault == "hang":
        await asyncio.Event().wait()
    if fault in ("400", "500"):
        said = b'{"message": "as the test wants it"}'
        writer.write(b"HTTP/1.1 %s As Asked\r\nContent-Type: application/json\r\n" % fault.encode())
        writer.write(b"Connection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(said), said))
        await writer.drain()
        return
    if not re.search(rb"\r\nUpgrade:", head, re.IGNORECASE):
        head = re.sub(rb"\r\nConnection:[^\r]*", b"", head, flags=re.IGNORECASE)
        head = head.replace(b"\r\n", b"\r\nConnection: close\r\n", 1)
    back, forth = await asyncio.open_unix_connection(engine)
    forth.write(head)
    answering = asyncio.ensure_future(_copy(back, None if fault == "lost" else writer))
    sending = asyncio.ensure_future(_copy(reader, forth))
    try:
        await answering
    finally:
        sending.cancel()
        answering.cancel()
        forth.close()


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter | None) -> None:
    while data := await source.read(1 << 16):
        if target is not None:
            target.write(data)
            await target.drain()
    if target is not None and target.can_write_eof():
        target.write_eof()
