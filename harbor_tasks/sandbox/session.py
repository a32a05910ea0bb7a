"""The host's end of a shell session: speaks with driver.sh over one socket."""

import asyncio
import contextlib
import re
import secrets
import time
from collections.abc import Sequence
from importlib import resources
from typing import Protocol

from harbor_tasks.errors import SandboxBroken
from harbor_tasks.sandbox import KEPT_FROM, KEPT_MOST, OUTPUT_LIMIT, Output

DRIVER = resources.files("harbor_tasks.sandbox").joinpath("driver.sh").read_text(encoding="utf-8")

START_TIMEOUT_S = 30.0
_KILL_AFTER_S = 0.5
"""The driver's `timeout -k`: from the first signal to the one that cannot be caught."""
_MARGIN_S = 1.0
"""Beyond that the driver itself no longer answers. The two together leave half a second in which a session can be
replaced by two seconds after the command's time-out."""
_NO_PROCESS = b"fork: retry"
_TRIES = 2
"""bash tries again after 1, 2, 4 and 8 seconds, and says so each time: what has ended by the second try was a moment's
shortage."""
_ERRORS_READ = 1 << 16
"""Bytes of the driver's stderr: whoever floods it from inside must not keep us busy."""
_HEADER = re.compile(rb"([0-9a-f]{16}) ([0-9]{1,3}) ([0-9]{1,18}) ([0-9]{1,6}) ([0-9]{1,6})\n")
"""Bounded: whoever speaks in the driver's place must not make numbers that no database holds."""


class Launched(Protocol):
    """A process that was started in a sandbox, with everything that it started itself."""

    @property
    def stderr(self) -> asyncio.StreamReader | None: ...

    async def started(self) -> None:
        """Called once, when the process has shown that it runs."""

    async def kill(self) -> None:
        """Returns when none of them is left."""


Conversation = tuple[Launched, asyncio.StreamReader, asyncio.StreamWriter]
"""A driver that was started, and both ends of what is said with it."""


def driver_words(folder: str, limits: Sequence[str]) -> list[str]:
    """What follows `bash -c` where a driver begins: its text, and its arguments as it explains them."""
    return [DRIVER, "driver", folder, str(OUTPUT_LIMIT), str(KEPT_FROM), str(KEPT_MOST), *limits]


class Session:
    """A `Shell`. One command at a time; a second waits for the first.

    A command that is cancelled or outlives its time-out by far leaves the session unusable: every later `run` raises
    SandboxBroken, and `close` ends what still runs.
    """

    def __init__(
        self, launched: Launched, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, keep: str = ""
    ) -> None:
        """`keep` is the folder in which the driver keeps long outputs; empty where it keeps none."""
        self._keep = keep
        self._launched = launched
        self._reader = reader
        self._writer = writer
        self._turn = asyncio.Lock()
        self._gone: str | None = None
        self._watching: asyncio.Task[None] | None = None
        self._limit: asyncio.Timeout | None = None
        self._starved = False

    async def begin(self) -> None:
        """Waits until the driver runs. Raises SandboxBroken with what the machine said."""
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                line = await self._reader.readline()
        except (TimeoutError, ValueError, OSError) as error:
            line, reason = b"", f"no start within {START_TIMEOUT_S:.0f} s ({type(error).__name__})"
        else:
            reason = "it ended at once"
        if line != b"ready\n":
            # An engine that cannot start the program says so in its place.
            said = await self._stderr() or line.decode("utf-8", errors="replace").strip()[:300]
            await self.close()
            raise SandboxBroken(f"the shell did not start: {said or reason}")
        await self._launched.started()
        if self._launched.stderr is not None:
            self._watching = asyncio.create_task(self._watch(self._launched.stderr))

    async def run(self, command: str, *, timeout_s: float, keep: bool = True) -> Output:
        if "\0" in command:
            return Output(2, "the command holds a NUL byte, which bash cannot take", 48, False, 0.0)
        data = command.encode("utf-8", errors="replace")
        timeout_s = max(timeout_s, 0.01)
        token = secrets.token_hex(8)
        async with self._turn:
            if self._gone:
                raise SandboxBroken(f"the shell is gone: {self._gone}")
            self._gone = "its last command was cancelled"
            started = time.monotonic()
            try:
                async with asyncio.timeout(timeout_s + _KILL_AFTER_S + _MARGIN_S) as self._limit:
                    if self._starved:
                        raise TimeoutError
                    self._writer.write(b"%s %d %.3f %d\n" % (token.encode(), len(data), timeout_s, keep) + data)
                    await self._writer.drain()
                    code, size, output, kept = await self._reply(token)
            except TimeoutError:
                self._gone = f"no answer {_KILL_AFTER_S + _MARGIN_S:g} s after the command's time-out"
                if self._starved:
                    self._gone = "no process could be started for it: too many run"
                raise SandboxBroken(f"the shell is gone: {self._gone}") from None
            except (asyncio.IncompleteReadError, ConnectionError) as error:
                self._gone = "the command ended its driver or the sandbox"
                raise SandboxBroken(f"the shell is gone: {self._gone}") from error
            except ValueError as error:
                self._gone = "its answer cannot be read"
                raise SandboxBroken(f"the shell is gone: {self._gone}") from error
            finally:
                self._limit = None
            self._gone = None
            seconds = time.monotonic() - started
        # `timeout` gives both codes, and so may the command itself: only the clock tells.
        timed_out = code in (124, 137) and seconds >= timeout_s
        return Output(
            code,
            output.decode("utf-8", errors="replace"),
            size,
            timed_out,
            seconds,
            f"{self._keep}/{kept}.txt" if self._keep and kept else None,
        )

    async def _reply(self, token: str) -> tuple[int, int, bytes, int]:
        line = await self._reader.readline()
        if not line:
            raise asyncio.IncompleteReadError(line, None)
        match = _HEADER.fullmatch(line)
        if match is None or match[1] != token.encode() or int(match[4]) > OUTPUT_LIMIT:
            raise ValueError(line[:80])
        output = await self._reader.readexactly(int(match[4]))
        return int(match[2]), int(match[3]), output, int(match[5])

    async def close(self) -> None:
        self._gone = "it was closed"
        if self._watching is not None:
            # What ends the process reads the rest.
            self._watching.cancel()
            await asyncio.wait([self._watching])
        self._writer.close()
        await self._launched.kill()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    async def _watch(self, stderr: asyncio.StreamReader) -> None:
        """Ends the wait for an answer that the driver has no process to give."""
        tries = total = 0
        tail = b""
        with contextlib.suppress(OSError):
            while total < _ERRORS_READ and (data := await stderr.read(4096)):
                total += len(data)
                tries += (tail + data).count(_NO_PROCESS)
                tail = data[-len(_NO_PROCESS) + 1 :]
                if tries >= _TRIES:
                    self._starved = True
                    if self._limit is not None and not self._limit.expired():
                        self._limit.reschedule(asyncio.get_running_loop().time())
                    return

    async def _stderr(self) -> str:
        stream = self._launched.stderr
        if stream is None:
            return ""
        try:
            async with asyncio.timeout(1):
                said = await stream.read(4096)
        except TimeoutError:
            return ""
        lines = said.decode("utf-8", errors="replace").strip().splitlines()
        return lines[-1] if lines else ""
