"""Machines whose processes are children of ours: bubblewrap's and the host's."""

import asyncio
import socket
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Protocol

from harbor_tasks.errors import SandboxBroken
from harbor_tasks.sandbox.machine import Machine, Running
from harbor_tasks.sandbox.plan import ROOT
from harbor_tasks.sandbox.session import Conversation, Launched, driver_words


class Child(Launched, Protocol):
    """A process of ours in the sandbox, with everything that it started itself."""

    process: asyncio.subprocess.Process


class LocalMachine(Machine):
    """A `Sandbox` on this host, over one question that each backend answers."""

    @abstractmethod
    async def _spawn(
        self, argv: Sequence[str], *, env: Mapping[str, str], stdin: int | IO[bytes], stdout: int, scratch: Path | None
    ) -> Child:
        """Starts a process in the sandbox, stderr piped; `scratch` is the folder of its driver's outputs."""

    @abstractmethod
    def _scratch(self) -> tuple[Path, str]:
        """A fresh folder for a driver's outputs on the host, and the driver's own folder as seen inside."""

    @abstractmethod
    def _driver(self) -> tuple[Sequence[str], Sequence[str]]:
        """The words that run a driver's text, and its `ulimit` options."""

    async def _converse(self, env: Mapping[str, str], user: str | None) -> Conversation:
        if user not in ROOT:
            raise SandboxBroken(f"this sandbox has one user and cannot run a command as {user}")
        try:
            scratch, inside = self._scratch()
        except OSError as error:
            raise SandboxBroken(f"no folder for a shell: {error}") from error
        words, limits = self._driver()
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                launched = await self._spawn(
                    [*words, *driver_words(inside, limits)],
                    env=env,
                    stdin=theirs.fileno(),
                    stdout=theirs.fileno(),
                    scratch=scratch,
                )
            reader, writer = await asyncio.open_connection(sock=ours)
        except BaseException:
            ours.close()
            raise
        return launched, reader, writer

    async def _run(self, argv: Sequence[str], *, env: Mapping[str, str], stdin: IO[bytes] | None) -> Running:
        given = stdin if stdin is not None else asyncio.subprocess.DEVNULL
        return _Piped(await self._spawn(argv, env=env, stdin=given, stdout=asyncio.subprocess.PIPE, scratch=None))


class _Piped:
    """A child as a program whose outputs are piped."""

    def __init__(self, child: Child) -> None:
        process = child.process
        assert process.stdout is not None  # noqa: S101 (piped above)
        assert process.stderr is not None  # noqa: S101
        self.stdout = process.stdout
        self.stderr = process.stderr
        self.wait = process.wait
        self.started = child.started
        self.kill = child.kill


async def wait(process: asyncio.subprocess.Process) -> None:
    """Waits for a process that was killed. asyncio waits for the end of its pipes too, which nobody may have read."""
    for stream in (process.stdout, process.stderr):
        while stream is not None and await stream.read(1 << 16):
            pass
    await process.wait()
