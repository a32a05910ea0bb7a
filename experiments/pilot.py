"""From the trials that are finished to what the whole plan may cost: an estimate, and what is known of its error.

The estimate is simple on purpose: an arm's mean dollars a trial (over its tasks, of the mean of each) times the trials
that it has left. Tasks differ in cost far more than repeats do, and a pilot sees one task: nothing of that spread is
known then and no interval is made up. What holds without any assumption but the plan's random order of tasks: another
task costs more than all N that were seen with a chance of 1 in N + 1.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from statistics import mean

from experiments.experiment import Experiment
from experiments.standing import Standing
from experiments.store.reader import Reader
from experiments.worst_case import arm_bounds


@dataclass(frozen=True, slots=True)
class Seen:
    """A trial that has begun: what all of its attempts cost (calls of unknown price at the end of their range)."""

    arm: str
    task: str
    finished: bool
    usd: Decimal


@dataclass(frozen=True, slots=True)
class Outlook:
    """One arm. `tasks` had a finished trial, the cheapest of which cost `cheapest_usd`; these and `rest_usd`, the
    estimate for the trials left, are None while there is none. `bound_usd`: what those can cost at most."""

    arm: str
    planned: int
    finished: int
    tasks: int
    spent_usd: Decimal
    cheapest_usd: Decimal | None
    dearest_usd: Decimal | None
    rest_usd: Decimal | None
    bound_usd: Decimal

    @property
    def left(self) -> int:
        return self.planned - self.finished


def outlooks(experiment: Experiment, stands: Standing, database: Path) -> list[Outlook]:
    """One an arm, in the spec's order. Blocks. Raises StoreError."""
    seen = _seen(experiment.name, database) if database.exists() else []
    planned = len(stands.plan.trials) // len(experiment.arms)
    return [
        outlook(bound.arm, planned, [trial for trial in seen if trial.arm == bound.arm], bound.usd)
        for bound in arm_bounds(experiment, stands.pending)
    ]


def outlook(arm: str, planned: int, seen: Iterable[Seen], bound_usd: Decimal) -> Outlook:
    seen = list(seen)
    by_task: dict[str, list[Decimal]] = {}
    for trial in seen:
        if trial.finished:
            by_task.setdefault(trial.task, []).append(trial.usd)
    costs = [usd for task in by_task.values() for usd in task]
    left = planned - len(costs)
    return Outlook(
        arm=arm,
        planned=planned,
        finished=len(costs),
        tasks=len(by_task),
        spent_usd=sum((trial.usd for trial in seen), Decimal(0)),
        cheapest_usd=min(costs, default=None),
        dearest_usd=max(costs, default=None),
        rest_usd=mean(mean(task) for task in by_task.values()) * left if costs else None,
        bound_usd=bound_usd,
    )


def _seen(experiment: str, database: Path) -> list[Seen]:
    with Reader(database) as reader:
        rows = reader.query(
            "SELECT arm, task, final, all_usd_high FROM trial_costs WHERE experiment = ?", [experiment]
        ).rows
    return [Seen(arm, task, bool(final), Decimal(usd)) for arm, task, final, usd in rows]
