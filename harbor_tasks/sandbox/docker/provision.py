"""From a task to a container that is ready for it, within a bound; tried again where the engine alone was at fault."""

import asyncio
import contextlib
import posixpath
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tenacity import AsyncRetrying, retry_if_exception, stop_after_attempt, wait_exponential_jitter

from harbor_tasks.errors import SandboxBroken, SandboxMissing, TaskRefused
from harbor_tasks.format import Task, expand
from harbor_tasks.sandbox.docker.container import DockerMachine, container
from harbor_tasks.sandbox.docker.engine import Engine
from harbor_tasks.sandbox.docker.images import Image, Images
from harbor_tasks.sandbox.docker.settings import Settings, settings
from harbor_tasks.sandbox.machine import to_its_end
from harbor_tasks.sandbox.plan import BASE_ENV, DEFAULT_WORKDIR

if TYPE_CHECKING:
    from docker import APIClient

READY_S = 60.0
"""For one try: create, start and prepare together. The image, which may have to be built, has its own time-out."""
TRIES = 4
"""The first, and three more."""
FIRST_WAIT_S, LONGEST_WAIT_S, JITTER_S = 0.5, 8.0, 0.5
OLDEST_S = 12 * 3600.0
"""A container ends by itself after a day: one that has waited this long would not last a long trial."""

_OF_ROOT = ("HOME", "USER", "LOGNAME")


@dataclass(frozen=True, slots=True)
class Prepared:
    """A container that runs and has not been used. Whoever holds it closes `ends`, and it is gone."""

    machine: DockerMachine
    ends: AsyncExitStack
    made_at: float
    """time.monotonic()."""


class Provision:
    """What makes the containers of one engine. `runtime` as in `settings`."""

    def __init__(self, engine: Engine, images: Images, runtime: str | None = None) -> None:
        self._engine = engine
        self._images = images
        self._runtime = runtime
        self._doubtful: set[str] = set()
        """Names of containers that could not be removed, or may be made yet by an engine that did not answer."""

    async def image(self, task: Task) -> Image:
        try:
            return await self._images.take(task)
        except TaskRefused as error:
            raise TaskRefused(f"task {task.name}: {error}") from error

    async def prepared(self, task: Task, *, ahead: bool = False) -> Prepared:
        """`ahead`: nobody waits for it yet, so that the agent's shell is begun as well, where it is the image's user's.

        Raises TaskRefused, SandboxMissing for a runtime that is not there, and SandboxBroken when no try has brought
        a container; none of the tries leaves one."""
        if unsupported := task.unsupported():
            raise TaskRefused(f"task {task.name}: not supported: {'; '.join(unsupported)}")
        # What needs no image is refused before one is made.
        self._settings(task)
        return await self.of_image(task, await self.image(task), ahead=ahead)

    async def of_image(self, task: Task, image: Image, *, ahead: bool = False) -> Prepared:
        """The same of another image than the task's own."""
        retrying = AsyncRetrying(
            stop=stop_after_attempt(TRIES),
            wait=wait_exponential_jitter(multiplier=FIRST_WAIT_S, max=LONGEST_WAIT_S, jitter=JITTER_S),
            retry=retry_if_exception(_passes),
            reraise=True,
        )
        return await retrying(self._once, task, image, ahead)

    async def lives(self, prepared: Prepared) -> bool:
        """Whether a container that was made ahead is still there to be used. One short question."""
        if time.monotonic() - prepared.made_at > OLDEST_S:
            return False
        with contextlib.suppress(SandboxBroken):
            state = await self._engine.call(lambda api: api.inspect_container(prepared.machine.container)["State"])
            return bool(state["Running"]) and not state.get("Paused")
        return False

    async def discard(self, prepared: Prepared) -> None:
        """Removes one that nobody has used; where that fails, `sweep` tries again."""
        try:
            await to_its_end(prepared.ends.aclose())
        except SandboxBroken:
            self._doubtful.add(prepared.machine.container)

    async def sweep(self) -> None:
        """Removes what earlier tries may have left. What cannot be removed now is a leftover for the next run."""
        for name in tuple(self._doubtful):
            with contextlib.suppress(SandboxBroken):
                await self._remove(name)
                self._doubtful.discard(name)

    def _settings(self, task: Task) -> Settings:
        try:
            return settings(task, self._engine, runtime=self._runtime)
        except TaskRefused as error:
            raise TaskRefused(f"task {task.name}: {error}") from error

    async def _once(self, task: Task, image: Image, ahead: bool) -> Prepared:
        # A name of its own for each try: an engine that answers late may still hold the last one's.
        chosen = self._settings(task)
        name = str(chosen.create["name"])
        self._doubtful.add(name)
        try:
            made = await self._made(task, image, chosen, ahead)
        except BaseException:
            # The name stays: an engine that did not answer in time may make the container yet.
            with contextlib.suppress(SandboxBroken):
                await to_its_end(self._remove(name))
            raise
        self._doubtful.discard(name)
        return made

    async def _made(self, task: Task, image: Image, chosen: Settings, ahead: bool) -> Prepared:
        workdir, env = _inside(task, image)
        foreign = _foreign(image, self._engine)
        async with AsyncExitStack() as ends:
            try:
                async with asyncio.timeout(READY_S):
                    machine = await ends.enter_async_context(container(self._engine, image, chosen, workdir, env))
                    await machine.prepare()
                    if ahead and task.config.agent.user is None:
                        await machine.warm()
            except TimeoutError:
                raise SandboxBroken(f"Docker: the container was not ready within {READY_S:g} s") from None
            except SandboxMissing as error:
                why = f"it is {foreign}" if foreign else str(error)
                raise TaskRefused(f"task {task.name}: the image {image.name} cannot be used: {why}") from error
            except SandboxBroken as error:
                if foreign:
                    raise TaskRefused(f"task {task.name}: the image {image.name} is {foreign}: {error}") from error
                raise
            if foreign:
                machine.notes = (*machine.notes, f"the image is {foreign}: emulated")
            return Prepared(machine, ends.pop_all(), time.monotonic())

    async def _remove(self, name: str) -> None:
        from docker.errors import NotFound

        def remove(api: "APIClient") -> None:
            with contextlib.suppress(NotFound):
                api.remove_container(name, force=True, v=True)

        await self._engine.call(remove)


def _passes(error: BaseException) -> bool:
    """Whether another try may do better: the engine was slow, gone, or failed by itself. What it refuses, it will
    refuse again."""
    status = getattr(error.__cause__, "status_code", None)
    return isinstance(error, SandboxBroken) and not (status is not None and 400 <= status < 500)


def _inside(task: Task, image: Image) -> tuple[str, Mapping[str, str]]:
    """The working directory and the variables that every command starts with."""
    environment = task.config.environment
    workdir = posixpath.normpath(environment.workdir or image.workdir or DEFAULT_WORKDIR)
    base = {key: value for key, value in BASE_ENV.items() if not (image.user and key in _OF_ROOT)}
    return workdir, {**base, **image.env, **expand(environment.env, table="environment")}


def _foreign(image: Image, engine: Engine) -> str | None:
    if image.architecture in ("", engine.architecture):
        return None
    return f"for {image.architecture} and the engine runs {engine.architecture}"
