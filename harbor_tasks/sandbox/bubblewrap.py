"""The sandbox that needs no engine: bubblewrap, over folders on the host that only the trial can write.

Every process runs in a bwrap of its own over the same folders: a shell session is one, each `exec` another. Ending the
shell's pid namespace therefore ends every process of the agent, and nothing of it is left when the verifier runs.

What holds it: no capabilities, no further user namespaces, its own pid, ipc, uts and (but with `allow_host_network`)
network namespace, the host's /usr and the task environment read-only, a made-up /etc, limits on processes and file
size set inside. Root first drops to an unused uid per sandbox: bwrap run by root would keep its capabilities, and
`mount -o remount,rw` then opens the host's /usr. Writes outside the folders fail instead of vanishing between two
bwraps. `--die-with-parent` ends it with us: it follows the thread that started the process, so the event loop must run
in a thread that lives as long as the trial (asyncio's does).
"""

import asyncio
import os
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from harbor_tasks.environment import shared_folder, task_environment
from harbor_tasks.errors import SandboxBroken, SandboxMissing, StateUnfit, TaskRefused
from harbor_tasks.format import Task
from harbor_tasks.requires import missing_inside
from harbor_tasks.sandbox import Sandbox
from harbor_tasks.sandbox.binary import bwrap
from harbor_tasks.sandbox.bwrap_process import Bwrap
from harbor_tasks.sandbox.copied_files import CopiedFiles, Layout
from harbor_tasks.sandbox.diagnosis import mend
from harbor_tasks.sandbox.local import LocalMachine
from harbor_tasks.sandbox.machine import to_its_end
from harbor_tasks.sandbox.mounts import DRIVER, PYTHON, SHELL_FOLDER, Tools, isolation, system
from harbor_tasks.sandbox.plan import PATH, Plan
from harbor_tasks.sandbox.planning import plan
from harbor_tasks.sandbox.replay import Built
from harbor_tasks.sandbox.state import Slot, remove_leftovers, take_slot

