"""What a run says about money: before the first call, when the budget is used up, and after a pilot."""

import sys
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from experiments.experiment import Experiment
    from experiments.pilot import Outlook
    from experiments.runner import Report
    from experiments.worst_case import ArmBound

BOUND = (
    "worst case: a bound, not an estimate (every turn used, every prompt as long as the model's context, every token "
    "at its dearest price); a call that breaks off is tried again and paid again, which only the budget and limits of "
    "dollars or tokens stop"
)


def agreed(experiment: "Experiment", database: Path, *, pilot: bool, yes: bool) -> bool:
    """Says what the run can cost at most, and asks, where it costs money and something is left to run.

    Raises SpecError when there is nobody to ask, PlanChanged and StoreError.
    """
    from experiments.errors import SpecError
    from experiments.pilot import outlooks
    from experiments.standing import pilot_block, spent_so_far, standing
    from experiments.store.store import Store
    from experiments.worst_case import arm_bounds

    if not experiment.costs_money:
        return True
    stands = standing(experiment, Store(database, experiment.prices))
    chosen = {trial.id for trial in pilot_block(stands.plan)} if pilot else None
    trials = [trial for trial in stands.pending if chosen is None or trial.id in chosen]
    if not trials:
        return True
    bounds = arm_bounds(experiment, trials)
    spent = spent_so_far(experiment, database)
    if not yes and not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise SpecError(
            f"{experiment.path}: real models cost money (worst case ${_total(bounds):,.2f}, "
            f"{_budget_words(experiment)}) and there is no terminal to ask on; add --yes to start"
        )
    _say_bounds(experiment, bounds, spent)
    known = [(each.arm, each.rest_usd) for each in outlooks(experiment, stands, database) if each.rest_usd is not None]
    if known and not pilot:
        _tell(
            "estimate of the rest, from what is finished: "
            + ", ".join(f"{arm} ${usd:,.2f}" for arm, usd in known)
            + " (the mean so far times the trials left)"
        )
    return yes or _asked()


def out_of_money(report: "Report", experiment: "Experiment") -> str:
    """The one line of a run that the budget ended."""
    assert report.budget is not None  # noqa: S101  (nothing else runs out of money)
    return (
        f"budget used up: ${report.budget.spent:,.4f} of ${report.budget.usd:,.2f} spent; {report.left} of "
        f"{report.planned} trials are left; raise budget_usd in {experiment.path} (or give --budget) and run the same "
        "command again to go on"
    )


def print_pilot(experiment: "Experiment", database: Path, again: Sequence[str]) -> None:
    """What each arm has cost and what the rest may cost; `again` is the command that runs it. Raises StoreError."""
    from experiments.cli.terminal import one_line, say, say_table, table
    from experiments.pilot import outlooks
    from experiments.standing import spent_so_far, standing
    from experiments.store.store import Store

    stands = standing(experiment, Store(database, experiment.prices))
    arms = outlooks(experiment, stands, database)
    say(f"pilot of {one_line(experiment.name)}: one task, one repeat an arm")
    made = table(
        ("arm", "left"),
        ("finished", "right"),
        ("$ a trial", "right"),
        ("$ so far", "right"),
        ("left", "right"),
        ("rest $ (estimate)", "right"),
        ("rest $ (at most)", "right"),
    )
    for arm in arms:
        made.add_row(
            one_line(arm.arm),
            f"{arm.finished} of {arm.planned}",
            _range(arm),
            f"{arm.spent_usd:,.4f}",
            str(arm.left),
            "-" if arm.rest_usd is None else f"{arm.rest_usd:,.2f}",
            f"{arm.bound_usd:,.2f}",
        )
    say_table(made)
    say(_how_sure(arms))
    say(BOUND.replace("worst case", "at most"))
    rest = sum((arm.rest_usd or Decimal(0) for arm in arms), Decimal(0))
    if experiment.budget_usd is not None:
        room = experiment.budget_usd - spent_so_far(experiment, database)
        enough = "is less than" if rest < room else "does not fit into"
        say(
            f"the estimate of the rest, ${rest:,.2f}, {enough} what the budget of ${experiment.budget_usd:,.2f} has "
            f"left, ${max(room, Decimal(0)):,.2f}; the run ends there"
        )
    if stands.pending:
        say(f"start the rest: {one_line(' '.join(again), 1000)}")


def _how_sure(arms: "Sequence[Outlook]") -> str:
    tasks = [arm.tasks for arm in arms if arm.tasks]
    method = "estimate: an arm's mean dollars a trial times its trials left"
    if not tasks:
        return f"{method}; no trial is finished, so there is none"
    fewest = min(tasks)
    seen = "one task" if fewest == 1 else f"{fewest} tasks"
    return (
        f"{method}. It rests on {seen} an arm, which shows no spread between tasks, so no interval is given: the "
        f"chance that another task costs more than the dearest so far is 1 in {fewest + 1}"
        if fewest == 1
        else f"{method}. It rests on {seen} an arm; their range stands above, no interval is given: the chance that "
        f"another task costs more than the dearest so far is about 1 in {fewest + 1}"
    )


def _range(arm: "Outlook") -> str:
    if arm.cheapest_usd is None or arm.dearest_usd is None:
        return "-"
    if arm.cheapest_usd == arm.dearest_usd:
        return f"{arm.cheapest_usd:,.4f}"
    return f"{arm.cheapest_usd:,.4f} to {arm.dearest_usd:,.4f}"


def _say_bounds(experiment: "Experiment", bounds: "Sequence[ArmBound]", spent: Decimal) -> None:
    from experiments.cli.terminal import one_line, say_table, table

    made = table(
        ("arm", "left"),
        ("trials", "right"),
        ("calls a trial", "right"),
        ("dearest call $", "right"),
        ("worst case $", "right"),
    )
    for bound in bounds:
        made.add_row(
            one_line(bound.arm),
            str(bound.trials),
            f"{bound.calls:,}",
            f"{bound.dearest_call_usd:,.4f}",
            f"{bound.usd:,.2f}",
        )
    made.add_row("all", str(sum(bound.trials for bound in bounds)), "", "", f"{_total(bounds):,.2f}")
    say_table(made, stderr=True)
    _tell(BOUND)
    if experiment.budget_usd is None:
        _tell("no budget: nothing stops the run")
        return
    dearest = max(bound.dearest_call_usd for bound in bounds)
    _tell(
        f"budget: ${experiment.budget_usd:,.2f}, of which ${spent:,.4f} is spent; the run ends there, and passes it by "
        f"less than the worst case of one call (here at most ${dearest:,.2f})"
    )


def _budget_words(experiment: "Experiment") -> str:
    return "no budget" if experiment.budget_usd is None else f"budget ${experiment.budget_usd:,.2f}"


def _total(bounds: "Sequence[ArmBound]") -> Decimal:
    return sum((bound.usd for bound in bounds), Decimal(0))


def _asked() -> bool:
    from experiments.cli.question import answer

    return answer("start? [y/N] ").strip().lower() in ("y", "yes")


def _tell(line: str) -> None:
    from experiments.cli.terminal import say

    say(line, stderr=True)
