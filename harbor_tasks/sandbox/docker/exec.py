"""A program that the engine started inside a container."""

import asyncio
import contextlib
from typing import IO, TYPE_CHECKING

from harbor_tasks.sandbox.docker.streams import Duplex

if TYPE_CHECKING:
    from harbor_tasks.sandbox.docker.container import DockerMachine


class Exec:
    """A program that the engine started inside the container."""

    def __init__(self, machine: "DockerMachine", made: str, streams: Duplex, folder: str | None) -> None:
        self._machine = machine
        self._made = made
        self._streams = streams
        self.folder = folder
        """A driver's own, inside; None for a program of ours."""
        self.stdout = streams.stdout
        self.stderr = streams.stderr
        self.writer = streams.writer
        self._feeding: asyncio.Future[None] | None = None

    def feed(self, stdin: IO[bytes] | None) -> None:
        """Sends it, from where it stands, while the program runs, and then its end."""
        self._feeding = asyncio.ensure_future(self._feed(stdin))

    async def started(self) -> None:
        pass

    async def wait(self) -> int:
        return await self._machine.exit_code(self._made)

    async def kill(self) -> None:
        if self.folder is not None:
            await self.close()
            await self._machine.clear(self)
            return
        ended = self.stdout.at_eof()
        await self.close()
        if not ended:
            await self._machine.clear(self)

    async def close(self) -> None:
        if self._feeding is not None:
            self._feeding.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._feeding
        await self._streams.close()

    async def _feed(self, stdin: IO[bytes] | None) -> None:
        # A program that has ended, or wants no more, leaves its input unread.
        with contextlib.suppress(OSError):
            while stdin is not None and (data := stdin.read(1 << 18)):
                self.writer.write(data)
                await self.writer.drain()
            self.writer.write_eof()