SHELL_FOLDER_BYTES = 64 * 1024**2
_PRIVATE = ("--norc", "--noprofile", "-p", "-c")
"""-p: a task's BASH_ENV may name a file that commands can write, and the driver must not run it."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Set inside the user namespace, where RLIMIT_NPROC counts this sandbox's processes alone."""

    processes: int = 1024
    file_bytes: int = 4 * 1024**3
    open_files: int = 4096

    def options(self) -> list[str]:
        # bash's -f counts 1024 bytes.
        size = str(max(1, self.file_bytes // 1024))
        return ["-u", str(self.processes), "-f", size, "-c", "0", "-n", str(self.open_files)]


class Bubblewrap:
    """The `Backend`. `binary` and `limits` are for those who know better than the defaults."""

    name = described = "bubblewrap"
    isolated = copies = True
    warning: str | None = None

    def __init__(self, *, binary: Path | None = None, limits: Limits | None = None) -> None:
        self._binary = binary
        self._limits = limits or Limits()
        self._ready: Tools | None = None
        self._preparing = asyncio.Lock()
        self._missing: dict[str, bool] = {}
        self._built = Built()

    async def probe(self) -> None:
        try:
            async with self._bare() as machine:
                said = await machine.exec("id -u", timeout_s=20)
        except SandboxBroken as error:
            raise SandboxMissing(f"bubblewrap cannot start here ({error}): {mend()}") from error
        if said.text.strip() != "0":
            raise SandboxMissing(f"bubblewrap cannot start here ({said.text.strip()[:200]}): {mend()}")

    def start(self, task: Task, *, allow_host_network: bool = False) -> AbstractAsyncContextManager[Sandbox]:
        return self._start(task, allow_host_network)

    @asynccontextmanager
    async def _start(self, task: Task, allow_host_network: bool) -> AsyncIterator["BubblewrapMachine"]:
        planned = plan(task, allow_host_network=allow_host_network)
        async with self._open(planned) as machine:
            machine.notes = planned.notes
            try:
                await self._built.build(f"{task.digest} {planned.host_network}", planned, machine, self.missing)
            except TaskRefused as error:
                raise TaskRefused(f"task {task.name}: {error}") from error
            yield machine

    def ahead(
        self, tasks: Sequence[Task], concurrency: int, told: Callable[[str], None]
    ) -> AbstractAsyncContextManager[None]:
        """Nothing is prepared: a start takes milliseconds."""
        return nullcontext()

    @asynccontextmanager
    async def copied(
        self, task: Task, sandbox: Sandbox, *, allow_host_network: bool = False
    ) -> AsyncIterator["FolderCopy"]:
        if not isinstance(sandbox, BubblewrapMachine):
            raise SandboxBroken(f"a sandbox of {sandbox.backend} cannot be copied by {self.name}")
        planned = plan(task, allow_host_network=allow_host_network)
        with tempfile.TemporaryFile() as stream:
            await sandbox.copy(planned.folders, stream)
            yield FolderCopy(stream, Layout(self.name, planned.folders), lambda: self._open(planned), planned.notes)

    @asynccontextmanager
    async def restored(
        self, task: Task, files: CopiedFiles, layout: Layout, *, allow_host_network: bool = False
    ) -> AsyncIterator[Sandbox]:
        if layout.backend != self.name:
            raise StateUnfit(f"the state was taken in {layout.backend} and cannot be laid into {self.name}")
        async with self._start(task, allow_host_network) as machine:
            await machine.lay(files, layout)
            yield machine

    async def missing(self, requires: tuple[str, ...]) -> tuple[str, ...]:
        unknown = [name for name in requires if name not in self._missing]
        if unknown:
            async with self._bare() as machine:
                lacking = await missing_inside(machine, unknown)
            self._missing.update({name: name in lacking for name in unknown})
        return tuple(name for name in requires if self._missing[name])

    def _bare(self) -> AbstractAsyncContextManager["BubblewrapMachine"]:
        return self._open(Plan())

    @asynccontextmanager
    async def _open(self, planned: Plan) -> AsyncIterator["BubblewrapMachine"]:
        tools = await self._prepare()
        slot = await _take_slot()
        try:
            machine = BubblewrapMachine(planned, slot, tools, self._limits)
            try:
                yield machine
            finally:
                await machine.close()
        finally:
            await to_its_end(asyncio.to_thread(slot.release))

    async def _prepare(self) -> Tools:
        async with self._preparing:
            if self._ready is None:
                self._ready = await asyncio.to_thread(_find_tools, self._binary)
            return self._ready


class BubblewrapMachine(LocalMachine):
    """One trial's sandbox."""

    backend = "bubblewrap"

    def __init__(self, planned: Plan, slot: Slot, tools: Tools, limits: Limits) -> None:
        env = dict(planned.env)
        env["PATH"] = f"{PYTHON}/bin:{env.get('PATH', PATH)}"
        super().__init__(planned.workdir, env)
        self._slot = slot
        self._tools = tools
        self._limits = limits
        self._shells = 0
        self._arguments = [str(tools.bwrap), *isolation(planned.host_network), *system(tools, slot, planned)]

    async def _spawn(
        self, argv: Sequence[str], *, env: Mapping[str, str], stdin: int | IO[bytes], stdout: int, scratch: Path | None
    ) -> Bwrap:
        arguments = list(self._arguments)
        inherited: tuple[int, ...] = ()
        if scratch is not None:
            # Small files in memory: on a disk each command's four would cost more than its processes.
            arguments += ["--size", str(SHELL_FOLDER_BYTES), "--tmpfs", SHELL_FOLDER]
            arguments += ["--bind", str(scratch), f"{SHELL_FOLDER}/out", "--ro-bind", str(self._tools.bash), DRIVER]
            # bwrap keeps fds 0 to 2 in the namespace's first process and closes all others there. That process belongs
            # to the commands' own user, who could take the session's socket out of it and answer as if the driver did.
            session = stdin if isinstance(stdin, int) else stdin.fileno()
            # When memory runs out, the kernel ends a sandbox before it ends us.
            first = f'exec <&{session} >&{session} {session}>&-; echo 1000 >/proc/self/oom_score_adj; exec "$@"'
            argv = ["/bin/bash", *_PRIVATE, first, "bash", *argv]
            inherited = (session,)
            stdin = stdout = asyncio.subprocess.DEVNULL
        # What is not one of the folders cannot be written: it would be lost between two bwraps.
        arguments += ["--remount-ro", "/", "--chdir", "/"]
        uid = self._slot.uid
        drop: dict[str, Any] = {} if uid is None else {"user": uid, "group": uid, "extra_groups": []}
        # Never into bwrap's own environment: a task's LD_PRELOAD would then be loaded on the host.
        settings = [word for name, value in env.items() for word in ("--setenv", name, value)]
        info, info_inside = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            process = await asyncio.create_subprocess_exec(
                *arguments,
                "--info-fd",
                str(info_inside),
                *settings,
                "--",
                *argv,
                stdin=stdin,
                stdout=stdout,
                stderr=asyncio.subprocess.PIPE,
                env={},
                cwd="/",
                pass_fds=(info_inside, *inherited),
                # Ctrl-C in the terminal is ours to handle; a sandbox that it killed would look like a fault.
                start_new_session=True,
                **drop,
            )
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            os.close(info)
            raise SandboxBroken(f"bwrap does not start: {error}") from error
        except BaseException:
            os.close(info)
            raise
        finally:
            os.close(info_inside)
        return Bwrap(process, info)

    def _scratch(self) -> tuple[Path, str]:
        self._shells += 1
        return self._slot.make(f"shells/{self._shells}", 0o700), SHELL_FOLDER

    def _driver(self) -> tuple[Sequence[str], Sequence[str]]:
        return [DRIVER, *_PRIVATE], self._limits.options()


class FolderCopy:
    """A `Copy`: all that was in the folders, in a tar."""

    def __init__(
        self,
        stream: IO[bytes],
        layout: Layout,
        open_bare: Callable[[], AbstractAsyncContextManager[BubblewrapMachine]],
        notes: tuple[str, ...],
    ) -> None:
        self._stream, self._layout, self._open_bare, self._notes = stream, layout, open_bare, notes
        self._read: CopiedFiles | None = None

    @asynccontextmanager
    async def start(self) -> AsyncIterator[Sandbox]:
        files = await self._files()
        async with self._open_bare() as machine:
            machine.notes = self._notes
            await machine.lay(files, self._layout)
            yield machine

    async def files(self, started: Sandbox) -> tuple[CopiedFiles, Layout]:
        return await self._files(), self._layout

    async def _files(self) -> CopiedFiles:
        if self._read is None:
            self._read = await asyncio.to_thread(CopiedFiles.read, self._stream)
        return self._read


async def _take_slot() -> Slot:
    """A thread cannot be cancelled: what it took is given back."""
    taking = asyncio.ensure_future(asyncio.to_thread(take_slot))
    try:
        return await asyncio.shield(taking)
    except asyncio.CancelledError:
        await asyncio.to_thread((await taking).release)
        raise


def _find_tools(binary: Path | None) -> Tools:
    """Raises SandboxMissing. Leftovers of runs that were killed are removed on the way."""
    if not hasattr(os, "pidfd_open") or not Path("/proc/self/uid_map").exists():
        raise SandboxMissing(f"bubblewrap cannot start here: {mend()}")
    try:
        remove_leftovers()
        return Tools(binary or bwrap(), task_environment(), _unreadable_bash())
    except OSError as error:
        raise SandboxMissing(f"bubblewrap cannot be prepared: {error}") from error


def _unreadable_bash() -> Path:
    """A copy of bash that may be executed and not read.

    The kernel gives the process of such a program no ptrace and no /proc/PID/{fd,mem,environ} to others of its uid: a
    command can kill the session's driver, but neither read its mind nor speak with its voice.
    """
    source = Path(os.path.realpath("/bin/bash"))
    stat = source.stat()
    folder = shared_folder("bash")
    copy = folder / f"{stat.st_size}-{stat.st_mtime_ns}"
    if not copy.exists():
        descriptor, building = tempfile.mkstemp(dir=folder)
        with os.fdopen(descriptor, "wb") as target, source.open("rb") as data:
            shutil.copyfileobj(data, target)
        os.chmod(building, 0o111)  # noqa: S103
        os.rename(building, copy)
    return copy
