"""fullchain run --dry-run: what the run would do and may cost."""

from collections.abc import Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table

    from experiments.experiment import Experiment
    from experiments.forecast import ArmForecast, Forecast

SHOWN_TASKS = 6
"""Tasks that are named one by one; the JSON names all."""


def print_forecast(experiment: "Experiment", database: Path, *, pilot: bool, served: bool, as_json: bool) -> None:
    """Raises PlanChanged and StoreError, as the run would."""
    from experiments.cli.terminal import one_line, say, say_table
    from experiments.forecast import forecast

    found = forecast(experiment, database, pilot=pilot, served=served)
    if as_json:
        import json

        say(json.dumps(_as_json(found), indent=2))
        return
    stamp = "  [simulated: the models and their time are, prices are real]" if found.simulated else ""
    say(f"dry run of {one_line(found.experiment)}: nothing is run and nothing written{stamp}")
    pilots = ", the pilot's" if pilot else ""
    say(
        f"{found.planned} trials planned, {found.finished} finished and not run again, "
        f"{found.trials_left} to run{pilots}"
    )
    say_table(_table(found))
    for line in _remarks(found, served=served):
        say(one_line(line, 1000))


def _table(found: "Forecast") -> "Table":
    from experiments.cli.terminal import one_line, table
    from experiments.forecast import LEVEL

    made = table(
        ("arm", "left"),
        ("planned", "right"),
        ("to run", "right"),
        ("a task", "left"),
        ("expected $", "right"),
        (f"{LEVEL:.0%} interval $", "right"),
        ("at most $", "right"),
        ("from", "left"),
    )
    for arm in found.arms:
        made.add_row(
            one_line(arm.arm),
            str(sum(arm.planned.values())),
            str(arm.trials_left),
            one_line(_tasks(arm.left)),
            _usd(arm.expected_usd),
            _interval(arm.low_usd, arm.high_usd) if arm.interval else "-",
            f"{arm.bound_usd:,.2f}",
            _source(arm),
        )
    made.add_row(
        "all",
        str(found.planned),
        str(found.trials_left),
        "",
        _usd(found.expected_usd),
        _interval(found.low_usd, found.high_usd) if found.interval else "-",
        f"{found.bound_usd:,.2f}",
        "",
    )
    return made


def _tasks(left: Mapping[str, int]) -> str:
    counts = set(left.values())
    if not left:
        return "-"
    if len(counts) == 1:
        return f"{counts.pop()} on {'1 task' if len(left) == 1 else f'each of {len(left)} tasks'}"
    named = [f"{task} {count}" for task, count in left.items()]
    rest = f", and {len(named) - SHOWN_TASKS} more" if len(named) > SHOWN_TASKS else ""
    return ", ".join(named[:SHOWN_TASKS]) + rest


def _source(arm: "ArmForecast") -> str:
    many = "1 stored trial" if arm.trials == 1 else f"{arm.trials} stored trials"
    return {
        "stored": f"{many} of this arm and these tasks",
        "stored_other_tasks": f"{many} of this arm, some tasks not among theirs",
        "stored_one": f"{many} of this arm: no spread known",
        "rehearsed": f"{arm.trials} trials rehearsed from personas",
        "none": f"no data: at most ${arm.bound_usd:,.2f}",
        "nothing_left": "nothing left to run",
    }[arm.source]


def _remarks(found: "Forecast", *, served: bool) -> Iterator[str]:
    from experiments.cli.spending import BOUND
    from experiments.forecast import LEVEL, OUTPUTS

    sources = {arm.source for arm in found.arms}
    for task, reason in found.skipped.items():
        yield f"task {task} would be left out: {reason}"
    if sources & {"stored", "stored_other_tasks"}:
        yield (
            f"stored trials: the sum of the trials to run lies in the interval in {LEVEL:.0%} of cases (Student's t; "
            "noise of repeats and error of the means; a task not seen yet is taken as one more of those seen)"
        )
    if "rehearsed" in sources:
        yield (
            "rehearsed: planned trials played in memory by the simulated models with the run's own dice and clock, no "
            f"command run; the interval holds the trials not rehearsed and {OUTPUTS:.0%} either way for what commands "
            "print"
        )
    if "stored_one" in sources:
        yield "one trial, or one task of several, shows no spread: the estimate has no interval"
    if "none" in sources and found.simulated and served:
        yield "a served simulator may have other personas than these, so none are rehearsed"
    if sources - {"nothing_left"}:
        yield f"at most: {BOUND.removeprefix('worst case: ')}"
    yield _budget(found)


def _budget(found: "Forecast") -> str:
    if found.budget_usd is None:
        return "no budget_usd" if found.simulated else "no budget_usd: nothing would stop a run of it at any sum"
    budget = f"budget ${found.budget_usd:,.2f}, ${found.spent_usd:,.4f} of it spent"
    left = found.trials_left
    if not left:
        return budget
    if found.reached_after is not None:
        return f"{budget}: reached after about {found.reached_after} of {left} trials, and the run ends there"
    if found.expected_usd is None:
        return f"{budget}: the run ends there; after how many trials is not known"
    if found.reached_at_most_after is not None:
        return (
            f"{budget}: enough for what is expected; at the intervals' upper ends reached after about "
            f"{found.reached_at_most_after} of {left} trials"
        )
    return f"{budget}: enough for what is expected{', also at the upper ends' if found.interval else ''}"


def _usd(amount: Decimal | None) -> str:
    return "-" if amount is None else f"{amount:,.4f}"


def _interval(low: Decimal, high: Decimal) -> str:
    return f"{low:,.4f} to {high:,.4f}"


def _as_json(found: "Forecast") -> dict[str, Any]:
    from experiments.forecast import LEVEL

    return {
        "experiment": found.experiment,
        "simulated": found.simulated,
        "level": LEVEL,
        "planned": found.planned,
        "finished": found.finished,
        "to_run": found.trials_left,
        "skipped": dict(found.skipped),
        "arms": [
            {
                "arm": arm.arm,
                "planned": dict(arm.planned),
                "to_run": dict(arm.left),
                "source": arm.source,
                "source_trials": arm.trials,
                **_dollars(arm),
            }
            for arm in found.arms
        ],
        "total": _dollars(found),
        "budget_usd": _text(found.budget_usd),
        "spent_usd": _text(found.spent_usd),
        "budget_reached_after": found.reached_after,
        "budget_reached_after_at_upper_end": found.reached_at_most_after,
    }


def _dollars(of: "ArmForecast | Forecast") -> dict[str, str | None]:
    """As text, exact; low and high are null where nothing predicts them."""
    return {
        "expected_usd": _text(of.expected_usd),
        "low_usd": _text(of.low_usd if of.interval else None),
        "high_usd": _text(of.high_usd if of.interval else None),
        "at_most_usd": _text(of.bound_usd),
    }


def _text(amount: Decimal | None) -> str | None:
    return None if amount is None else format(amount, "f")
