"""What is told of expired caches: who held the floor meanwhile, and what that cost."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table

    from experiments.store.reader import Reader

Line = Mapping[str, Any]


def say_experiment(reader: "Reader", experiment: str) -> None:
    """A table of holders, and a sentence for each role of each arm."""
    from experiments.cli.terminal import one_line, say, say_table
    from experiments.statistics.expiry import expiry_costs, expiry_shares

    costs, shares = expiry_costs(reader, experiment), expiry_shares(reader, experiment)
    ((simulated,),) = reader.query("SELECT simulated FROM experiments WHERE name = ?", [experiment]).rows
    stamp = "  [simulated]" if simulated else ""
    if not costs:
        say(f"experiment {one_line(experiment)}: no cache expired{stamp}")
        return
    say(f"experiment {one_line(experiment)}: who held the floor longest while a cache expired{stamp}")
    say_table(_table(costs))
    for arm, role in dict.fromkeys((line["arm"], line["role"]) for line in costs):
        say(one_line(f"{arm}: {while_expired(role, shares.get((arm, role), []), excess(costs, arm, role))}", 1000))


def excess(costs: Iterable[Line], arm: str, role: str) -> Decimal:
    """Dollars that the expiries of a role cost over reading the same tokens."""
    return sum((line["excess_usd"] for line in costs if (line["arm"], line["role"]) == (arm, role)), Decimal(0))


def while_expired(role: str, shares: Sequence[Line], excess_usd: Decimal) -> str:
    """ "while the planner's cache expired: worker model 71%, worker tool 27%; $0.8800 excess"."""
    held = ", ".join(f"{line['holder']} {line['kind']} {line['share']:.0%}" for line in shares)
    return f"while the {role}'s cache expired: {held or 'not known who held the floor'}; ${excess_usd:.4f} excess"


def one_expiry(line: Line, clock: Callable[[float], str]) -> str:
    """One expiry of a trial, its seconds written by `clock`."""
    held = ", ".join(f"{one['holder']} {one['kind']} {clock(one['seconds'])}" for one in line["held"] or ())
    tokens = "tokens not known" if line["tokens"] is None else f"{line['tokens']:,} tokens"
    idle = "a lane's first call" if line["idle_s"] is None else f"{clock(line['idle_s'])} idle"
    return (
        f"{line['role']} turn {line['turn']}: cache expired, {idle}"
        f"{f' ({held})' if held else ''}: {tokens} written again, ${line['excess_usd']:.6f} excess"
    )


def _table(costs: Sequence[Line]) -> "Table":
    from experiments.cli.terminal import one_line, table

    made = table(
        ("arm", "left"),
        ("role", "left"),
        ("holder", "left"),
        ("kind", "left"),
        ("expiries", "right"),
        ("mean idle s", "right"),
        ("most", "right"),
        ("tokens", "right"),
        ("excess $", "right"),
    )
    for line in costs:
        made.add_row(
            one_line(line["arm"]),
            one_line(line["role"]),
            one_line(line["holder"] or "not known"),
            line["kind"] or "-",
            str(line["expiries"]),
            *("-" if line[name] is None else f"{line[name]:.0f}" for name in ("mean_idle_s", "most_idle_s")),
            "-" if line["tokens"] is None else f"{line['tokens']:,}",
            f"{line['excess_usd']:.4f}",
        )
    return made
