"""One trial's container, seen as a sandbox."""

import asyncio
import contextlib
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import IO, TYPE_CHECKING, Any, TypeVar

from harbor_tasks.errors import SandboxBroken, SandboxMissing, SandboxSpoiled
from harbor_tasks.sandbox.archive import SIZE_LIMIT
from harbor_tasks.sandbox.docker.engine import Engine
from harbor_tasks.sandbox.docker.exec import Exec
from harbor_tasks.sandbox.docker.images import Image
from harbor_tasks.sandbox.docker.scripts import BASH, BEGIN, CLEAN, COPY_PATHS, FIRST, LIMITS
from harbor_tasks.sandbox.docker.settings import SHELLS, Settings
from harbor_tasks.sandbox.docker.streams import attach, hear, start_exec
from harbor_tasks.sandbox.docker.survivors import END, processes
from harbor_tasks.sandbox.docker.watcher import WATCHED, watched
from harbor_tasks.sandbox.machine import Machine, to_its_end
from harbor_tasks.sandbox.plan import OF_ROOT
from harbor_tasks.sandbox.session import Conversation, Session, driver_words

if TYPE_CHECKING:
    from docker import APIClient

_Result = TypeVar("_Result")
_ROOT = "0:0"
_GRACE_S = 0.05
"""For processes that end by themselves once their session is closed."""
_LOOK_S = 1.0
_MANY = 32
"""Processes beyond which a session's are not ended one by one: a restart takes them all at once."""
_END_GRACE_S = 1.0
"""For the kernel to take away what was killed, on a busy machine."""
_END_TIMEOUT_S = 5.0
_START_TIMEOUT_S = 60.0
_KEEP_S = 24 * 3600
"""How long a container runs that nobody ends."""
_READY = b"ready\n"
_EXIT_TIMEOUT_S = 10.0
_CANNOT_START = (126, 127)


