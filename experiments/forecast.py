"""What a run would do and cost, without running it: planned trials, and an interval of dollars for each arm.

Sources, best first: stored trials of the same arm (on the same tasks, else on others); for simulated models a rehearsal
of planned trials in memory; else nothing but the upper bound that limits and prices set.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Literal

from experiments.evidence import stored_costs
from experiments.experiment import Experiment
from experiments.plan import PlannedTrial
from experiments.standing import Standing, pilot_block, spent_so_far, standing_untouched
from experiments.statistics.prediction import LEVEL, predicted
from experiments.store.reader import Reader
from experiments.worst_case import ArmBound, arm_bounds

__all__ = ["LEVEL", "ArmForecast", "Forecast", "Source", "forecast"]

REHEARSED = 8
"""Trials of an arm that are rehearsed at most."""

OUTPUTS = 0.2
"""A rehearsal's dollars may be off by this share, either way: no command runs in it, so what commands print is not
known exactly. On the bundled tasks no trial was off by more than 8 %."""

Source = Literal["stored", "stored_other_tasks", "stored_one", "rehearsed", "none", "nothing_left"]
"""stored: trials of this arm, each planned task among theirs. stored_other_tasks: some planned task is not.
stored_one: so few that they show no spread. rehearsed: from personas. none: no data."""


@dataclass(frozen=True, slots=True)
class ArmForecast:
    """`planned` trials by task (those left to run: `left`), dollars of what is left. `expected_usd` None: no data;
    `low_usd` to `high_usd`: the interval, whose ends are 0 and `bound_usd` where nothing better is known. `trials`: how
    many the source has."""

    arm: str
    planned: Mapping[str, int]
    left: Mapping[str, int]
    source: Source
    trials: int
    expected_usd: Decimal | None
    low_usd: Decimal
    high_usd: Decimal
    bound_usd: Decimal

    @property
    def trials_left(self) -> int:
        return sum(self.left.values())

    @property
    def interval(self) -> bool:
        """Whether low and high are a prediction, not just 0 and the bound."""
        return self.source in ("stored", "stored_other_tasks", "rehearsed", "nothing_left")


@dataclass(frozen=True, slots=True)
class Forecast:
    """`skipped` tasks cannot be run (task -> why) and are in no figure. Totals as in an arm; `expected_usd` None when
    an arm's is. `reached_after`: trials until the budget is expected to be used up, None when it is not or when that is
    not known; `reached_at_most_after`: the same, should all cost as much as the intervals' upper ends."""

    experiment: str
    simulated: bool
    planned: int
    finished: int
    skipped: Mapping[str, str]
    arms: Sequence[ArmForecast]
    expected_usd: Decimal | None
    low_usd: Decimal
    high_usd: Decimal
    bound_usd: Decimal
    budget_usd: Decimal | None
    spent_usd: Decimal
    reached_after: int | None
    reached_at_most_after: int | None

    @property
    def trials_left(self) -> int:
        return sum(arm.trials_left for arm in self.arms)

    @property
    def interval(self) -> bool:
        """Whether low and high are a prediction: each arm's are."""
        return all(arm.interval for arm in self.arms)


def forecast(experiment: Experiment, database: Path, *, pilot: bool = False, served: bool = False) -> Forecast:
    """Reads the database where there is one; makes, merges and locks nothing. `pilot`: of its pilot block alone;
    `served`: simulated models stand behind an address, where other personas may play them. Blocks.

    Raises PlanChanged when stored trials of this name were planned differently, StoreError.
    """
    stands = standing_untouched(experiment, database)
    skipped = {name: "; ".join(reasons) for name, task in experiment.tasks.items() if (reasons := task.unsupported())}
    left = [trial for trial in stands.pending if trial.task not in skipped]
    if pilot:
        chosen = {trial.id for trial in pilot_block(stands.plan, skipped)}
        left = [trial for trial in left if trial.id in chosen]
    seen = _stored(experiment, database, stands)
    bounds = {bound.arm: bound for bound in arm_bounds(experiment, left)}
    arms: dict[str, ArmForecast] = {}
    to_rehearse: list[PlannedTrial] = []
    for arm in experiment.arms:
        of_arm = [trial for trial in left if trial.arm == arm]
        arms[arm] = _from_stored(experiment, arm, stands, of_arm, seen[arm], bounds[arm])
        if not arms[arm].interval and experiment.simulated and not served:
            to_rehearse += of_arm[:REHEARSED]
    if to_rehearse:
        from experiments.rehearsal import rehearse

        costs = {one.trial.id: float(one.usd) for one in asyncio.run(rehearse(experiment, to_rehearse))}
        for arm in {trial.arm for trial in to_rehearse}:
            of_arm = [trial for trial in left if trial.arm == arm]
            arms[arm] = _rehearsed(arms[arm], of_arm, costs)
    return _whole(experiment, database, stands, skipped, left, list(arms.values()))


def _stored(experiment: Experiment, database: Path, stands: Standing) -> dict[str, dict[str, list[float]]]:
    """Arm -> task -> dollars of each trial; tasks that are not planned go by their digest."""
    if not database.exists():
        return {arm: {} for arm in experiment.arms}
    with Reader(database) as reader:
        costs = stored_costs(reader, stands.plan)
    names = {task.digest: task.name for task in experiment.tasks.values()}
    return {arm: {names.get(digest, digest): usd for digest, usd in tasks.items()} for arm, tasks in costs.items()}


