"""One attempt of one trial, in a straight line: sandbox, roles, graph, verifier.

What it leaves behind is in the journal; nothing is returned but how it ended. A trial that breaks ends alone: only a
cancellation, the end of the budget and a task that the sandbox refuses come out as exceptions.
"""

import asyncio
import secrets
import traceback
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Literal

from agents.clock import Clock, VirtualClock, WallClock
from agents.crew import Limits, Seat, hire
from agents.errors import JudgeMissing, ProviderRefused, VisitEnded
from agents.keep_alive import Background
from agents.shell.judge import Judge
from cost_model.calls import CallSent, SpendingStopped
from cost_model.policies import POLICIES
from experiments.budget import Budget
from experiments.changes import Changes
from experiments.errors import StoreError
from experiments.experiment import Arm, Experiment
from experiments.guard import Ceiling, guard_of
from experiments.plan import PlannedTrial
from experiments.shadow import Shadow, Shadowing
from experiments.spend import SpendingBook
from experiments.store.trial import Lines, TrialJournal
from harbor_tasks.errors import SandboxBroken, SandboxSpoiled, StorageExceeded, TaskRefused
from harbor_tasks.format import Task
from harbor_tasks.sandbox import Backend, Output, Sandbox, Shell
from harbor_tasks.sandbox.lasting import LastingShell
from harbor_tasks.verifier import Verdict, verify

if TYPE_CHECKING:
    import httpx2

Outcome = Literal["passed", "failed", "unscored"]

DIGEST_SECONDS = 20
"""A working directory that takes longer to read is not compared: `changed` stays unknown."""

_DIGEST = (
    "set -o pipefail; tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner "
    "--exclude=__pycache__ --exclude=.git/index -cf - . 2>/dev/null | sha256sum"
)
# Only looking (a test run, `git status`) rewrites bytecode and git's stat cache: those two are no change.


@dataclass(frozen=True, slots=True)
class Bench:
    """What the trials of one run share."""

    experiment: Experiment
    backend: Backend
    journal: Lines
    http: "httpx2.AsyncClient"
    budget: Budget | None = None
    allow_host_network: bool = False
    shadowing: Shadowing = field(default_factory=Shadowing)


@dataclass(frozen=True, slots=True)
class Ended:
    """`reward` None when there is no score, `usd` the list price of the attempt's answered calls, the least that it
    costs unless `usd_exact`. `error` is one line, of an infrastructure fault or a bug."""

    ended_by: str
    outcome: Outcome
    unscored_reason: str | None
    reward: float | None
    error: str | None
    usd: Decimal
    usd_exact: bool = True


async def run_trial(bench: Bench, trial: PlannedTrial, attempt: int) -> Ended:
    """Raises TaskRefused before anything is recorded; CancelledError, and SpendingStopped when the budget is used up,
    after the attempt is recorded as cancelled."""
    return await _Attempt(bench, trial, attempt).run()