class DockerMachine(Machine):
    """Commands run as the image's user, and so do the tools that move files: what they bring is its own."""

    backend = "docker"
    _owning = ("--same-owner", "--numeric-owner")

    def __init__(self, engine: Engine, container: str, image: Image, workdir: str, env: Mapping[str, str]) -> None:
        super().__init__(workdir, env)
        self.container = container
        self.image = image
        self._engine = engine
        self._user = image.user
        self._shells = 0
        self._own: frozenset[str] = frozenset()
        self._drivers: set[Exec] = set()
        self._waiting: Session | None = None
        self.fault: SandboxBroken | None = None
        """Why it was ended, where that was done on purpose: it is not started again, and nothing else is in it."""

    async def _asked(self, ask: "Callable[[APIClient], _Result]") -> _Result:
        """As `Engine.call`. What the engine says of a container that was ended on purpose is why, whatever it met with
        on the way: the end may come while it works."""
        try:
            return await self._engine.call(ask)
        except SandboxBroken as error:
            if self.fault is not None:
                raise self.fault from error
            raise

    async def prepare(self) -> None:
        """Starts the container and waits until the folders that every sandbox has are made. Raises SandboxMissing when
        the image lacks what shells need."""
        streams = await attach(*await self._asked(partial(hear, container=self.container)))
        try:
            await self._asked(lambda api: api.start(self.container))
            async with asyncio.timeout(_START_TIMEOUT_S):
                line = await streams.stdout.readline()
                errors = b"" if line == _READY else await streams.stderr.read()
        except TimeoutError:
            raise SandboxBroken(f"Docker: the container did not begin within {_START_TIMEOUT_S:g} s") from None
        finally:
            await streams.close()
        if line != _READY:
            raise SandboxMissing(_why_not(errors))
        await self._know_own()

    async def warm(self) -> None:
        """Has the first shell wait before it is asked for: starting one takes longer than a command."""
        self._waiting = await super().shell()

    async def shell(self, env: Mapping[str, str] | None = None, user: str | None = None) -> Session:
        waiting, self._waiting = self._waiting, None
        if waiting is not None and not env and user is None:
            return waiting
        if waiting is not None:
            await self._end(waiting)
        return await super().shell(env, user)

    async def _converse(self, env: Mapping[str, str], user: str | None) -> Conversation:
        if user is not None:
            # The engine finds them out for whom it is.
            env = {key: value for key, value in env.items() if key not in OF_ROOT}
        self._shells += 1
        folder = f"{SHELLS}/{self._shells}"
        words = driver_words(folder, LIMITS)
        begin = BEGIN if self._drivers else CLEAN + BEGIN
        running = await self._exec(
            [*BASH, begin + words[0], *words[1:]], env=env, user=user or self._user or _ROOT, folder=folder
        )
        self._drivers.add(running)
        return running, running.stdout, running.writer

    async def _run(self, argv: Sequence[str], *, env: Mapping[str, str], stdin: IO[bytes] | None) -> Exec:
        return await self._started(argv, env=env, user=self._user or _ROOT, stdin=stdin)

    async def _run_as_root(self, argv: Sequence[str], *, env: Mapping[str, str], stdin: IO[bytes] | None) -> Exec:
        return await self._started(argv, env=env, user=_ROOT, stdin=stdin)

    async def copy_paths(self, folders: Sequence[str], paths: Sequence[str], stream: IO[bytes]) -> None:
        """Packs into `stream`, rewound, these folders whole and of these paths what is there, without what is in them.
        Raises SandboxBroken."""
        with tempfile.TemporaryFile() as listed:
            listed.write(b"".join(path.encode(errors="surrogateescape") + b"\0" for path in paths))
            listed.seek(0)
            code, said = await self._tool(
                COPY_PATHS, *folders, stdin=listed, output=stream, limit=SIZE_LIMIT, as_root=True
            )
        if code not in (0, 1):
            raise SandboxBroken(f"its files cannot be copied: {said}")

    async def _started(
        self, argv: Sequence[str], *, env: Mapping[str, str], user: str, stdin: IO[bytes] | None = None
    ) -> Exec:
        running = await self._exec(argv, env=env, user=user)
        running.feed(stdin)
        return running

    async def _by_root(self, script: str, *arguments: str) -> tuple[int, str]:
        """Runs a script of ours. Returns its exit code and the last line of its errors."""
        words = [*BASH, script, "fullchain", *arguments]
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

    async def _exec(self, argv: Sequence[str], *, env: Mapping[str, str], user: str, folder: str | None = None) -> Exec:
        if self.fault is not None:
            raise self.fault
        start = partial(start_exec, container=self.container, argv=argv, environment=dict(env), user=user, workdir="/")
        starting = asyncio.ensure_future(self._asked(start))
        try:
            made, connection, early = await asyncio.shield(starting)
        except asyncio.CancelledError:
            # A thread cannot be cancelled: what it opened is closed.
            with contextlib.suppress(SandboxBroken):
                (await starting)[1].close()
            raise
        except SandboxBroken:
            if self.fault is not None or await self._runs():
                raise
            # A command ended the container's first process, or memory ran out. Its files are still there.
            await self._revive()
            made, connection, early = await self._asked(start)
        return Exec(self, made, await attach(connection, early), folder)

    async def exit_code(self, made: str) -> int:
        """The output may end a moment before the engine knows how the program did."""
        deadline = time.monotonic() + _EXIT_TIMEOUT_S
        while True:
            state: dict[str, Any] = await self._asked(lambda api: api.exec_inspect(made))
            if not state.get("Running") and state.get("ExitCode") is not None:
                return int(state["ExitCode"])
            if time.monotonic() > deadline:
                raise SandboxBroken("Docker: a program has closed its outputs and does not end")
            await asyncio.sleep(0.005)

    async def clear(self, ended: Exec) -> None:
        """Returns when no process of a session is left; of nobody, when it was the last one.

        While other sessions live, its own are told by descent. Then the engine is asked, whom no process inside can
        deceive; what does not go by a signal goes with the whole process namespace: a restart keeps the files.
        """
        self._drivers.discard(ended)
        if self._drivers:
            if ended.folder is not None:
                await self._by_root(END, ended.folder)
            return
        deadline = time.monotonic() + _GRACE_S
        while (found := await self._seen()) != self._own:
            # A command ended the container's first processes: it goes down, and would take the next shell along. Or
            # there are so many that they may start others faster than a script ends them.
            if found is None or not self._own <= found or len(found) > _MANY:
                await self._revive()
                return
            if time.monotonic() > deadline:
                break
            await asyncio.sleep(0.005)
        else:
            if await self._frozen() != self._own:
                await self._revive()
            return
        with contextlib.suppress(SandboxBroken):
            await self._by_root(END, "")
            deadline = time.monotonic() + _END_GRACE_S
            while time.monotonic() < deadline:
                if not await self._left():
                    if await self._frozen() == self._own:
                        return
                    break
                await asyncio.sleep(0.02)
        await self._revive()

    async def end(self) -> None:
        """Ends its sessions and removes it."""
        try:
            await self.close()
        finally:
            await _remove(self._engine, self.container)

    async def _runs(self) -> bool:
        state = await self._asked(lambda api: api.inspect_container(self.container))
        return bool(state["State"]["Running"])

    async def _frozen(self) -> frozenset[str] | None:
        """As `_processes`, of a container that stands still: who forks and ends faster than a list is made would be in
        none. None where it cannot be held still."""

        def look(api: "APIClient") -> frozenset[str]:
            api.pause(self.container)
            try:
                return frozenset(processes(api, self.container))
            finally:
                api.unpause(self.container)

        with contextlib.suppress(SandboxBroken):
            return await self._asked(look)
        return None

    async def _open(self, cwd: str, env: Mapping[str, str], user: str | None, *, keep: str = "") -> Session:
        """What an agent has left may keep the next shell from starting: memory that its files hold goes with a restart;
        what it did to the image's programs is its own doing, and no fault of the machine."""
        first = self._shells == 0
        try:
            return await super()._open(cwd, env, user, keep=keep)
        except SandboxBroken:
            if first or self.fault is not None:
                raise
            await self._revive()
            if not await self._runs():
                raise SandboxSpoiled("the container no longer starts after what was done in it") from None
            try:
                return await super()._open(cwd, env, user, keep=keep)
            except SandboxBroken as error:
                raise SandboxSpoiled(f"after what was done in the container {error}") from error

    async def _left(self) -> bool:
        return bool(await self._processes() - self._own)

    async def _seen(self) -> frozenset[str] | None:
        """None where there is so much to see that the engine does not come to an end."""
        try:
            async with asyncio.timeout(_LOOK_S):
                return await self._processes()
        except TimeoutError:
            return None

    async def _processes(self) -> frozenset[str]:
        """The engine's numbers of the processes inside; none when the container has ended."""
        return frozenset(await self._asked(partial(processes, container=self.container)))

    async def _revive(self) -> None:
        if self.fault is not None:
            return
        await self._asked(lambda api: api.restart(self.container, timeout=0))
        await self._know_own()

    async def _know_own(self) -> None:
        """The container's own processes are two: the init, and the sleep that keeps it up."""
        deadline = time.monotonic() + _END_GRACE_S
        own = await self._asked(partial(processes, container=self.container))
        while not (len(own) == 2 and any(words.startswith("sleep") for words in own.values())):
            if time.monotonic() > deadline:
                break
            await asyncio.sleep(0.005)
            own = await self._asked(partial(processes, container=self.container))
        self._own = frozenset(own)


