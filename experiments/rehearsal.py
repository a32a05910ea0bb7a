"""Planned trials of simulated models, played in memory: what they would cost under their personas' assumptions.

Everything is what a run would use (topology, roles, SDK clients, wire, simulated provider and its cache, the trial's
own dice and virtual clock, price cards) but two things: no sandbox is started (`paper_sandbox` answers commands), and
nothing is recorded. So turns, rounds of hand-overs and waits are those of the run, sizes of commands' output nearly so.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from agents.transport import open_http
from experiments.experiment import Experiment
from experiments.paper_sandbox import PaperBackend
from experiments.plan import PlannedTrial
from experiments.trial import Bench, run_trial


@dataclass(frozen=True, slots=True)
class Rehearsed:
    """`usd` at the experiment's prices."""

    trial: PlannedTrial
    usd: Decimal


async def rehearse(experiment: Experiment, trials: Sequence[PlannedTrial]) -> list[Rehearsed]:
    """Plays these trials one after the other. A trial that breaks is left out. Raises ValueError for real models."""
    if not experiment.simulated:
        raise ValueError("only simulated models can be rehearsed")
    from agents.simulated.app import simulated_provider

    app = simulated_provider(tasks=list(experiment.tasks.values()))
    found = []
    async with open_http(simulator=app) as http:
        bench = Bench(experiment, PaperBackend(), _Unwritten(), http)
        for trial in trials:
            ended = await run_trial(bench, trial, 1)
            if ended.ended_by != "infra_error":
                found.append(Rehearsed(trial, ended.usd))
    return found


class _Unwritten:
    """Where a rehearsal's records go: nowhere."""

    def note(self, line: bytes) -> None:
        pass

    async def durable(self, line: bytes) -> None:
        pass
