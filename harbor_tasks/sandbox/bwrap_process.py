"""A running bwrap, and how to be sure that nothing of it is left."""

import asyncio
import contextlib
import json
import os
import signal
from dataclasses import dataclass, field
from pathlib import Path

from harbor_tasks.errors import SandboxBroken
from harbor_tasks.sandbox.local import wait

KILL_TIMEOUT_S = 30.0


@dataclass(slots=True)
class Bwrap:
    """A running bwrap: `process` waits outside, the namespace's first process is known once it has started."""

    process: asyncio.subprocess.Process
    info: int
    _init: int | None = field(default=None)

    @property
    def stderr(self) -> asyncio.StreamReader | None:
        return self.process.stderr

    async def started(self) -> None:
        self._learn()
        if self._init is None:
            raise SandboxBroken("bwrap does not tell its process")

    async def kill(self) -> None:
        """bwrap itself may end before its namespace has: only the end of the namespace's first process is proof,
        because the kernel lets it end after all the others."""
        self._learn()
        try:
            async with asyncio.timeout(KILL_TIMEOUT_S):
                if self._init is not None:
                    with contextlib.suppress(ProcessLookupError):
                        signal.pidfd_send_signal(self._init, signal.SIGKILL)
                    await _ended(self._init)
                elif self.process.returncode is None:
                    _kill_child(self.process.pid)
                await wait(self.process)
        except TimeoutError:
            raise SandboxBroken(f"bwrap {self.process.pid} does not end") from None
        finally:
            if self._init is not None:
                os.close(self._init)
                self._init = None
            if self.info >= 0:
                os.close(self.info)
                self.info = -1

    def _learn(self) -> None:
        """Takes hold of the namespace's first process, if bwrap has got that far and has not ended yet."""
        if self._init is not None or self.info < 0 or self.process.returncode is not None:
            return
        try:
            pid = json.loads(os.read(self.info, 65536))["child-pid"]
            handle = os.pidfd_open(pid)
        except (OSError, ValueError, KeyError):
            return
        # The number may belong to a stranger by now: bwrap's own child it is only while bwrap is its parent.
        if _parent(pid) == self.process.pid:
            self._init = handle
        else:
            os.close(handle)


def _kill_child(pid: int) -> None:
    """Not `process.kill()`: that reaps one that has just ended, and asyncio complains that its child is gone."""
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return
    try:
        # The number may belong to a stranger by now.
        if _parent(pid) == os.getpid():
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(handle, signal.SIGKILL)
    finally:
        os.close(handle)


def _parent(pid: int) -> int | None:
    try:
        return int(Path("/proc", str(pid), "stat").read_text(errors="replace").rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return None


async def _ended(pidfd: int) -> None:
    loop = asyncio.get_running_loop()
    ended = loop.create_future()

    def end() -> None:
        if not ended.done():
            ended.set_result(None)

    loop.add_reader(pidfd, end)
    try:
        await ended
    finally:
        loop.remove_reader(pidfd)