@asynccontextmanager
async def container(
    engine: Engine, image: Image, settings: Settings, workdir: str, env: Mapping[str, str]
) -> AsyncIterator[DockerMachine]:
    """A container that `prepare` starts, gone with everything in it on exit."""
    notes = list(settings.notes)
    creating = asyncio.ensure_future(_create(engine, image, settings, workdir, notes))
    try:
        made = await asyncio.shield(creating)
    except asyncio.CancelledError:
        with contextlib.suppress(SandboxBroken):
            await _remove(engine, await creating)
        raise
    machine = DockerMachine(engine, made, image, workdir, env)
    machine.notes = tuple(notes)
    try:
        async with watched(engine, machine, settings.storage_mb if WATCHED in notes else None):
            yield machine
    finally:
        await to_its_end(machine.end())


async def _create(engine: Engine, image: Image, settings: Settings, workdir: str, notes: list[str]) -> str:
    host = dict(settings.host)
    first = [*BASH, FIRST, "fullchain", workdir, image.user or "root", str(_KEEP_S)]

    def create(api: "APIClient") -> str:
        config = api.create_host_config(**host)
        # The proxy of the CLI's settings may hold a password.
        made: dict[str, Any] = api.create_container(
            image.id, host_config=config, entrypoint=first, use_config_proxy=False, **settings.create
        )
        return str(made["Id"])

    try:
        return await engine.call(create)
    except SandboxBroken:
        # Engines refuse a quota in words of their own; where that was not why, they refuse again.
        if "storage_opt" not in host:
            raise
        del host["storage_opt"]
        notes.append(WATCHED)
        return await engine.call(create)


def _why_not(errors: bytes) -> str:
    said = errors.decode("utf-8", errors="replace").strip().splitlines()
    last = said[-1] if said else "it ended at once"
    if "/bin/bash" in last and "No such file" in last:
        return "it has no /bin/bash"
    return "it is for another kind of processor" if "Exec format" in last else last


async def _remove(engine: Engine, made: str) -> None:
    from docker.errors import NotFound

    def remove(api: "APIClient") -> None:
        with contextlib.suppress(NotFound):
            api.remove_container(made, force=True, v=True)

    await engine.call(remove)
