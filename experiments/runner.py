"""Runs what a plan has and the database has not: trials side by side, each ending alone, all owned by one task group.

Finished trials are never repeated; those that broke or were cancelled get a new attempt. A task that the sandbox cannot
honour is left out by name.
"""

import asyncio
import importlib
import secrets
import signal
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from agents.transport import open_http
from cost_model.calls import SpendingStopped
from cost_model.tokens import CLASSES
from experiments.bill import Booked, PricedAlike, Reconciliation, bill_folder, read_bill, reconcile
from experiments.budget import Budget
from experiments.errors import SpecError, StoreError
from experiments.experiment import Experiment, host_refusal
from experiments.heap import settled_heap
from experiments.interrupts import interruptible
from experiments.plan import PlannedTrial
from experiments.run_lock import run_lock
from experiments.shadow import Shadowing
from experiments.standing import Standing, pilot_block, spent_so_far, standing
from experiments.store.ledger import ModelFacts
from experiments.store.publishing import published
from experiments.store.reader import Reader
from experiments.store.recording import Recording
from experiments.store.state_folder import StateFolder
from experiments.store.store import Store
from experiments.trial import Bench, Ended, run_trial
from harbor_tasks.errors import TaskRefused
from harbor_tasks.sandbox import Backend
from harbor_tasks.sandbox.backends import choose

if TYPE_CHECKING:
    from agents.transport.streaming_asgi import ASGIApp


class Watch(Protocol):
    """What a run tells while it runs."""

    def begins(self, pending: int, finished: int, sandbox: str, concurrency: int) -> None: ...

    def ended(self, trial: PlannedTrial, ended: Ended) -> None: ...

    def skipped(self, task: str, reason: str) -> None: ...

    def warns(self, warning: str) -> None: ...

    def budgeted(self, budget: Budget) -> None:
        """Before anything begins: the run's budget, which changes while it runs. Not told where there is none."""

    def out_of_money(self) -> None:
        """The budget is used up: trials that need a further call end without a score, and none begins."""

    def interrupted(self, which: signal.Signals) -> None:
        """The run is being stopped in order; the next signal is the caller's to handle (Python's own handler)."""


@dataclass(slots=True)
class Report:
    """How a run ended. `interrupted` is the signal's number, 0 without one; `skipped` gives tasks their reasons.
    `budget` None: there was none; `out_of_money`: because it was used up trials were not run, or not to their end."""

    experiment: str
    planned: int
    finished_before: int
    ended: dict[str, Ended] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    interrupted: int = 0
    bill: Reconciliation | None = None
    budget: Budget | None = None
    out_of_money: bool = False

    @property
    def nothing_to_do(self) -> bool:
        return self.finished_before == self.planned

    @property
    def broken(self) -> int:
        return sum(ended.ended_by == "infra_error" for ended in self.ended.values())

    @property
    def left(self) -> int:
        return self.planned - self.finished_before - len(self.ended) + self.broken


async def run_experiment(
    experiment: Experiment,
    database: Path,
    *,
    watch: Watch | None = None,
    simulator_url: str | None = None,
    allow_host_network: bool = False,
    pilot: bool = False,
    publish: Path | None = None,
) -> Report:
    """Runs what is left of the plan; `pilot`: of its pilot block alone. `publish`: where a read copy of the database is
    renewed every few seconds.

    Raises PlanChanged when stored trials of this name were planned differently, StoreError when the database cannot
    be used, SandboxMissing when no sandbox can start. Ctrl-C is no exception: the report says so."""
    run = _Run(experiment, database, watch or _Silent(), simulator_url, allow_host_network, pilot, publish)
    with run_lock(database, experiment.name):
        return await run.go()


