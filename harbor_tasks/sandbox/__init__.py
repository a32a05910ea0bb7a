"""The one seam between a task and the machine: what every sandbox can do.

A backend starts sandboxes; a sandbox has the paths /app (or the task's WORKDIR), /logs/{agent,verifier,artifacts},
/tests, /solution, /root and /tmp, writable and private to the trial. `docker` runs the task's own image, `bubblewrap`
needs no engine, `host` has no isolation and takes bundled tasks and the in-process simulator alone.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from harbor_tasks.format import Task
from harbor_tasks.sandbox.copied_files import CopiedFiles, Layout

OUTPUT_LIMIT = 65_536
"""Bytes of a command's output that are kept: the head. Hostile output cannot fill our memory."""
KEPT_FROM, KEPT_MOST = 10_000, 10 << 20
"""A shell keeps the last ten outputs of more bytes than the first in files inside, up to the second of each."""


@dataclass(frozen=True, slots=True)
class Output:
    """What a command printed (stdout and stderr together, undecodable bytes replaced) and how it ended.

    `exit_code` is 124 or 137 after a time-out, and `timed_out` is set. `size` is the full length in bytes, `text` holds
    the first `OUTPUT_LIMIT` of them. `seconds` is wall time. `kept` is the path, inside, of a file
    with the first `KEPT_MOST` bytes.
    """

    exit_code: int
    text: str
    size: int
    timed_out: bool
    seconds: float
    kept: str | None = None


class Shell(Protocol):
    """A session in which the working directory and exported variables last from command to command.

    Each command is a fresh bash: functions and unexported variables are lost, `exit` and `set -e` end only the command.
    """

    async def run(self, command: str, *, timeout_s: float, keep: bool = True) -> Output:
        """Runs one command to its end or time-out. `keep`: a long output is kept. Raises SandboxBroken when the session
        itself is gone."""

    async def close(self) -> None:
        """Ends the session and every process that it started, background jobs included."""


class Sandbox(Protocol):
    """One trial's machine."""

    backend: str
    workdir: str
    notes: tuple[str, ...]
    """What was asked for and could not be held, in words ("memory limit not enforced", ...); kept with results."""

    async def exec(
        self,
        command: str,
        *,
        timeout_s: float,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
    ) -> Output:
        """Runs one command in a bash of its own, with its own process namespace.

        `user`, a name or a number: another than the sandbox's own. A backend that has one alone refuses such a task.
        """

    async def shell(self, env: Mapping[str, str] | None = None, user: str | None = None) -> Shell: ...

    async def upload(self, source: Path, target: str) -> None:
        """Puts a file at, or a directory's contents into, `target`. What stood there before is replaced."""

    async def download(self, source: str, target: Path) -> None:
        """Copies a file to, or a directory's contents into, `target` on the host.

        What is inside is hostile: links, devices and names that leave `target` are left out, modes are tamed, size and
        count are bounded. Raises FileNotFoundError when `source` is neither a regular file nor a directory.
        """

    async def read(self, path: str, *, limit: int = OUTPUT_LIMIT) -> bytes | None:
        """The first `limit` bytes of a regular file; None when there is none. Never follows a link out."""

    async def read_all(self, limits: Mapping[str, int]) -> tuple[bytes | None, ...]:
        """The same of each path, with its own limit, in their order and in one go."""


class Copy(Protocol):
    """A sandbox's files as they were at one moment."""

    def start(self) -> AbstractAsyncContextManager[Sandbox]:
        """A fresh sandbox of the task with these files, gone with everything in it on exit. Raises SandboxBroken."""

    async def files(self, started: Sandbox) -> tuple[CopiedFiles, Layout]:
        """What must be kept to have them again; `started` comes from `start` and has not been used. They can be read
        for as long as the copy lives. Raises SandboxBroken."""


class Backend(Protocol):
    name: str
    described: str
    """The name, and in words which engine where there is one; known once it has been probed."""
    isolated: bool
    """False: commands run on the machine itself. It takes bundled tasks and the in-process simulator alone."""
    warning: str | None
    """What the user must be told, loudly, before anything runs in it."""

    async def probe(self) -> None:
        """Proves that a sandbox can start on this machine. Raises SandboxMissing with the mend in one line."""

    def start(self, task: Task, *, allow_host_network: bool = False) -> AbstractAsyncContextManager[Sandbox]:
        """A fresh sandbox with the task's environment in it, gone with everything in it on exit.

        Raises TaskRefused before anything runs when the task cannot be honoured, SandboxBroken when it fails.
        """

    def ahead(
        self, tasks: Sequence[Task], concurrency: int, told: Callable[[str], None]
    ) -> AbstractAsyncContextManager[None]:
        """While it is open, sandboxes may be prepared for these tasks, which will be started in about this order, so
        many at a time. On exit whatever nobody has used is gone. `told` gets what the user should know, a line each."""

    copies: bool
    """False: `copied` and `restored` are refused."""

    def copied(
        self, task: Task, sandbox: Sandbox, *, allow_host_network: bool = False
    ) -> AbstractAsyncContextManager[Copy]:
        """A copy of a running sandbox of this backend and task: nobody inside can tell that it was taken, and the
        sandbox may change or end afterwards. Gone on exit. Raises SandboxBroken when none can be taken."""

    def restored(
        self, task: Task, files: CopiedFiles, layout: Layout, *, allow_host_network: bool = False
    ) -> AbstractAsyncContextManager[Sandbox]:
        """A fresh sandbox of the task with kept files in it. Raises StateUnfit for those of another backend, and what
        `start` raises."""

    async def missing(self, requires: tuple[str, ...]) -> tuple[str, ...]:
        """Those of a task's `[metadata] requires` ("python>=3.9", "git", ...) that are not inside; cached."""
