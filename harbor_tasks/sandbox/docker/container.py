"""One trial's container, seen as a sandbox."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import IO, TYPE_CHECKING, Any

from harbor_tasks.errors import SandboxBroken, SandboxMissing
from harbor_tasks.sandbox.docker.engine import Engine
from harbor_tasks.sandbox.docker.images import Image
from harbor_tasks.sandbox.docker.settings import SHELLS, Settings
from harbor_tasks.sandbox.docker.streams import Duplex, attach, start_exec
from harbor_tasks.sandbox.docker.survivors import END, processes
from harbor_tasks.sandbox.machine import Machine, to_its_end
from harbor_tasks.sandbox.session import Conversation, driver_words

if TYPE_CHECKING:
    from docker import APIClient

OUTPUTS = "/var/lib/fullchain"
"""Inside: a flood of output fills the container's layer, not its memory."""
_ROOT = "0:0"
_BASH = ("/bin/bash", "--norc", "--noprofile", "-p", "-c")
"""-p: a task's BASH_ENV may name a file that commands can write, and the driver must not run it."""
_LIMITS = ["-c", "0", "-f", str(4 * 1024**2), "-n", "4096"]
"""No core files; 4 GiB a file (bash counts 1024 bytes), so that a flood ends before the disk does."""
_CLEAN = f"""
[ -d {OUTPUTS} ] && [ ! -L {OUTPUTS} ] || {{ rm -rf -- {OUTPUTS}; mkdir -m 1777 {OUTPUTS}; }}
find {SHELLS} {OUTPUTS} -mindepth 1 -delete 2>/dev/null
"""
"""Where no other session lives: what an agent has left must not keep the next session from starting."""
_BEGIN = f"""
umask 077
mkdir -p -- "$1" && mkdir -p -- {OUTPUTS}/"${{1##*/}}" && ln -sfn -- {OUTPUTS}/"${{1##*/}}" "$1/out" || exit
echo $$ >"$1/pid"
"""
_PREPARE = f"""
for program in timeout head stat tar find mktemp chmod mkdir rm mv; do
  command -v $program >/dev/null || {{ echo "it has no $program" >&2; exit 1; }}
done
umask 022
mkdir -p -m 1777 {OUTPUTS} && mkdir -p /logs/agent /logs/verifier /logs/artifacts /tests /solution || exit
[ "$2" = root ] || chown -R -- "$2" /logs /tests /solution || exit
[ -d "$1" ] || {{ mkdir -p -- "$1" && {{ [ "$2" = root ] || chown -- "$2" "$1"; }}; }}
"""
_GRACE_S = 0.05
"""For processes that end by themselves once their session is closed."""
_END_GRACE_S = 1.0
"""For the kernel to take away what was killed, on a busy machine."""
_END_TIMEOUT_S = 5.0
_EXIT_TIMEOUT_S = 10.0
_CANNOT_START = (126, 127)


