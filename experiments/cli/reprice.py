"""fullchain reprice: what stored calls cost at other prices. Nothing is run, replayed or stored."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from experiments.cli.options import DEFAULT_DATABASE, Database

if TYPE_CHECKING:
    from experiments.repricing.lines import ArmLines, By, Line
    from experiments.repricing.prices import NewPrices
    from experiments.repricing.sums import Dollars


def reprice(
    experiment: Annotated[str, typer.Argument(help="The spec's name.", metavar="EXPERIMENT")],
    database: Database = DEFAULT_DATABASE,
    prices: Annotated[
        list[Path] | None,
        typer.Option(help="Prices of this file; may be repeated, later ones win.", metavar="FILE"),
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(help="Prices of this date for every call. Left out: each at its own time.", metavar="DATE"),
    ] = None,
    by: Annotated[
        str | None, typer.Option(help="Splits the dollars further: class, cause or task.", metavar="WHAT")
    ] = None,
    arms: Annotated[str | None, typer.Option(help="Only these arms, separated by commas.", metavar="NAMES")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Prints JSON, every amount to its last digit.")] = False,
) -> None:
    """Prices the stored calls of an experiment anew, from their raw usage, beside what was measured.

    Every attempt of every trial counts. Nothing is run and nothing is stored.
    """
    from experiments.cli.levers import moment
    from experiments.cli.terminal import warn
    from experiments.errors import QueryError
    from experiments.repricing.lines import By, by_arm
    from experiments.repricing.prices import NewPrices
    from experiments.repricing.repricing import reprice as repriced
    from experiments.store.reader import Reader

    if not prices and at is None:
        raise QueryError("say which prices: --prices FILE (a price file), --at DATE, or both")
    if by is not None and by not in [*By]:
        raise QueryError(f"--by {by}: expected {', '.join(By)}")
    split = None if by is None else By(by)
    asked = NewPrices(tuple(prices or ()), None if at is None else moment(at))
    chosen = [name.strip() for name in arms.split(",")] if arms else []
    with Reader(database) as reader:
        found = repriced(reader, experiment, asked, arms=chosen, classes=split == By.classes, causes=split == By.causes)
        warn(reader.warnings)
    lines = by_arm(found, split)
    if not any(arm.was.calls for arm in lines):
        raise QueryError(f"experiment {experiment!r} has no calls yet; run it first")
    if as_json:
        _print_json(experiment, asked, split, lines)
    else:
        _print_table(experiment, asked, split, lines)


def _print_table(experiment: str, asked: "NewPrices", by: "By | None", arms: "Sequence[ArmLines]") -> None:
    from experiments.cli.terminal import one_line, say, say_table, table
    from experiments.repricing.lines import By, whole

    say(f"experiment {one_line(experiment)}  [{_how(arms)}; repriced: arithmetic on stored usage, nothing was run]")
    say(one_line(f"prices of {' and '.join(_described(asked))}"))
    headings = [("role", "left"), ("model", "left")]
    if by is not None:
        headings.append(("token class" if by == By.classes else str(by), "left"))
    headings += [(title, "right") for title in ("measured $", "repriced $", "difference $", "ratio")]
    if by == By.causes:
        headings += [("measured excess $", "right"), ("repriced excess $", "right")]
    for arm in arms:
        if not arm.was.calls:
            say(one_line(f"{arm.arm}: has no calls yet"))
            continue
        made = table(*headings)
        for line in arm.lines:
            made.add_row(*_cells(line, by))
        parts = [""] if by is not None else []
        made.add_row(
            "all", "", *parts, *_figures(arm.measured, arm.repriced), *(_excess(arm.lines) if by == By.causes else [])
        )
        say()
        say(one_line(f"arm {arm.arm}{' [simulated]' if arm.simulated else ''}"))
        say_table(made)
        for remark in remarks(arm, by):
            say(one_line(f"{arm.arm}: {remark}"))
    if sum(arm.was.calls > 0 for arm in arms) > 1:
        measured, repriced = whole(arms)
        figures = _figures(measured, repriced)
        say()
        say(f"all arms: measured ${figures[0]}, repriced ${figures[1]}, difference {figures[2]}, ratio {figures[3]}")


def _cells(line: "Line", by: "By | None") -> list[str]:
    from experiments.cli.terminal import one_line
    from experiments.repricing.lines import By

    parts = [one_line(line.part)] if by is not None else []
    excess = _excess([line]) if by == By.causes else []
    return [one_line(line.role), one_line(line.model), *parts, *_figures(line.measured, line.repriced), *excess]


def _excess(lines: "Sequence[Line]") -> list[str]:
    was, now = (sum(getattr(line, side).excess for line in lines) for side in ("measured", "repriced"))
    return [f"{was:.4f}" if was else "-", f"{now:.4f}" if now else "-"]


def _figures(was: "Dollars", now: "Dollars") -> list[str]:
    """Measured, repriced, their difference and their ratio; a range from its low to its high end."""
    ends = ((was.low, now.low), (was.high, now.high))
    differences = [f"{after - before:+.4f}" if round(after - before, 4) else "-" for before, after in ends]
    ratios = [f"{after / before:.4f}" if before else "-" for before, after in ends]
    return [
        _range([f"{was.low:.4f}", f"{was.high:.4f}"]),
        _range([f"{now.low:.4f}", f"{now.high:.4f}"]),
        _range(differences),
        _range(ratios),
    ]


def _range(ends: list[str]) -> str:
    return " to ".join(dict.fromkeys(ends))


def remarks(arm: "ArmLines", by: "By | None") -> list[str]:
    """What the reader must know to judge the figures of this arm."""
    from experiments.repricing.lines import By

    told = []
    if arm.was.inexact or arm.now.inexact:
        told.append(
            f"of {arm.now.calls} calls {arm.was.inexact} have no exact measured cost and {arm.now.inexact} none at "
            "these prices (usage unknown, broken off, or of a class without a price): from the least to the most"
        )
    if arm.now.billed:
        parts = "classes are at list prices, `all` is with bills; " if by in (By.classes, By.causes) else ""
        told.append(
            f"{arm.now.billed} calls have a provider's bill: {parts}a bill is measured as it is, and repriced in "
            "proportion to the call's list price"
        )
    if arm.now.anew:
        told.append(
            f"{arm.now.anew} attempts were explained anew: at these prices their usage is read otherwise than it is "
            "stored"
        )
    if arm.was.in_flight:
        told.append(f"{arm.was.in_flight} calls are in flight and left out")
    return told


def _how(arms: "Sequence[ArmLines]") -> str:
    if all(arm.simulated for arm in arms):
        return "simulated: measured on simulated models and time, at real prices"
    if any(arm.simulated for arm in arms):
        return "arms marked simulated were measured on simulated models and time"
    return "measured on real models"


def _described(asked: "NewPrices") -> list[str]:
    told = [str(path) for path in asked.files]
    return [*told, *([f"{asked.at:%Y-%m-%dT%H:%M:%SZ}"] if asked.at is not None else [])]


def _print_json(experiment: str, asked: "NewPrices", by: "By | None", arms: "Sequence[ArmLines]") -> None:
    """Money is text, so that no digit is lost. `ratio` is null where a side is a range or nothing was measured."""
    import json

    from experiments.cli.terminal import output
    from experiments.repricing.lines import By, whole

    document = {
        "experiment": experiment,
        "prices": [str(path) for path in asked.files],
        "at": None if asked.at is None else asked.at.isoformat(),
        "by": by,
        "rows": [
            {
                "arm": line.arm,
                "role": line.role,
                "model": line.model,
                **({} if by is None else {str(by): line.part}),
                **_amounts(line.measured, line.repriced, excess=by == By.causes),
            }
            for arm in arms
            for line in arm.lines
        ],
        "arms": [
            {
                "arm": arm.arm,
                "simulated": arm.simulated,
                **_amounts(arm.measured, arm.repriced, excess=False),
                "calls": arm.now.calls,
                "measured_inexact_calls": arm.was.inexact,
                "repriced_inexact_calls": arm.now.inexact,
                "billed_calls": arm.now.billed,
                "in_flight_calls": arm.was.in_flight,
                "attempts_explained_anew": arm.now.anew,
            }
            for arm in arms
        ],
        "all": _amounts(*whole(arms), excess=False),
    }
    output().write(json.dumps(document, indent=1) + "\n")


def _amounts(was: "Dollars", now: "Dollars", *, excess: bool) -> dict[str, object]:
    from experiments.repricing.lines import ratio

    told = ratio(was, now)
    figures = {
        "measured_usd_low": was.low,
        "measured_usd_high": was.high,
        "repriced_usd_low": now.low,
        "repriced_usd_high": now.high,
        "difference_usd_low": now.low - was.low,
        "difference_usd_high": now.high - was.high,
    }
    if excess:
        figures |= {"measured_excess_usd": was.excess, "repriced_excess_usd": now.excess}
    return {
        **{name: format(amount, "f") for name, amount in figures.items()},
        "ratio": None if told is None else format(round(told, 6), "f"),
    }
