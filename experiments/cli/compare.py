"""fullchain compare: the arms of an experiment side by side."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from experiments.cli.options import DEFAULT_DATABASE, Database

if TYPE_CHECKING:
    from decimal import Decimal

    from rich.table import Table


def compare(
    experiment: Annotated[str, typer.Argument(help="The spec's name.", metavar="EXPERIMENT")],
    database: Database = DEFAULT_DATABASE,
    arms: Annotated[str | None, typer.Option(help="Only these arms, separated by commas.", metavar="NAMES")] = None,
) -> None:
    """Compares the arms of an experiment.

    Passes, dollars, expiry, turns and minutes of each; every figure stands in the view `compare`.
    """
    print_comparison(database, experiment, [name.strip() for name in arms.split(",")] if arms else [])


def print_comparison(database: Path, experiment: str, arms: Sequence[str] = ()) -> None:
    """Raises UnknownExperiment, StoreError."""
    from experiments.cli.expiry import excess, while_expired
    from experiments.cli.terminal import one_line, say, say_table, warn
    from experiments.statistics.comparison import SHARE, comparison, expiry_sources, without_sandbox
    from experiments.statistics.expiry import expiry_costs, expiry_shares
    from experiments.store.reader import Reader

    with Reader(database) as reader:
        lines = comparison(reader, experiment, arms)
        sources = expiry_sources(reader, experiment)
        costs, shares = expiry_costs(reader, experiment), expiry_shares(reader, experiment)
        bare = without_sandbox(reader, experiment)
        warn(reader.warnings)
    say(f"experiment {one_line(experiment)}{_stamp(lines, bare)}")
    say_table(_table(lines))
    for source in sources:
        line = next((line for line in lines if line["arm"] == source["arm"]), None)
        if line is not None:
            say(one_line(_expiry(source, line)))
    for arm, role in dict.fromkeys((source["arm"], source["role"]) for source in sources):
        if any(line["arm"] == arm for line in lines):
            said = while_expired(role, shares.get((arm, role), []), excess(costs, arm, role))
            say(one_line(f"{arm}: {said}", 1000))
    for line in lines:
        for remark in _remarks(line):
            say(f"{one_line(line['arm'])}: {remark}")
    if any(line["expiry_usd"] for line in lines):
        option = "" if database == DEFAULT_DATABASE else f" --db {shlex.quote(str(database))}"
        say(f'the same share in SQL:\n  fullchain query{option} "{SHARE.format(experiment=experiment)}"')


def _table(lines: list[dict[str, Any]]) -> "Table":
    from experiments.cli.terminal import one_line, table

    made = table(
        ("arm", "left"),
        ("passed/scored", "right"),
        ("$ a task", "right"),
        ("$ a pass", "right"),
        ("total $", "right"),
        ("expiry", "right"),
        ("turns", "right"),
        ("min", "right"),
    )
    for line in lines:
        of = "" if line["scored"] == line["trials"] else f" (of {line['trials']})"
        made.add_row(
            one_line(line["arm"]),
            f"{line['passed']}/{line['scored']}{of}",
            _usd(line, "usd_a_task"),
            _usd(line, "usd_a_pass") if line["passed"] else "no pass",
            _usd(line, "total_usd"),
            _share(line["expiry_share"]),
            _number(line["turns"]),
            _number(line["minutes"]),
        )
    return made


def _stamp(lines: list[dict[str, Any]], bare: bool) -> str:
    if not all(line["simulated"] for line in lines):
        return ""
    real = "prices are real, no sandbox held the commands" if bare else "prices and sandboxes are real"
    return f"  [simulated: models and time are simulated, {real}]"


def _expiry(source: dict[str, Any], line: dict[str, Any]) -> str:
    low, high = source["idle_low_s"], source["idle_high_s"]
    gap = (
        "" if low is None else f", after {low:.0f} s idle" if low == high else f", after {low:.0f} to {high:.0f} s idle"
    )
    total = line["total_usd_low"]
    share = source["usd"] / total if total else 0
    return (
        f"{line['arm']}: {share:.1%} of its dollars (${source['usd']:.4f} of ${total:.4f}) rebuilt the "
        f"expired cache of its {source['role']} ({source['model']}) in {source['calls']} calls{gap}"
    )


def _remarks(line: dict[str, Any]) -> list[str]:
    remarks = []
    if line["scored"] < line["trials"]:
        remarks.append(
            f"{line['trials'] - line['scored']} of {line['trials']} planned trials have no score "
            f"({line['trials'] - line['finished']} not finished): means are over the rest"
        )
    if line["unknown_calls"]:
        remarks.append(
            f"{line['unknown_calls']} calls have no exact cost (usage_error and outcome in `calls` say why): dollars "
            f"lie between ${line['total_usd_low']:.4f} and ${line['total_usd_high']:.4f}"
        )
    if line["scope_leak"]:
        remarks.append("a cache read that no earlier call of its trial explains: trials are not independent")
    return remarks


def _usd(line: dict[str, Any], column: str) -> str:
    """Dollars; where they are not known exactly, the least that they can be: an unknown amount is never shown as 0."""
    low: Decimal | None = line[f"{column}_low"]
    if low is None:
        return "-"
    return f"{low:.4f}" if low == line[f"{column}_high"] else f">= {low:.4f}"


def _share(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"
