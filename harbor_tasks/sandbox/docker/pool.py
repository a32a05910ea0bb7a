"""Sandboxes prepared ahead: for the next tasks of a run, in its order, so that a trial does not wait for its container.

One is used once: what a trial leaves is removed with its container, never cleaned. How many stand ready is bounded by
how many trials run at a time, and by memory: those in use and those ready, each at its task's limit, must fit.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from harbor_tasks.errors import TaskRefused
from harbor_tasks.format import Task
from harbor_tasks.sandbox.docker.container import DockerMachine
from harbor_tasks.sandbox.docker.engine import Engine
from harbor_tasks.sandbox.docker.provision import Prepared, Provision
from harbor_tasks.sandbox.machine import to_its_end

UNLIMITED_MB = 1024
"""What a task without memory_mb is taken to need."""
_AT_ONCE = 2
"""More than this are not made ahead at a time: they compete with the trials that run."""
_LOOK_S = 0.01


@dataclass(slots=True)
class _Ahead:
    """One that is being made, or stands ready, and is nobody's yet."""

    task: Task
    making: "asyncio.Task[Prepared | Exception]"


class Pool:
    """For the trials of one run. `tasks` are those that will be asked for, in this order; `most` stand ready at a time;
    `memory_mb` is what all sandboxes together may take."""

    def __init__(self, provision: Provision, tasks: Sequence[Task], most: int, memory_mb: int) -> None:
        self._provision = provision
        self._next = deque(tasks)
        self._most = most
        self._memory_mb = memory_mb
        self._in_use_mb = 0
        self._ahead: list[_Ahead] = []
        self._refused: dict[str, str] = {}
        self._changed = asyncio.Event()

    @property
    def ready(self) -> int:
        """How many stand ready for use."""
        return sum(each.making.done() for each in self._ahead)

    async def warmed(self, task: Task) -> None:
        """Returns when one stands ready for this task. Raises TaskRefused when none can."""
        while not any(each.task.digest == task.digest and each.making.done() for each in self._ahead):
            if task.digest in self._refused:
                raise TaskRefused(self._refused[task.digest])
            await asyncio.sleep(_LOOK_S)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Prepares while it is open. On exit whatever nobody has used is removed."""
        preparing = asyncio.create_task(self._prepare())
        try:
            yield
        finally:
            await to_its_end(self._close(preparing))

    @asynccontextmanager
    async def lease(self, task: Task) -> AsyncIterator[DockerMachine]:
        """One for this task: ready, or being made, or made now. It is removed on exit.

        Raises what `Provision.prepared` does. What was refused once is not tried again.
        """
        with self.counted(task):
            prepared = await self._taken(task)
            async with prepared.ends:
                yield prepared.machine

    @contextmanager
    def counted(self, task: Task) -> Iterator[None]:
        """While it is open a sandbox of this task is in use, and what it may take is not there for others."""
        needs = _needs_mb(task)
        self._in_use_mb += needs
        try:
            yield
        finally:
            self._in_use_mb -= needs
            self._changed.set()

    async def _taken(self, task: Task) -> Prepared:
        while (each := self._claim(task)) is not None:
            try:
                made = await asyncio.shield(each.making)
            except asyncio.CancelledError:
                await to_its_end(self._drop(each))
                raise
            if isinstance(made, TaskRefused):
                break
            if isinstance(made, Exception):
                raise made
            if await self._lives(made):
                return made
            await self._provision.discard(made)
        if (refusal := self._refused.get(task.digest)) is not None:
            raise TaskRefused(refusal)
        try:
            return await self._provision.prepared(task)
        except TaskRefused as error:
            self._refuse(task, error)
            raise

    def _claim(self, task: Task) -> _Ahead | None:
        """One of this task, a ready one where there is. Where there is none its place in the order: it is made now."""
        same = [each for each in self._ahead if each.task.digest == task.digest]
        if not same:
            places = (place for place, planned in enumerate(self._next) if planned.digest == task.digest)
            if (place := next(places, None)) is not None:
                del self._next[place]
            return None
        chosen = next((each for each in same if each.making.done()), same[0])
        self._ahead.remove(chosen)
        self._changed.set()
        return chosen

    async def _lives(self, made: Prepared) -> bool:
        try:
            return await self._provision.lives(made)
        except asyncio.CancelledError:
            await self._provision.discard(made)
            raise

    async def _prepare(self) -> None:
        async with asyncio.TaskGroup() as group:
            while True:
                self._changed.clear()
                while self._has_room():
                    task = self._next.popleft()
                    self._ahead.append(_Ahead(task, group.create_task(self._make(task))))
                await self._changed.wait()

    def _has_room(self) -> bool:
        if not self._next or len(self._ahead) >= self._most or len(self._ahead) - self.ready >= _AT_ONCE:
            return False
        ahead_mb = sum(_needs_mb(each.task) for each in self._ahead)
        return self._in_use_mb + ahead_mb + _needs_mb(self._next[0]) <= self._memory_mb

    async def _make(self, task: Task) -> Prepared | Exception:
        """What went wrong is the trial's that takes it; where none has yet, one that comes makes its own."""
        try:
            return await self._provision.prepared(task, ahead=True)
        except Exception as error:
            if isinstance(error, TaskRefused):
                self._refuse(task, error)
            me = asyncio.current_task()
            self._ahead = [each for each in self._ahead if each.making is not me]
            return error
        finally:
            self._changed.set()

    def _refuse(self, task: Task, error: TaskRefused) -> None:
        self._refused[task.digest] = str(error)
        self._next = deque(each for each in self._next if each.digest != task.digest)

    async def _drop(self, each: _Ahead) -> None:
        each.making.cancel()
        (made,) = await asyncio.gather(each.making, return_exceptions=True)
        if isinstance(made, Prepared):
            await self._provision.discard(made)

    async def _close(self, preparing: "asyncio.Task[None]") -> None:
        preparing.cancel()
        (ended,) = await asyncio.gather(preparing, return_exceptions=True)
        left, self._ahead = self._ahead, []
        await asyncio.gather(*(self._drop(each) for each in left))
        await self._provision.sweep()
        if isinstance(ended, Exception):
            raise ended


def memory_mb(engine: Engine) -> int:
    """What the engine's machine has for sandboxes: all of it, or where that is this machine what is free on it."""
    least = int(engine.info.get("MemTotal") or 0) // 1024**2
    if engine.place.url.startswith("unix://") and (free := _free_mb()) is not None:
        least = min(least, free)
    return least


def _free_mb() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) // 1024 for line in lines if line.startswith("MemAvailable:")), None)


def _needs_mb(task: Task) -> int:
    return task.config.environment.memory_mb or UNLIMITED_MB
