"""Keep-alive pings: while a role's lane waits, its last request is sent again in time, so that its cache lives on.

    request ── every_s ──▶ ping 1 ── every_s ──▶ ping 2 ...      until the role asks again

A ping is a call like any other, booked under the turn `k<n>`. A role is pinged no more once a ping missed or brought no
answer (what could not be kept is not worth going on for), when time or money is used up, and when the trial ends.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from contextvars import copy_context
from dataclasses import dataclass
from datetime import datetime, timedelta

from agents.clock import Clock
from agents.errors import DeadlinePassed
from cost_model.calls import SpendingStopped


@dataclass(frozen=True, slots=True)
class KeepAlive:
    """`every_s`: seconds from the start of the lane's last request, where the cache's clock starts too. `most`: pings
    in one wait, None for as many as it takes."""

    every_s: float
    most: int | None = None


class Background:
    """What goes on beside the visits of one attempt. It ends with the attempt, and what broke in it is raised then.

    Its tasks act in the context in which it was opened, and so as no lane of the clock but their own.
    """

    def __init__(self) -> None:
        self._context = copy_context()
        self._tasks: set[asyncio.Task[None]] = set()
        self._pingers: list[Pinger] = []

    @classmethod
    @asynccontextmanager
    async def open(cls) -> AsyncIterator["Background"]:
        """On the way out what is under way is waited for, since it is paid for; when the attempt broke or was cancelled
        it is cut off."""
        background = cls()
        try:
            yield background
            await asyncio.gather(*background._tasks)
        finally:
            for task in background._tasks:
                task.cancel()
            await asyncio.gather(*background._tasks, return_exceptions=True)

    async def rest(self) -> None:
        """Nothing begins any more. To be called while the clock stands still, or it would run to the next ping."""
        for pinger in self._pingers:
            await pinger.rest()

    def start(self, work: Coroutine[None, None, None]) -> "asyncio.Task[None]":
        task = asyncio.get_running_loop().create_task(work, context=self._context.copy())
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def add(self, pinger: "Pinger") -> None:
        self._pingers.append(pinger)

    def _done(self, task: "asyncio.Task[None]") -> None:
        # One that broke is kept: its exception is raised on the way out.
        if task.cancelled() or task.exception() is None:
            self._tasks.discard(task)


class Pinger:
    """One role's pings. `ping(n)` sends the lane's n-th ping, and returns when it was sent, None when it missed.

    `lane` is the name under which the pings wait on the clock, `deadline` a moment on it.
    """

    def __init__(
        self,
        background: Background,
        plan: KeepAlive,
        ping: Callable[[int], Awaitable[datetime | None]],
        *,
        clock: Clock,
        lane: str,
        deadline: datetime | None,
    ) -> None:
        self._background, self._plan, self._ping = background, plan, ping
        self._clock, self._lane, self._deadline = clock, lane, deadline
        self._sent = 0
        self._over = False
        self._wait: _Wait | None = None
        background.add(self)

    async def rest(self) -> None:
        """No ping begins from now on. One that is under way goes on beside what comes."""
        wait, self._wait = self._wait, None
        if wait is not None and wait.task is not None and not wait.pinging:
            wait.task.cancel()
            await asyncio.wait([wait.task])

    async def go_on(self, since: datetime, alive_until: datetime | None) -> None:
        """The lane waits from now on. Its last request began at `since`; what it left in the cache can be read until
        `alive_until` (None: no end is stated)."""
        if not self._over and self._wait is None:
            self._wait = _Wait()
            self._wait.task = self._background.start(self._keep(self._wait, since, alive_until))
            # It is to stand on the clock before the clock goes on, and tasks begin when the loop next turns.
            await asyncio.sleep(0)

    async def _keep(self, wait: "_Wait", since: datetime, alive_until: datetime | None) -> None:
        async with self._clock.lane(self._lane):
            if alive_until is not None and self._clock.now() > alive_until:
                # The answer took longer than the entry lived: pinging would only rebuild it earlier.
                return
            try:
                async with self._clock.deadline(self._deadline):
                    for _ in itertools.count() if self._plan.most is None else range(self._plan.most):
                        due = since + timedelta(seconds=self._plan.every_s)
                        await self._clock.sleep(max(0.0, (due - self._clock.now()).total_seconds()))
                        self._sent += 1
                        wait.pinging = True
                        began = await self._ping(self._sent)
                        wait.pinging = False
                        if began is None:
                            self._over = True
                        if began is None or self._wait is not wait:
                            return
                        since = began
            except (DeadlinePassed, SpendingStopped):
                self._over = True


@dataclass(slots=True)
class _Wait:
    """Between two requests of the role. `pinging`: a ping is under way."""

    task: asyncio.Task[None] | None = None
    pinging: bool = False