class _Run:
    def __init__(
        self,
        experiment: Experiment,
        database: Path,
        watch: Watch,
        simulator_url: str | None,
        allow_host_network: bool,
        pilot: bool,
        publish: Path | None,
    ) -> None:
        self.id = f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(4)}"
        self.experiment = experiment
        self.database = database
        self.watch = watch
        self.simulator_url = simulator_url
        self.allow_host_network = allow_host_network
        self.pilot = pilot
        self.publish = publish
        self.store = Store(database, experiment.prices)
        self.report = Report(experiment.name, 0, 0)
        self.started: set[str] = set()

    async def go(self) -> Report:
        stands = await asyncio.to_thread(standing, self.experiment, self.store)
        for line in stands.left_out:
            self.watch.warns(line)
        self.report.planned = len(stands.plan.trials)
        self.report.finished_before = stands.finished
        if self.experiment.budget_usd is not None:
            spent = await asyncio.to_thread(spent_so_far, self.experiment, self.database)
            self.report.budget = Budget(self.experiment.budget_usd, spent)
            self.watch.budgeted(self.report.budget)
            if stands.left_out and self.experiment.costs_money:
                raise StoreError(
                    f"{self.database}: journals of earlier runs cannot be read, and so not be counted against the "
                    "budget; mend them or move them away, or run with --no-budget"
                )
            if stands.left_out:
                self.watch.warns("what these journals hold is not counted as spent")
        backend = await self._backend(stands) if stands.pending else None
        await asyncio.to_thread(
            self.store.register,
            stands.plan,
            _model_facts(self.experiment),
            spec=self.experiment.spec.model_dump(mode="json"),
        )
        if backend is not None:
            await self._pending(stands, backend)
        return self.report

    async def _backend(self, stands: Standing) -> Backend:
        experiment = self.experiment
        backend = await choose(
            experiment.spec.sandbox,
            [experiment.tasks[name] for name in sorted({trial.task for trial in stands.pending})],
        )
        if backend.warning:
            self.watch.warns(backend.warning)
        if self.experiment.spec.shadow_verify and not backend.copies:
            raise SpecError(
                f"{self.experiment.path}: shadow_verify: no sandbox of which a copy could be taken starts on this "
                "machine; run it where Docker or bubblewrap can start, or leave it out"
            )
        if not backend.isolated:
            served = self.simulator_url is not None
            reason = host_refusal(simulated=experiment.simulated, served=served, tasks=experiment.tasks)
            if reason:
                raise SpecError(
                    f"{experiment.path}: sandbox: no sandbox with isolation can start on this machine, and the host "
                    f"sandbox is refused {reason}; run it where Docker or bubblewrap can start"
                )
        return backend

    async def _pending(self, stands: Standing, backend: Backend) -> None:
        for name in sorted({trial.task for trial in stands.pending}):
            await self._skip_unless_possible(name, backend)
        concurrency = 1 if backend.name == "host" else self.experiment.spec.concurrency
        wanted = [trial for trial in stands.pending if trial.task not in self.report.skipped]
        if self.pilot:
            chosen = {trial.id for trial in pilot_block(stands.plan, self.report.skipped)}
            wanted = [trial for trial in wanted if trial.id in chosen]
        attempts = {trial.id: stands.attempts(trial) + 1 for trial in wanted}
        self.watch.begins(len(wanted), self.report.finished_before, backend.described, concurrency)
        with interruptible(self._interrupted):
            await self._side_by_side(wanted, attempts, backend, concurrency)

    async def _skip_unless_possible(self, name: str, backend: Backend) -> None:
        task = self.experiment.tasks[name]
        reasons = [f"not supported: {what}" for what in task.unsupported()]
        if not reasons:
            lacking = await backend.missing(task.requires)
            reasons = [f"the sandbox {backend.name} lacks {', '.join(lacking)}"] if lacking else []
        if reasons:
            self._skip(name, "; ".join(reasons))

    def _skip(self, task: str, reason: str) -> None:
        if task not in self.report.skipped:
            self.report.skipped[task] = reason
            self.watch.skipped(task, reason)

    def _interrupted(self, which: signal.Signals) -> None:
        self.report.interrupted = int(which)
        self.watch.interrupted(which)

    async def _side_by_side(
        self, trials: list[PlannedTrial], attempts: Mapping[str, int], backend: Backend, concurrency: int
    ) -> None:
        room = asyncio.Semaphore(concurrency)
        simulator, bill = self._simulator()
        tasks = [self.experiment.tasks[trial.task] for trial in trials]
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(backend.ahead(tasks, concurrency, self.watch.warns))
            await asyncio.to_thread(_warm, {entry.protocol for entry in self.experiment.models.values()})
            stack.enter_context(settled_heap())
            recording = await stack.enter_async_context(Recording(self.store, self.id))
            http = await stack.enter_async_context(open_http(simulator=simulator, simulator_url=self.simulator_url))
            if self.publish is not None:
                await stack.enter_async_context(published(self.database, self.publish, self.watch.warns))
            bench = Bench(
                self.experiment,
                backend,
                recording.journal,
                http,
                self.report.budget,
                self.allow_host_network,
                await asyncio.to_thread(self._shadowing),
            )
            try:
                async with asyncio.TaskGroup() as group:
                    for trial in trials:
                        group.create_task(self._one(bench, trial, attempts[trial.id], room))
            except BaseExceptionGroup as group_error:
                # What a trial lets out concerns the run: the first such error is the run's.
                raise group_error.exceptions[0] from None
        if recording.left:
            self.watch.warns(recording.left)
        if bill is not None:
            self.report.bill = await asyncio.to_thread(self._reconcile, bill)

    async def _one(self, bench: Bench, trial: PlannedTrial, attempt: int, room: asyncio.Semaphore) -> None:
        async with room:
            if trial.task in self.report.skipped:
                return
            if bench.budget is not None and bench.budget.used_up:
                self._stop_spending()
                return
            try:
                self.started.add(f"{trial.id}/{attempt}")
                ended = await run_trial(bench, trial, attempt)
            except SpendingStopped:
                self._stop_spending()
                return
            except TaskRefused as refused:
                self._skip(trial.task, str(refused))
                return
            self.report.ended[trial.id] = ended
            self.watch.ended(trial, ended)

    def _stop_spending(self) -> None:
        if not self.report.out_of_money:
            self.report.out_of_money = True
            self.watch.out_of_money()

    def _shadowing(self) -> Shadowing:
        """What killed runs were keeping is removed."""
        spec, states = self.experiment.spec, StateFolder(self.database)
        states.sweep()
        return Shadowing(spec.shadow_verify, states if spec.keep_states else None)

    def _simulator(self) -> "tuple[ASGIApp | None, Path | None]":
        """The provider in this process, and its bill; nothing when models are real or the simulator is served."""
        if not self.experiment.simulated or self.simulator_url is not None:
            return None, None
        from agents.simulated.app import simulated_provider

        folder = bill_folder(self.database)
        folder.mkdir(parents=True, exist_ok=True)
        bill = folder / f"{self.id}.jsonl"
        return simulated_provider(tasks=list(self.experiment.tasks.values()), bill=bill), bill

    def _reconcile(self, bill: Path) -> Reconciliation:
        counts = ", ".join(f"{name}_tokens" for name in CLASSES)
        with Reader(self.database) as reader:
            _, rows = reader.query(
                "SELECT key, trial_id || '/' || attempt, model, requested_at, cost_low_usd, cost_high_usd, "  # noqa: S608
                f"prompt_tokens IS NOT NULL, {counts} FROM calls"
            )
        alike, experiment = PricedAlike(), self.experiment
        ledger = {}
        for key, run, model, requested_at, low, high, known, *tokens in rows:
            if run in self.started:
                by_class = {name: count for name, count in zip(CLASSES, tokens, strict=True) if count}
                same = alike(experiment.models[model].model, experiment.card(model, requested_at))
                ledger[key] = Booked(low, high, by_class if known else None, same)
        return reconcile(read_bill(bill), ledger)


def _warm(protocols: set[str]) -> None:
    """Imports what takes seconds before the first trial's clock runs."""
    for module in ("langgraph.graph", "langsmith", *(f"agents.clients.{protocol}" for protocol in sorted(protocols))):
        importlib.import_module(module)


class _Silent:
    def begins(self, pending: int, finished: int, sandbox: str, concurrency: int) -> None: ...

    def ended(self, trial: PlannedTrial, ended: Ended) -> None: ...

    def skipped(self, task: str, reason: str) -> None: ...

    def warns(self, warning: str) -> None: ...

    def budgeted(self, budget: Budget) -> None: ...

    def out_of_money(self) -> None: ...

    def interrupted(self, which: signal.Signals) -> None: ...


def _model_facts(experiment: Experiment) -> dict[str, ModelFacts]:
    return {
        name: ModelFacts(
            flavour=entry.protocol,
            provider=entry.provider,
            price=entry.price,
            self_hosted=entry.self_hosted,
            cache=entry.cache,
        )
        for name, entry in experiment.models.items()
    }
