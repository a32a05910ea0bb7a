"""The mode for machines where no sandbox can start: commands run on the machine itself, with no isolation at all.

It takes bundled tasks alone, one trial at a time, in /app, /logs, /tests, /solution and what else a Dockerfile names at
the root: folders that must not exist before and are removed after. What a killed run left is removed by the next start,
which finds it in a marker file. HOME and TMPDIR lie in a folder of the trial's own. Whoever runs trials must hold real
models and served simulators off it: `Host.isolated` is False.
"""

import asyncio
import os
import secrets
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from harbor_tasks.environment import task_environment
from harbor_tasks.errors import SandboxBroken, SandboxMissing, StateUnfit, TaskRefused
from harbor_tasks.format import Task
from harbor_tasks.requires import missing_inside
from harbor_tasks.sandbox import Copy, Sandbox
from harbor_tasks.sandbox.copied_files import CopiedFiles, Layout
from harbor_tasks.sandbox.host_folders import clear, foreign_folder, make_folders, read_marker, take_turn
from harbor_tasks.sandbox.host_processes import KILL_TIMEOUT_S, MARK, kill_marked
from harbor_tasks.sandbox.local import LocalMachine, wait
from harbor_tasks.sandbox.machine import to_its_end
from harbor_tasks.sandbox.plan import FOLDERS, PATH, Plan
from harbor_tasks.sandbox.planning import plan
from harbor_tasks.sandbox.replay import replay

NO_COPY = "the host sandbox is the machine itself, of which there is no copy"

_OURS = ("app", "logs", "tests", "solution")
_LIMITS = ["-c", "0"]


class Host:
    """The `Backend` without isolation."""

    name = described = "host"
    isolated = copies = False
    warning: str | None = (
        "NO SANDBOX: commands run as root on this machine itself (folders /app, /logs, /tests, /solution). "
        "Only bundled tasks on simulated models are let in. Use it in a container that you can throw away."
    )

    def __init__(self) -> None:
        self._missing: dict[str, bool] = {}
        self._python: Path | None = None

    async def probe(self) -> None:
        if sys.platform != "linux":
            raise SandboxMissing("host mode needs Linux")
        if os.geteuid() != 0:
            raise SandboxMissing("host mode needs root (in a container): it makes /app, /logs, /tests and /solution")
        if (foreign := await asyncio.to_thread(foreign_folder, _OURS)) is not None:
            raise SandboxMissing(f"host mode makes and removes {foreign}")
        await asyncio.to_thread(self._environment)

    def start(self, task: Task, *, allow_host_network: bool = False) -> AbstractAsyncContextManager[Sandbox]:
        return self._start(task)

    @asynccontextmanager
    async def _start(self, task: Task) -> AsyncIterator[Sandbox]:
        if not task.bundled:
            raise TaskRefused(f"task {task.name}: host mode has no isolation and takes bundled tasks alone")
        planned = plan(task)
        # FOLDERS beyond these exist on every machine, and are not ours to replace.
        names = [*_OURS, *(name for name in planned.folders if name not in FOLDERS)]
        async with self._open(planned, names) as machine:
            machine.notes = (*planned.notes, "no isolation: ran on the machine itself, with its network")
            try:
                await replay(planned, machine, self.missing)
            except TaskRefused as error:
                raise TaskRefused(f"task {task.name}: {error}") from error
            yield machine

    def ahead(
        self, tasks: Sequence[Task], concurrency: int, told: Callable[[str], None]
    ) -> AbstractAsyncContextManager[None]:
        """Nothing is prepared: a start takes milliseconds."""
        return nullcontext()

    def copied(
        self, task: Task, sandbox: Sandbox, *, allow_host_network: bool = False
    ) -> AbstractAsyncContextManager[Copy]:
        raise SandboxBroken(NO_COPY)

    def restored(
        self, task: Task, files: CopiedFiles, layout: Layout, *, allow_host_network: bool = False
    ) -> AbstractAsyncContextManager[Sandbox]:
        raise StateUnfit(NO_COPY)

    async def missing(self, requires: tuple[str, ...]) -> tuple[str, ...]:
        unknown = [name for name in requires if name not in self._missing]
        if unknown:
            with tempfile.TemporaryDirectory(prefix="fullchain-") as private:
                machine = HostMachine(Plan(workdir="/"), Path(private), await asyncio.to_thread(self._environment))
                try:
                    lacking = await missing_inside(machine, unknown)
                finally:
                    await machine.close()
            self._missing.update({name: name in lacking for name in unknown})
        return tuple(name for name in requires if self._missing[name])

    def _environment(self) -> Path:
        if self._python is None:
            self._python = task_environment()
        return self._python

    @asynccontextmanager
    async def _open(self, planned: Plan, names: Sequence[str]) -> AsyncIterator["HostMachine"]:
        python = await asyncio.to_thread(self._environment)
        lock = await take_turn()
        try:
            await asyncio.to_thread(clear, read_marker())
            private = Path(tempfile.mkdtemp(prefix="fullchain-host-"))
            try:
                machine = HostMachine(planned, private, python)
                make_folders(names, private, machine.mark)
                try:
                    yield machine
                finally:
                    await machine.close()
            finally:
                await to_its_end(asyncio.to_thread(_clear_after, private))
        finally:
            os.close(lock)


