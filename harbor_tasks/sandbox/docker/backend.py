"""The sandbox of a Docker engine.

The task's image is what the task says it is: fetched by name, or built from environment/. A trial is one container of
it: a shell session is an exec inside that speaks over the engine's socket, files are tar streams made inside. It is
gone, with everything in it, when the trial ends.

What holds it: no capabilities but the few that root needs over its own files and processes, no new privileges, limits
on processes, memory (no swap) and cpus, no network or the engine's bridge. Its kernel is the engine's; root inside is
root in the engine's user namespace.
"""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext

from harbor_tasks.errors import SandboxBroken, StateUnfit, TaskRefused
from harbor_tasks.format import Task
from harbor_tasks.sandbox import Sandbox
from harbor_tasks.sandbox.copied_files import CopiedFiles, Layout
from harbor_tasks.sandbox.docker.container import DockerMachine
from harbor_tasks.sandbox.docker.copies import ImageCopy, committed
from harbor_tasks.sandbox.docker.engine import Engine, find
from harbor_tasks.sandbox.docker.images import Image, Images
from harbor_tasks.sandbox.docker.leftovers import counted, reap
from harbor_tasks.sandbox.docker.pool import Pool, memory_mb
from harbor_tasks.sandbox.docker.provision import Provision

_REAP_TIMEOUT_S = 60.0


class Docker:
    """The `Backend`. `runtime` names one of the engine's, else FULLCHAIN_DOCKER_RUNTIME does, else the default runs."""

    name = "docker"
    described = "docker"
    isolated = copies = True
    warning: str | None = None

    def __init__(self, *, runtime: str | None = None) -> None:
        self._runtime = runtime
        self._finding = asyncio.Lock()
        self._found: tuple[Engine, Images, Provision] | None = None
        self._pool: Pool | None = None

    @property
    def ready(self) -> int:
        """How many sandboxes stand prepared ahead and unused."""
        return 0 if self._pool is None else self._pool.ready

    async def probe(self) -> None:
        await self._engine()

    def start(self, task: Task, *, allow_host_network: bool = False) -> AbstractAsyncContextManager[Sandbox]:
        """The host's network is never given: a public task's container is on the engine's bridge."""
        return self._start(task)

    def ahead(
        self, tasks: Sequence[Task], concurrency: int, told: Callable[[str], None] = lambda _: None
    ) -> AbstractAsyncContextManager[None]:
        """Also removes, first, what runs that were killed have left in the engine."""
        return self._ahead(tasks, concurrency, told)

    async def warmed(self, task: Task) -> None:
        """Returns when a sandbox of this task stands prepared ahead. Raises TaskRefused when none can."""
        if self._pool is None:
            raise ValueError("no sandboxes are being prepared ahead")
        await self._pool.warmed(task)

    async def image(self, task: Task) -> Image:
        """The task's image, fetched or built where it is not there yet.

        Raises TaskRefused when it cannot be had, SandboxMissing when no engine answers.
        """
        _, _, provision = await self._engine()
        return await provision.image(task)

    async def lacks(self, task: Task) -> str | None:
        """Why no sandbox of this task can be had here; None when one has started. Says it soon where its image would
        have to be fetched and no registry answers."""
        _, images, _ = await self._engine()
        try:
            await images.reach(task)
            async with self._start(task):
                return None
        except (TaskRefused, SandboxBroken) as error:
            return str(error)

    @asynccontextmanager
    async def copied(
        self, task: Task, sandbox: Sandbox, *, allow_host_network: bool = False
    ) -> AsyncIterator["ImageCopy"]:
        if not isinstance(sandbox, DockerMachine):
            raise SandboxBroken(f"a sandbox of {sandbox.backend} cannot be copied by {self.name}")
        engine, _, _ = await self._engine()
        async with committed(engine, sandbox) as (image, layout, paths):
            with tempfile.TemporaryFile() as stream:
                yield ImageCopy(lambda: self._of(task, image), layout, paths, stream)

    @asynccontextmanager
    async def restored(
        self, task: Task, files: CopiedFiles, layout: Layout, *, allow_host_network: bool = False
    ) -> AsyncIterator[Sandbox]:
        if layout.backend != self.name:
            raise StateUnfit(f"the state was taken in {layout.backend} and cannot be laid into {self.name}")
        async with self._start(task) as machine:
            await machine.lay(files, layout)
            yield machine

    async def missing(self, requires: tuple[str, ...]) -> tuple[str, ...]:
        """Nothing: what a task requires is in its own image, or its author has left it out."""
        return ()

    async def _engine(self) -> tuple[Engine, Images, Provision]:
        async with self._finding:
            if self._found is None:
                engine = await find()
                images = Images(engine)
                self._found = engine, images, Provision(engine, images, self._runtime)
                self.described = f"{self.name} ({engine.described})"
            return self._found

    @asynccontextmanager
    async def _of(self, task: Task, image: Image) -> AsyncIterator[DockerMachine]:
        """One that is made of another image than the task's own."""
        _, _, provision = await self._engine()
        with self._pool.counted(task) if self._pool is not None else nullcontext():
            prepared = await provision.of_image(task, image)
            async with prepared.ends:
                yield prepared.machine

    @asynccontextmanager
    async def _start(self, task: Task) -> AsyncIterator[DockerMachine]:
        _, _, provision = await self._engine()
        if self._pool is not None:
            async with self._pool.lease(task) as machine:
                yield machine
        else:
            prepared = await provision.prepared(task)
            async with prepared.ends:
                yield prepared.machine

    @asynccontextmanager
    async def _ahead(self, tasks: Sequence[Task], concurrency: int, told: Callable[[str], None]) -> AsyncIterator[None]:
        if self._pool is not None:
            raise ValueError("sandboxes are being prepared ahead for another run of this backend")
        engine, _, provision = await self._engine()
        await _reaped(engine, told)
        pool = Pool(provision, tasks, concurrency, memory_mb(engine))
        self._pool = pool
        try:
            async with pool.open():
                yield
        finally:
            self._pool = None


async def _reaped(engine: Engine, told: Callable[[str], None]) -> None:
    """What cannot be removed is told, and keeps nobody from running."""
    try:
        async with asyncio.timeout(_REAP_TIMEOUT_S):
            removed = await reap(engine)
    except SandboxBroken as error:
        told(f"what runs that were killed have left in Docker cannot be found: {error}")
        return
    except TimeoutError:
        told("what runs that were killed have left in Docker is not removed yet: `fullchain sandboxes reap`")
        return
    if removed.things:
        told(f"removed what runs that were killed had left in Docker: {counted(removed.things)}")
    for line in removed.failed:
        told(f"left in Docker by a run that was killed, and cannot be removed: {line}")