class DockerMachine(Machine):
    """Commands run as the image's user, and so do the tools that move files: what they bring is its own."""

    backend = "docker"

    def __init__(self, engine: Engine, container: str, image: Image, workdir: str, env: Mapping[str, str]) -> None:
        super().__init__(workdir, env)
        self.container = container
        self._engine = engine
        self._user = image.user
        self._shells = 0
        self._own: frozenset[str] = frozenset()
        self._drivers: set[Exec] = set()

    async def prepare(self) -> None:
        """Makes the folders that every sandbox has. Raises SandboxMissing when the image lacks what shells need."""
        await self._know_own()
        try:
            code, said = await self._by_root(_PREPARE, self.workdir, self._user or "root")
        except SandboxBroken as error:
            if "no such file" in str(error) or "not found" in str(error):
                raise SandboxMissing("it has no /bin/bash") from error
            if "exec format" in str(error):
                raise SandboxMissing("it is for another kind of processor") from error
            raise
        if code != 0:
            raise SandboxMissing(said or f"its folders cannot be made (exit code {code})")

    async def _converse(self, env: Mapping[str, str]) -> Conversation:
        self._shells += 1
        folder = f"{SHELLS}/{self._shells}"
        words = driver_words(folder, _LIMITS)
        begin = _BEGIN if self._drivers else _CLEAN + _BEGIN
        running = await self._exec(
            [*_BASH, begin + words[0], *words[1:]], env=env, user=self._user or _ROOT, folder=folder
        )
        self._drivers.add(running)
        return running, running.stdout, running.writer

    async def _run(self, argv: Sequence[str], *, env: Mapping[str, str], stdin: IO[bytes] | None) -> "Exec":
        return await self._started(argv, env=env, user=self._user or _ROOT, stdin=stdin)

    async def _started(
        self, argv: Sequence[str], *, env: Mapping[str, str], user: str, stdin: IO[bytes] | None = None
    ) -> "Exec":
        running = await self._exec(argv, env=env, user=user)
        running.feed(stdin)
        return running

    async def _by_root(self, script: str, *arguments: str) -> tuple[int, str]:
        """Runs a script of ours. Returns its exit code and the last line of its errors."""
        words = [*_BASH, script, "fullchain", *arguments]
        running = await self._started(words, env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}, user=_ROOT)
        try:
            async with asyncio.timeout(_END_TIMEOUT_S):
                out, errors = await asyncio.gather(running.stdout.read(), running.stderr.read())
                code = await running.wait()
        except TimeoutError:
            raise SandboxBroken(f"a script in the container took longer than {_END_TIMEOUT_S:g} s") from None
        finally:
            await running.close()
        if code in _CANNOT_START and out:
            raise SandboxBroken(f"Docker: {out.decode('utf-8', errors='replace').strip()[:500]}")
        said = errors.decode("utf-8", errors="replace").strip().splitlines()
        return code, said[-1] if said else ""

    async def _exec(
        self, argv: Sequence[str], *, env: Mapping[str, str], user: str, folder: str | None = None
    ) -> "Exec":
        start = partial(start_exec, container=self.container, argv=argv, environment=dict(env), user=user, workdir="/")
        starting = asyncio.ensure_future(self._engine.call(start))
        try:
            made, connection, early = await asyncio.shield(starting)
        except asyncio.CancelledError:
            # A thread cannot be cancelled: what it opened is closed.
            with contextlib.suppress(SandboxBroken):
                (await starting)[1].close()
            raise
        except SandboxBroken:
            if await self._runs():
                raise
            # A command ended the container's first process, or memory ran out. Its files are still there.
            await self._revive()
            made, connection, early = await self._engine.call(start)
        return Exec(self, made, await attach(connection, early), folder)

    async def exit_code(self, made: str) -> int:
        """The output may end a moment before the engine knows how the program did."""
        deadline = time.monotonic() + _EXIT_TIMEOUT_S
        while True:
            state: dict[str, Any] = await self._engine.call(lambda api: api.exec_inspect(made))
            if not state.get("Running") and state.get("ExitCode") is not None:
                return int(state["ExitCode"])
            if time.monotonic() > deadline:
                raise SandboxBroken("Docker: a program has closed its outputs and does not end")
            await asyncio.sleep(0.005)

    async def clear(self, ended: "Exec") -> None:
        """Returns when no process of a session is left; of nobody, when it was the last one.

        While other sessions live, its own are told by descent. Then the engine is asked, whom no process inside can
        deceive; what does not go by a signal goes with the whole process namespace: a restart keeps the files.
        """
        self._drivers.discard(ended)
        if self._drivers:
            if ended.folder is not None:
                await self._by_root(END, ended.folder)
            return
        if not self._own <= await self._processes():
            # A command ended the container's first processes: it is going down, and would take the next shell with it.
            await self._revive()
            return
        deadline = time.monotonic() + _GRACE_S
        while await self._left():
            if time.monotonic() > deadline:
                break
            await asyncio.sleep(0.005)
        else:
            return
        with contextlib.suppress(SandboxBroken):
            await self._by_root(END, "")
            deadline = time.monotonic() + _END_GRACE_S
            while time.monotonic() < deadline:
                if not await self._left():
                    return
                await asyncio.sleep(0.02)
        await self._revive()

    async def _runs(self) -> bool:
        state = await self._engine.call(lambda api: api.inspect_container(self.container))
        return bool(state["State"]["Running"])

    async def _left(self) -> bool:
        return bool(await self._processes() - self._own)

    async def _processes(self) -> frozenset[str]:
        """The engine's numbers of the processes inside; none when the container has ended."""
        return await self._engine.call(partial(processes, container=self.container))

    async def _revive(self) -> None:
        await self._engine.call(lambda api: api.restart(self.container, timeout=0))
        await self._know_own()
        if self._user:
            # The engine mounts it anew with the mode of the folder under it.
            await self._by_root(f"chmod 1777 {SHELLS}")

    async def _know_own(self) -> None:
        """The container's own processes are two: the init, and what that starts a moment later."""
        deadline = time.monotonic() + _GRACE_S
        while len(own := await self._processes()) < 2 and time.monotonic() < deadline:  # noqa: ASYNC110 (no event)
            await asyncio.sleep(0.002)
        self._own = own


class Exec:
    """A program that the engine started inside the container."""

    def __init__(self, machine: DockerMachine, made: str, streams: Duplex, folder: str | None) -> None:
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


@asynccontextmanager
async def container(
    engine: Engine, image: Image, settings: Settings, workdir: str, env: Mapping[str, str]
) -> AsyncIterator[DockerMachine]:
    """A container that runs, gone with everything in it on exit."""
    notes = list(settings.notes)
    creating = asyncio.ensure_future(_create(engine, image, settings, notes))
    try:
        made = await asyncio.shield(creating)
    except asyncio.CancelledError:
        with contextlib.suppress(SandboxBroken):
            await _remove(engine, await creating)
        raise
    try:
        await engine.call(lambda api: api.start(made))
        machine = DockerMachine(engine, made, image, workdir, env)
        machine.notes = tuple(notes)
        try:
            yield machine
        finally:
            await machine.close()
    finally:
        await to_its_end(_remove(engine, made))


async def _create(engine: Engine, image: Image, settings: Settings, notes: list[str]) -> str:
    host = dict(settings.host)

    def create(api: "APIClient") -> str:
        config = api.create_host_config(**host)
        made: str = api.create_container(image.id, host_config=config, **settings.create)["Id"]
        return made

    try:
        return await engine.call(create)
    except SandboxBroken as error:
        if "storage_opt" not in host or "storage-opt" not in str(error).lower():
            raise
        del host["storage_opt"]
        notes.append("storage limit not enforced")
        return await engine.call(create)


async def _remove(engine: Engine, made: str) -> None:
    from docker.errors import NotFound

    def remove(api: "APIClient") -> None:
        with contextlib.suppress(NotFound):
            api.remove_container(made, force=True, v=True)

    await engine.call(remove)
