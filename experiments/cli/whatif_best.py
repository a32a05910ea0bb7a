"""fullchain whatif --best: the cheapest cache for each role, arm by arm."""

from decimal import Decimal
from typing import TYPE_CHECKING

from experiments.cli.whatif import saved, stamp, words
from experiments.errors import QueryError

if TYPE_CHECKING:
    from cost_model.what_if.search import Option
    from experiments.store.replay_calls import StoredArm

SHOWN = 4
"""Options a role, the cheapest first, of equals the plainest; what it was is always among them."""


def print_best(experiment: str, arms: "list[StoredArm]") -> None:
    """Raises QueryError when there is no call."""
    from experiments.cli.terminal import say

    called = [arm for arm in arms if arm.roles]
    if not called:
        raise QueryError(f"experiment {experiment!r} has no calls yet; run it first")
    say(stamp(experiment, called))
    say("what if: each role had another cache lifetime, none, or pings; one role at a time, then all cheapest together")
    for arm in called:
        _say_arm(arm)
    say("taken as measured: how the lanes grow, what is written, which commands run")


def _shown(tried: "tuple[Option, ...]") -> "list[Option]":
    from cost_model.what_if.change import RoleChange

    as_it_was = next(option for option in tried if option.change == RoleChange())
    plain = list({option.usd: option for option in reversed(tried)}.values())[::-1]
    return plain[:SHOWN] if as_it_was in plain[:SHOWN] else [*plain[: SHOWN - 1], as_it_was]


def _say_arm(arm: "StoredArm") -> None:
    from cost_model.what_if.replay import replay, total
    from cost_model.what_if.search import best
    from experiments.cli.terminal import one_line, say, say_table, table

    found = best(arm.scopes)
    made = table(("role", "left"), ("cache", "left"), ("arm's total $", "right"), ("difference $", "right"))
    for role, tried in found.options.items():
        for option in _shown(tried):
            amount = "no price" if option.usd is None else f"{option.usd:.4f}"
            made.add_row(one_line(role), words(option.change), amount, saved(found.measured, option.usd))
    together = sum((total(replay(scope, found.together).predicted).low for scope in arm.scopes), Decimal(0))
    made.add_row("all", "the cheapest of each", f"{together:.4f}", saved(found.measured, together))
    say()
    say(one_line(f"arm {arm.name}{' [simulated]' if arm.simulated else ''}: measured ${found.measured:.4f}"))
    say_table(made)
    for role, tried in found.options.items():
        say(one_line(f"{arm.name}: cheapest for {role}: {words(tried[0].change)}"))
    for reason in found.untold.values():
        say(one_line(f"{arm.name}: not tried: {reason}"))