def _from_stored(
    experiment: Experiment,
    arm: str,
    stands: Standing,
    left: Sequence[PlannedTrial],
    seen: Mapping[str, Sequence[float]],
    bound: ArmBound,
) -> ArmForecast:
    planned = Counter(trial.task for trial in stands.plan.trials if trial.arm == arm)
    counts = Counter(trial.task for trial in left)
    trials = sum(map(len, seen.values()))
    zero = Decimal(0)
    if not left:
        return ArmForecast(arm, planned, counts, "nothing_left", trials, zero, zero, zero, zero)
    if not trials:
        return ArmForecast(arm, planned, counts, "none", 0, None, zero, bound.usd, bound.usd)
    cost = predicted(seen, counts)
    if cost.half is None:
        return ArmForecast(arm, planned, counts, "stored_one", trials, _usd(cost.expected), zero, bound.usd, bound.usd)
    source: Source = "stored" if counts.keys() <= seen.keys() else "stored_other_tasks"
    return _within(arm, planned, counts, source, trials, cost.expected, cost.half, bound.usd)


def _rehearsed(arm: ArmForecast, left: Sequence[PlannedTrial], costs: Mapping[str, float]) -> ArmForecast:
    """What was rehearsed is taken as it came, the rest predicted from it; all of it may be off by OUTPUTS."""
    done = [trial for trial in left if trial.id in costs]
    if not done:
        return arm
    seen: dict[str, list[float]] = {}
    for trial in done:
        seen.setdefault(trial.task, []).append(costs[trial.id])
    rest = Counter(trial.task for trial in left if trial.id not in costs)
    cost = predicted(seen, rest)
    known = sum(costs[trial.id] for trial in done)
    if cost.half is None:
        return arm
    expected = known + cost.expected
    half = cost.half + OUTPUTS * expected
    return _within(arm.arm, arm.planned, arm.left, "rehearsed", len(done), expected, half, arm.bound_usd)


def _within(
    arm: str,
    planned: Mapping[str, int],
    left: Mapping[str, int],
    source: Source,
    trials: int,
    expected: float,
    half: float,
    bound: Decimal,
) -> ArmForecast:
    """The interval, clipped to what can be."""
    high = min(_usd(expected + half), bound)
    low = _usd(max(expected - half, 0.0))
    return ArmForecast(arm, planned, left, source, trials, _usd(expected), low, high, bound)


def _whole(
    experiment: Experiment,
    database: Path,
    stands: Standing,
    skipped: Mapping[str, str],
    left: Sequence[PlannedTrial],
    arms: Sequence[ArmForecast],
) -> Forecast:
    expected = [arm.expected_usd for arm in arms]
    total = None if None in expected else sum((usd for usd in expected if usd is not None), Decimal(0))
    low, high = _total(arms, total)
    spent, budget = spent_so_far(experiment, database), experiment.budget_usd
    after = at_most_after = None
    if budget is not None:
        after = _reached(left, {arm.arm: arm.expected_usd for arm in arms}, arms, budget - spent)
        if all(arm.interval for arm in arms):
            at_most_after = _reached(left, {arm.arm: arm.high_usd for arm in arms}, arms, budget - spent)
    return Forecast(
        experiment=experiment.name,
        simulated=experiment.simulated,
        planned=len(stands.plan.trials),
        finished=stands.finished,
        skipped=skipped,
        arms=arms,
        expected_usd=total,
        low_usd=low,
        high_usd=high,
        bound_usd=sum((arm.bound_usd for arm in arms), Decimal(0)),
        budget_usd=budget,
        spent_usd=spent,
        reached_after=after,
        reached_at_most_after=at_most_after,
    )


def _total(arms: Sequence[ArmForecast], expected: Decimal | None) -> tuple[Decimal, Decimal]:
    """Arms whose every task is known err apart from each other (root of the sum of squares); the others together: a
    task that costs more than foreseen does so in each arm."""
    low, high = (sum((getattr(arm, end) for arm in arms), Decimal(0)) for end in ("low_usd", "high_usd"))
    if expected is None or not all(arm.source in ("stored", "nothing_left") for arm in arms):
        return low, high
    halves = [
        float(max(arm.high_usd - arm.expected_usd, arm.expected_usd - arm.low_usd)) for arm in arms if arm.expected_usd
    ]
    half = _usd(sum(half**2 for half in halves) ** 0.5)
    return max(low, expected - half), min(high, expected + half)


def _reached(
    left: Sequence[PlannedTrial],
    usd: Mapping[str, Decimal | None],
    arms: Sequence[ArmForecast],
    room: Decimal,
) -> int | None:
    """How many of the trials, in the order of starting, end before the `room` is used up; None when it is not."""
    counts = {arm.arm: arm.trials_left for arm in arms}
    spent = Decimal(0)
    for number, trial in enumerate(left):
        of_arm = usd[trial.arm]
        if of_arm is None:
            return None
        spent += of_arm / counts[trial.arm]
        if spent > room:
            return number
    return None


def _usd(amount: float) -> Decimal:
    return round(Decimal(amount), 6)
