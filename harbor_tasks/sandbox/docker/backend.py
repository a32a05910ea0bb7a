"""The sandbox of a Docker engine.

The task's image is what the task says it is: fetched by name, or built from environment/. A trial is one container of
it: a shell session is an exec inside that speaks over the engine's socket, files are tar streams made inside. It is
gone, with everything in it, when the trial ends.

What holds it: no capabilities but the few that root needs over its own files and processes, no new privileges, limits
on processes, memory (no swap) and cpus, a network of its own or none. Its kernel is the engine's; root inside is root
in the engine's user namespace.
"""

import asyncio
import posixpath
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from harbor_tasks.errors import SandboxBroken, SandboxMissing, TaskRefused
from harbor_tasks.format import Task, expand
from harbor_tasks.sandbox import Sandbox
from harbor_tasks.sandbox.docker.container import container
from harbor_tasks.sandbox.docker.engine import Engine, find
from harbor_tasks.sandbox.docker.images import Image, Images
from harbor_tasks.sandbox.docker.settings import settings
from harbor_tasks.sandbox.plan import BASE_ENV, DEFAULT_WORKDIR

_OF_ROOT = ("HOME", "USER", "LOGNAME")


class Docker:
    """The `Backend`. `runtime` names one of the engine's, else FULLCHAIN_DOCKER_RUNTIME does, else the default runs."""

    name = "docker"
    described = "docker"
    isolated = True
    warning: str | None = None

    def __init__(self, *, runtime: str | None = None) -> None:
        self._runtime = runtime
        self._finding = asyncio.Lock()
        self._found: tuple[Engine, Images] | None = None

    async def probe(self) -> None:
        await self._engine()

    def start(self, task: Task, *, allow_host_network: bool = False) -> AbstractAsyncContextManager[Sandbox]:
        """The host's network is never given: a public network is the container's own."""
        return self._start(task)

    async def image(self, task: Task) -> Image:
        """The task's image, fetched or built where it is not there yet.

        Raises TaskRefused when it cannot be had, SandboxMissing when no engine answers.
        """
        _, images = await self._engine()
        try:
            return await images.take(task)
        except TaskRefused as error:
            raise TaskRefused(f"task {task.name}: {error}") from error

    async def lacks(self, task: Task) -> str | None:
        """Why no sandbox of this task can be had here; None when one has started. Says it soon where its image would
        have to be fetched and no registry answers."""
        _, images = await self._engine()
        try:
            await images.reach(task)
            async with self._start(task):
                return None
        except (TaskRefused, SandboxBroken) as error:
            return str(error)

    async def missing(self, requires: tuple[str, ...]) -> tuple[str, ...]:
        """Nothing: what a task requires is in its own image, or its author has left it out."""
        return ()

    async def _engine(self) -> tuple[Engine, Images]:
        async with self._finding:
            if self._found is None:
                engine = await find()
                self._found = engine, Images(engine)
                self.described = f"{self.name} ({engine.described})"
            return self._found

    @asynccontextmanager
    async def _start(self, task: Task) -> AsyncIterator[Sandbox]:
        if unsupported := task.unsupported():
            raise TaskRefused(f"task {task.name}: not supported: {'; '.join(unsupported)}")
        engine, _ = await self._engine()
        # What needs no image is refused before one is made.
        try:
            chosen = settings(task, engine, runtime=self._runtime)
        except TaskRefused as error:
            raise TaskRefused(f"task {task.name}: {error}") from error
        image = await self.image(task)
        environment = task.config.environment
        workdir = posixpath.normpath(environment.workdir or image.workdir or DEFAULT_WORKDIR)
        base = {key: value for key, value in BASE_ENV.items() if not (image.user and key in _OF_ROOT)}
        env = {**base, **image.env, **expand(environment.env, table="environment")}
        foreign = _foreign(image, engine)
        async with container(engine, image, chosen, workdir, env) as machine:
            if foreign:
                machine.notes = (*machine.notes, f"the image is {foreign}: emulated")
            try:
                await machine.prepare()
            except SandboxMissing as error:
                why = f"it is {foreign}" if foreign else str(error)
                raise TaskRefused(f"task {task.name}: the image {image.name} cannot be used: {why}") from error
            except SandboxBroken as error:
                if foreign:
                    raise TaskRefused(f"task {task.name}: the image {image.name} is {foreign}: {error}") from error
                raise
            yield machine


def _foreign(image: Image, engine: Engine) -> str | None:
    if image.architecture in ("", engine.architecture):
        return None
    return f"for {image.architecture} and the engine runs {engine.architecture}"