def _clear_after(private: Path) -> None:
    """What cannot be removed stays in the marker, for the next start to say so: this trial has ended and counts."""
    with suppress(SandboxBroken):
        clear(read_marker(), private)


class HostMachine(LocalMachine):
    """The machine itself, seen as a sandbox."""

    backend = "host"

    def __init__(self, planned: Plan, private: Path, python: Path) -> None:
        self.mark = secrets.token_hex(16)
        env = {
            **planned.env,
            "HOME": str(private / "home"),
            "TMPDIR": str(private / "tmp"),
            "PATH": f"{python}/bin:{planned.env.get('PATH', PATH)}",
        }
        for name in ("home", "tmp"):
            (private / name).mkdir(exist_ok=True)
        super().__init__(planned.workdir, env)
        self._private = private
        self._shells = 0
        self.outputs = str(private / "tmp" / "fullchain-output")

    async def _spawn(
        self, argv: Sequence[str], *, env: Mapping[str, str], stdin: int | IO[bytes], stdout: int, scratch: Path | None
    ) -> "Marked":
        # One mark a process tree, all beginning alike: a session ends its own, the machine whatever is left.
        self._shells += 1
        mark = f"{self.mark}-{self._shells}."
        try:
            process = await asyncio.create_subprocess_exec(
                *argv,
                stdin=stdin,
                stdout=stdout,
                stderr=asyncio.subprocess.PIPE,
                env={**env, MARK: mark},
                cwd="/",
                start_new_session=True,
            )
        except OSError as error:
            raise SandboxBroken(f"bash does not start: {error}") from error
        return Marked(process, mark)

    def _scratch(self) -> tuple[Path, str]:
        folder = Path(tempfile.mkdtemp(prefix="shell-", dir=self._private))
        (folder / "out").mkdir()
        return folder, str(folder)

    def _driver(self) -> tuple[Sequence[str], Sequence[str]]:
        return ["/bin/bash", "--norc", "--noprofile", "-c"], _LIMITS

    async def close(self) -> None:
        await super().close()
        await kill_marked(self.mark, set())


@dataclass(slots=True)
class Marked:
    process: asyncio.subprocess.Process
    mark: str

    @property
    def stderr(self) -> asyncio.StreamReader | None:
        return self.process.stderr

    async def started(self) -> None:
        pass

    async def kill(self) -> None:
        await kill_marked(self.mark, {self.process.pid})
        try:
            async with asyncio.timeout(KILL_TIMEOUT_S):
                await wait(self.process)
        except TimeoutError:
            raise SandboxBroken(f"process {self.process.pid} does not end") from None
