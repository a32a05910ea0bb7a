"""What a reviewer is about to judge, copied while it waits: verified in the shadow, and kept.

The copy is taken at the beginning of each visit of a role that may give a verdict. What becomes of it runs beside the
trial, belongs to the attempt and ends with it. Nothing of it reaches the agents, and no fault of it breaks a trial: the
truth of a verdict is then unknown, and why is recorded.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from agents.clock import Clock
from agents.handover import Handover, RoleDesign
from agents.role import Role
from agents.verdict import Verdict
from experiments.errors import StoreError
from experiments.store.state_folder import Kept, StateFolder
from experiments.store.trial import TrialJournal
from harbor_tasks.format import Task
from harbor_tasks.sandbox import Backend, Copy, Sandbox
from harbor_tasks.sandbox.machine import to_its_end
from harbor_tasks.verifier import verify

if TYPE_CHECKING:
    from topologies.contract import Role as Player

COPY_SECONDS = 60.0
"""A sandbox that takes longer to copy is not copied: its reviewer waits no longer."""
MOST_COPIES = 2
"""Of one attempt at a time: one that is verified, and one that waits for it."""


@dataclass(frozen=True, slots=True)
class Shadowing:
    """What is done with reviewed work: `verify` it, and keep it in `states` unless that is None."""

    verify: bool = False
    states: StateFolder | None = None

    @property
    def idle(self) -> bool:
        return not self.verify and self.states is None


def gives_verdicts(design: RoleDesign) -> bool:
    return any(each.form is not None and issubclass(each.form, Verdict) for each in design.handovers)


class Shadow:
    """One attempt's. `pass_threshold` decides of a reward as it does of the trial's. `stands_still`: no time passes on
    the trial's clock while real work is done."""

    def __init__(
        self,
        shadowing: Shadowing,
        backend: Backend,
        task: Task,
        book: TrialJournal,
        clock: Clock,
        *,
        pass_threshold: float,
        stands_still: bool,
        allow_host_network: bool,
    ) -> None:
        self._shadowing, self._backend, self._task, self._book, self._clock = shadowing, backend, task, book, clock
        self._threshold, self._stands_still, self._network = pass_threshold, stands_still, allow_host_network
        self._tasks: list[asyncio.Task[None]] = []
        self._copies = asyncio.Semaphore(MOST_COPIES)
        self._one = asyncio.Lock()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """On exit everything has been verified and kept; where an exception comes out, it is ended instead. Raises
        StoreError when it could not be recorded."""
        try:
            yield
            if self._tasks:
                await asyncio.wait(self._tasks)
        finally:
            for each in self._tasks:
                each.cancel()
            if self._tasks:
                await to_its_end(_all(self._tasks))
        for each in self._tasks:
            if not each.cancelled() and (error := each.exception()) is not None:
                raise error

    def watching(
        self, sandbox: Sandbox, designs: Sequence[RoleDesign], roles: Mapping[str, Role]
    ) -> "dict[str, Player]":
        """The roles as the graph visits them: of those that give verdicts each visit begins with a copy."""
        players: dict[str, Player] = dict(roles)
        if not self._shadowing.idle and self._backend.copies:
            reviewers = [design.name for design in designs if gives_verdicts(design)]
            players |= {name: _Reviewer(roles[name], self, sandbox) for name in reviewers}
        return players

    async def take(self, role: Role, sandbox: Sandbox) -> None:
        """Returns once the copy has been taken, or cannot be."""
        number = 1 + len(self._tasks)
        began, started = self._clock.now(), time.monotonic()
        taken: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        work = asyncio.create_task(self._work(number, sandbox, taken))
        self._tasks.append(work)
        async with self._waiting():
            done, _ = await asyncio.wait([taken], timeout=COPY_SECONDS)
        fault = taken.result() if done else f"copying the sandbox took longer than {COPY_SECONDS:g} s"
        if not done:
            work.cancel()
        self._book.review_copied(
            number=number, role=role.name, at=self._clock.now(), seconds=time.monotonic() - started, fault=fault,
            verify=self._shadowing.verify, keep=self._shadowing.states is not None,
        )  # fmt: skip
        if not self._stands_still:
            self._book.span("wait", role.lane.name, "shadow", began, self._clock.now())

    def _waiting(self) -> AbstractAsyncContextManager[None]:
        """Deadlines are put off by the wait. A clock that stands still must not go on for others meanwhile."""
        return nullcontext() if self._stands_still else self._clock.resting()

    async def _work(self, number: int, sandbox: Sandbox, taken: "asyncio.Future[str | None]") -> None:
        try:
            taking = self._backend.copied(self._task, sandbox, allow_host_network=self._network)
            async with self._copies, taking as copy:
                taken.set_result(None)
                async with self._one:
                    await self._look_at(number, copy)
        except StoreError:
            raise
        except Exception as error:
            if taken.done():
                self._failed(number, _one_line(error))
            else:
                taken.set_result(_one_line(error))
        finally:
            if not taken.done():
                taken.set_result("copying the sandbox was stopped")

    async def _look_at(self, number: int, copy: Copy) -> None:
        async with copy.start() as twin:
            if self._shadowing.states is not None:
                await self._keep(number, copy, twin, self._shadowing.states)
            if self._shadowing.verify:
                verdict = await verify(self._task, twin)
                reward = verdict.reward
                self._book.review_truth(
                    number=number, reward=reward, passed=None if reward is None else reward >= self._threshold,
                    unscored_reason=verdict.unscored_reason, seconds=verdict.seconds,
                )  # fmt: skip

    async def _keep(self, number: int, copy: Copy, twin: Sandbox, states: StateFolder) -> None:
        try:
            files, layout = await copy.files(twin)
            # A thread cannot be cancelled, and it reads what the copy closes.
            keeping: asyncio.Future[Kept] = asyncio.ensure_future(asyncio.to_thread(states.keep, files, layout))
            await to_its_end(_only(keeping))
            kept = keeping.result()
        except Exception as error:
            self._book.state_kept(number=number, stored_at=datetime.now(UTC), fault=_one_line(error))
        else:
            self._book.state_kept(
                number=number, stored_at=datetime.now(UTC), hash=kept.hash, size=kept.size, format=kept.format
            )

    def _failed(self, number: int, why: str) -> None:
        """Of what has been recorded already the first word counts."""
        if self._shadowing.states is not None:
            self._book.state_kept(number=number, stored_at=datetime.now(UTC), fault=why)
        if self._shadowing.verify:
            self._book.review_truth(number=number, reward=None, passed=None, unscored_reason=why, seconds=None)


class _Reviewer:
    """A role as the graph sees it."""

    def __init__(self, role: Role, shadow: Shadow, sandbox: Sandbox) -> None:
        self._role, self._shadow, self._sandbox = role, shadow, sandbox

    @property
    def name(self) -> str:
        return self._role.name

    async def visit(self, message: str, *, anew: bool = False) -> Handover:
        await self._shadow.take(self._role, self._sandbox)
        return await self._role.visit(message, anew=anew)

    async def execute(self, commands: Sequence[str], *, stop: bool) -> list[int]:
        return await self._role.execute(commands, stop=stop)


async def _all(tasks: "Sequence[asyncio.Task[None]]") -> None:
    await asyncio.wait(tasks)


async def _only(future: "asyncio.Future[Kept]") -> None:
    await asyncio.wait([future])


def _one_line(error: BaseException) -> str:
    return f"{' '.join(str(error).split()) or type(error).__name__}"[:500]
