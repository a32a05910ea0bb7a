"""Time as the trial sees it: the wall's, or a discrete-event clock for simulated models.

Nothing inside a trial may wait without the clock. The virtual clock stands still while any lane does real work. When
all lanes sleep it jumps to the earliest sleeper, and lanes wake one at a time in the order of (time, lane name), so
that a trial is the same at any speed of the machine and at any concurrency of trials.
"""

import asyncio
import heapq
import itertools
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import inf
from typing import Protocol

from agents.errors import DeadlinePassed

MICROSECOND = timedelta(microseconds=1)


class Clock(Protocol):
    def now(self) -> datetime:
        """Aware UTC."""

    async def sleep(self, seconds: float) -> None:
        """Waits on behalf of the current lane. Signature-compatible with tenacity's async sleep."""

    def expect(self, lanes: int) -> None:
        """Announces a fan-out before its branches exist, so that time does not run ahead of them."""

    def lane(self, name: str) -> AbstractAsyncContextManager[None]:
        """The current asyncio task acts as lane `name`: while any lane does real work virtual time stands still."""

    def deadline(self, at: datetime | None) -> AbstractAsyncContextManager[None]:
        """What runs inside is stopped at `at` and DeadlinePassed is raised; None sets no deadline."""

    def real_seconds_until(self, at: datetime) -> float:
        """How long real work may last before `at` comes: without bound on a clock that stands still meanwhile."""

    def past(self, at: datetime) -> bool:
        """Whether a deadline at `at` has come."""

    def resting(self) -> AbstractAsyncContextManager[None]:
        """Inside, the current lane waits for what is outside the trial (for money): it does no work, so that virtual
        time goes on for the other lanes, and on the machine's clock deadlines are put off by as long as it lasts."""


class WallClock:
    """The machine's time, for one trial."""

    def __init__(self) -> None:
        self._rested = timedelta()
        self._resting = 0
        self._since: datetime | None = None
        self._scopes: dict[asyncio.Timeout, datetime] = {}

    def now(self) -> datetime:
        return datetime.now(UTC)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def expect(self, lanes: int) -> None:
        pass

    @asynccontextmanager
    async def lane(self, name: str) -> AsyncIterator[None]:
        yield

    @asynccontextmanager
    async def deadline(self, at: datetime | None) -> AsyncIterator[None]:
        if at is None:
            yield
            return
        scope = asyncio.timeout(None if self._resting else self.real_seconds_until(at))
        try:
            async with scope:
                self._scopes[scope] = at
                try:
                    yield
                finally:
                    del self._scopes[scope]
        except TimeoutError:
            if scope.expired():
                raise DeadlinePassed from None
            raise

    def real_seconds_until(self, at: datetime) -> float:
        now = self.now()
        resting = now - self._since if self._since is not None else timedelta()
        return (at + self._rested + resting - now).total_seconds()

    def past(self, at: datetime) -> bool:
        return self.real_seconds_until(at) <= 0

    @asynccontextmanager
    async def resting(self) -> AsyncIterator[None]:
        self._resting += 1
        if self._since is None:
            self._since = self.now()
            self._move_scopes(running=False)
        try:
            yield
        finally:
            self._resting -= 1
            if not self._resting and self._since is not None:
                self._rested += self.now() - self._since
                self._since = None
                self._move_scopes(running=True)

    def _move_scopes(self, *, running: bool) -> None:
        loop = asyncio.get_running_loop()
        for scope, at in self._scopes.items():
            if not scope.expired():
                scope.reschedule(loop.time() + self.real_seconds_until(at) if running else None)


@dataclass(slots=True, eq=False)
class _Lane:
    name: str
    clock: "VirtualClock"
    deadline: int | None
    inner: int = 0


_LANE: ContextVar[_Lane | None] = ContextVar("lane", default=None)


class VirtualClock:
    """One trial's discrete-event time, kept in whole microseconds from `epoch`, so that sums of waits are exact.

    A lane inside a lane rests the outer one: a graph that waits for its branches does no work of its own. Raises
    ValueError for a naive epoch and RuntimeError for a sleep outside a lane, which would let time pass unseen.
    """

    def __init__(self, epoch: datetime) -> None:
        if epoch.tzinfo is None:
            raise ValueError(f"the epoch {epoch.isoformat()} needs a time zone")
        self._epoch = epoch.astimezone(UTC)
        self._now = 0
        self._working = 0
        self._expected = 0
        self._sleepers: list[tuple[int, str, int, asyncio.Future[None]]] = []
        self._order = itertools.count()

    def now(self) -> datetime:
        return self._epoch + self._now * MICROSECOND

    def expect(self, lanes: int) -> None:
        self._expected += lanes

    async def sleep(self, seconds: float) -> None:
        lane = self._current()
        if lane is None:
            raise RuntimeError("a sleep outside a lane: enter `clock.lane(name)` first")
        wake = self._now + max(0, round(seconds * 1_000_000))
        if lane.deadline is not None and wake > lane.deadline:
            await self._sleep_until(max(self._now, lane.deadline), lane.name)
            raise DeadlinePassed
        await self._sleep_until(wake, lane.name)

    @asynccontextmanager
    async def lane(self, name: str) -> AsyncIterator[None]:
        outer = self._current()
        self._expected = max(0, self._expected - 1)
        self._working += 1
        if outer is not None:
            outer.inner += 1
            if outer.inner == 1:
                self._working -= 1
        token = _LANE.set(_Lane(name, self, None if outer is None else outer.deadline))
        try:
            # A lane starts in its turn, by time and name, and not by the luck of the event loop.
            await self._sleep_until(self._now, name)
            yield
        finally:
            _LANE.reset(token)
            self._working -= 1
            if outer is not None:
                outer.inner -= 1
                if outer.inner == 0:
                    self._working += 1
            self._wake_next()

    @asynccontextmanager
    async def deadline(self, at: datetime | None) -> AsyncIterator[None]:
        lane = self._current()
        if at is None or lane is None:
            yield
            return
        earlier = lane.deadline
        moment = (at - self._epoch) // MICROSECOND
        lane.deadline = moment if earlier is None else min(earlier, moment)
        try:
            yield
        finally:
            lane.deadline = earlier

    def real_seconds_until(self, at: datetime) -> float:
        return inf

    def past(self, at: datetime) -> bool:
        return self.now() >= at

    @asynccontextmanager
    async def resting(self) -> AsyncIterator[None]:
        lane = self._current()
        if lane is None:
            yield
            return
        self._working -= 1
        self._wake_next()
        try:
            yield
        finally:
            self._working += 1
        # It goes on in its turn: another lane may have been woken meanwhile.
        await self._sleep_until(self._now, lane.name)

    def _current(self) -> _Lane | None:
        lane = _LANE.get()
        return lane if lane is not None and lane.clock is self else None

    async def _sleep_until(self, moment: int, name: str) -> None:
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (moment, name, next(self._order), woken))
        self._working -= 1
        self._wake_next()
        try:
            await woken
        finally:
            # Woken sleepers were counted by `_wake_next`; one that is cancelled works again, to clean up after itself.
            if woken.cancelled():
                self._working += 1

    def _wake_next(self) -> None:
        if self._working or self._expected:
            return
        while self._sleepers:
            moment, _, _, woken = heapq.heappop(self._sleepers)
            if not woken.done():
                self._now = max(self._now, moment)
                self._working += 1
                woken.set_result(None)
                return