class _Attempt:
    def __init__(self, bench: Bench, trial: PlannedTrial, attempt: int) -> None:
        experiment = bench.experiment
        self.bench = bench
        self.trial = trial
        self.arm: Arm = experiment.arms[trial.arm]
        self.task: Task = experiment.tasks[trial.task]
        self.attempt = attempt
        self.clock: Clock = VirtualClock(experiment.spec.virtual_epoch) if experiment.simulated else WallClock()
        self.book = TrialJournal(bench.journal, trial.id, attempt)
        self.started_at = self.clock.now()
        self.wall_started_at = datetime.now(UTC)
        limits = experiment.spec.limits
        self.guard = guard_of(
            Ceiling(limits.max_usd, limits.max_tokens),
            {role: Ceiling(model.max_usd, model.max_tokens) for role, model in self.arm.roles.items()},
        )
        self.spend = SpendingBook(
            self.book,
            experiment.card,
            lambda model: POLICIES[experiment.models[model].cache],
            self.clock,
            bench.budget,
            trial.position,
            self._waited_for_money,
            self.guard,
        )
        self.shadow = Shadow(
            bench.shadowing,
            bench.backend,
            self.task,
            self.book,
            self.clock,
            pass_threshold=float(experiment.spec.pass_threshold),
            stands_still=experiment.simulated,
            allow_host_network=bench.allow_host_network,
        )
        self.changed: bool | None = None

    async def run(self) -> Ended:
        started = False
        try:
            network = self.bench.allow_host_network
            async with self.shadow.open(), self.bench.backend.start(self.task, allow_host_network=network) as sandbox:
                await self._started(sandbox.backend, sandbox.notes)
                started = True
                ended_by = await self._play(sandbox)
                verdict = await verify(self.task, sandbox)
            return await self._scored(ended_by, verdict)
        except asyncio.CancelledError:
            if started:
                await self._ended(self._end("cancelled", "unscored", "cancelled"))
            raise
        except SpendingStopped:
            await self._ended(self._end("cancelled", "unscored", "the budget is used up"))
            raise
        except StoreError:
            raise
        except TaskRefused as error:
            if not started:
                raise
            return await self._broken(started, _one_line(error), str(error))
        except StorageExceeded as error:
            # The agent's doing: another attempt would be another agent's chance, and the money was spent.
            return await self._ended(self._end("storage_limit", "unscored", str(error)))
        except SandboxSpoiled as error:
            return await self._ended(self._end("sandbox_spoiled", "unscored", str(error)))
        except (ProviderRefused, SandboxBroken, JudgeMissing) as error:
            return await self._broken(started, _one_line(error), str(error))
        except Exception as error:
            # A bug, of ours or of a graph: it ends this trial and no other, and its traceback is kept.
            return await self._broken(started, _one_line(error), traceback.format_exc())
        finally:
            self.spend.close()

    async def _play(self, sandbox: Sandbox) -> str:
        shell = LastingShell(sandbox, user=self.task.config.agent.user)
        try:
            # In the agent's shell before it begins: one process less to start.
            before = _digest(await shell.run(_DIGEST, timeout_s=DIGEST_SECONDS))
            async with AsyncExitStack() as stack:
                diff = None
                if self.arm.topology.diffs:
                    diff = (await stack.enter_async_context(Changes.since_now(sandbox))).diff
                ended_by = await self._act(sandbox, shell, diff)
        finally:
            # Before verification no process of the agent may be left: it could rewrite the reward.
            await shell.close()
        after = _digest(await sandbox.exec(_DIGEST, timeout_s=DIGEST_SECONDS, cwd=sandbox.workdir))
        self.changed = None if before is None or after is None else before != after
        return ended_by

    async def _act(self, sandbox: Sandbox, shell: Shell, diff: Callable[[], Awaitable[str]] | None) -> str:
        import topologies

        # Between two visits nobody works, and yet time must stand still: the graph's own lane sees to that.
        async with Background.open() as background, Judge.open() as judge, self.clock.lane("graph"):
            seat = Seat(
                trial_id=self.trial.id,
                attempt=self.attempt,
                nonce=self._nonce(),
                clock=self.clock,
                book=self.spend,
                record=self.book,
                shell=shell,
                limits=self._limits(),
                http=self.bench.http,
                background=background,
                judge=judge,
                guard=self.guard,
            )
            topology = self.arm.topology
            designs = topology.roles_for(self.arm.parameters)
            roles = hire(designs, self.arm.roles, seat, prompt_of=topology.prompt)
            players = self.shadow.watching(sandbox, designs, roles)
            stage = topologies.Stage(players, self.arm.parameters, self.task.instruction, self.clock.expect)
            if diff is not None:
                stage = replace(stage, diff=diff)
            try:
                await topologies.play(self.arm.topology, stage)
            except VisitEnded as end:
                return end.ended_by
            finally:
                await background.rest()
        return "submitted"

    def _nonce(self) -> str:
        """A simulated trial is the same in every attempt and run. A real provider's cache outlives an attempt, and what
        an earlier one left in it, or the same spec under another name, must not be read."""
        return self.trial.nonce if self.bench.experiment.simulated else secrets.token_hex(8)

    def _waited_for_money(self, call: CallSent, began: datetime) -> None:
        self.book.span("wait", call.lane, "budget", began, call.requested_at)

    def _limits(self) -> Limits:
        limits = self.bench.experiment.spec.limits
        seconds = self.task.config.agent.timeout_sec
        return Limits(
            max_turns=limits.max_turns,
            command_timeout_s=limits.command_timeout_s,
            max_output_tokens=limits.max_output_tokens or self._most_output(),
            # The agent's own time begins here: what its sandbox took to start is not its doing.
            deadline=None if seconds is None else self.clock.now() + timedelta(seconds=seconds),
            loop_after=limits.loop_after,
            seconds=seconds,
            tell_time=limits.tell_time,
        )

    def _most_output(self) -> int:
        """The role loop holds each model to its own limit as well."""
        return max(model.entry.limits.max_output_tokens for model in self.arm.roles.values())

    async def _scored(self, ended_by: str, verdict: Verdict) -> Ended:
        self.book.reward(
            rewards=verdict.rewards,
            unscored_reason=verdict.unscored_reason,
            output=verdict.output,
            seconds=verdict.seconds,
        )
        reward = verdict.reward
        if reward is None:
            return await self._ended(self._end(ended_by, "unscored", verdict.unscored_reason))
        passed = reward >= float(self.bench.experiment.spec.pass_threshold)
        return await self._ended(self._end(ended_by, "passed" if passed else "failed", reward=reward))

    async def _broken(self, started: bool, line: str, whole: str) -> Ended:
        if not started:
            await self._started(self.bench.backend.name, ())
        ended = self._end("infra_error", "unscored", line, error=line)
        return await self._ended(ended, error=whole)

    def _end(
        self,
        ended_by: str,
        outcome: Outcome,
        unscored_reason: str | None = None,
        reward: float | None = None,
        error: str | None = None,
    ) -> Ended:
        return Ended(ended_by, outcome, unscored_reason, reward, error, self.spend.usd, self.spend.exact)

    async def _started(self, backend: str, notes: Sequence[str]) -> None:
        await self.book.attempt_started(
            started_at=self.started_at,
            wall_started_at=self.wall_started_at,
            backend=backend,
            notes="; ".join(notes) or None,
        )

    async def _ended(self, ended: Ended, error: str | None = None) -> Ended:
        await self.book.attempt_ended(
            ended_by=ended.ended_by,
            outcome=ended.outcome,
            unscored_reason=ended.unscored_reason,
            reward=ended.reward,
            passed=None if ended.outcome == "unscored" else ended.outcome == "passed",
            changed=self.changed,
            started_at=self.started_at,
            ended_at=self.clock.now(),
            wall_started_at=self.wall_started_at,
            wall_ended_at=datetime.now(UTC),
            error=error,
        )
        return ended


def _digest(output: Output) -> str | None:
    """Of the working directory: names, modes and bytes, without times."""
    return output.text.split()[0] if output.exit_code == 0 and output.text.split() else None


def _one_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:500]
