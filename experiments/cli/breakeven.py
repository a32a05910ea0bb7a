"""fullchain breakeven: what a waiting cache costs, and when pings or a longer lifetime pay, from prices alone."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from cost_model.break_even import Rates
    from cost_model.policy import CachePolicy
    from cost_model.price_card import PriceCard


def breakeven(
    names: Annotated[list[str], typer.Argument(help="Models of the registry.", metavar="MODEL...")],
    context: Annotated[int, typer.Option(help="Tokens of the context that waits.", min=1, max=10**8)] = 100_000,
    later_turns: Annotated[
        int, typer.Option(help="Turns that would have read again what a hand-over saves.", min=0, max=10**6)
    ] = 10,
    ping_output: Annotated[int, typer.Option(help="Output tokens billed for a ping.", min=0, metavar="N")] = 0,
    at: Annotated[str | None, typer.Option(help="Prices of this date; now by default.", metavar="DATE")] = None,
    models: Annotated[
        list[Path] | None, typer.Option("--models", help="A further registry file; may be repeated.", metavar="FILE")
    ] = None,
    prices: Annotated[
        list[Path] | None, typer.Option("--prices", help="A further price file; may be repeated.", metavar="FILE")
    ] = None,
) -> None:
    """Prints what an expired hand-over costs, and what it takes to make up for it.

    Computed from prices alone, one line for each lifetime that a model's cache knows.
    """
    from agents.registry import find_model, load_models
    from cost_model.policies import POLICIES
    from cost_model.price_card import SELF_HOSTED
    from cost_model.prices import PriceBook
    from experiments.cli.levers import moment
    from experiments.cli.terminal import one_line, say, say_table, table

    when = datetime.now().astimezone() if at is None else moment(at)
    registry, book = load_models(tuple(models or ())), PriceBook(tuple(prices or ()))
    made = table(
        ("model", "left"), ("lifetime", "left"), ("expired hand-over $", "right"), ("output tokens to save", "right"),
        ("a ping $", "right"), ("pings worth", "right"), ("minutes", "right"), ("longer pays above", "left"),
    )  # fmt: skip
    for name in names:
        entry = find_model(registry, name)
        card = SELF_HOSTED if entry.price is None else book.card(entry.price, when)
        for cells in _rows(card, POLICIES[entry.cache], context, later_turns, ping_output):
            made.add_row(one_line(name), *cells)
    say(f"computed from prices of {when:%Y-%m-%d} for a waiting context of {context:,} tokens; nothing is run")
    say_table(made)
    for line in (
        "expired hand-over: writing the context again, over reading it; C (w - r)",
        f"output tokens to save: what it must spare, with {later_turns} later turns; C (w - r) / (o + w + r R)",
        "pings worth, minutes: so many pings, and so long a wait, cost no more than the rebuild that they spare",
        "longer pays above: that share of all written tokens being rebuilds it would have spared; (w' - w) / (w' - r)",
    ):
        say(line)


def _rows(
    card: "PriceCard", policy: "CachePolicy", context: int, later_turns: int, ping_output: int
) -> Iterator[tuple[str, ...]]:
    """Raises PriceMissing."""
    from cost_model.break_even import (
        expired_handover_usd,
        longest_wait_worth,
        output_to_save,
        ping_usd,
        pings_worth,
        rates,
    )

    lifetimes: list[str | None] = [*policy.lifetimes] or [None]
    known = {name: rates(card, policy, name, context) for name in lifetimes}
    for name, of in known.items():
        if policy.matching == "none":
            yield "no cache", "-", "-", "-", "-", "-", "-"
            continue
        alive = policy.lifetime(name)
        output, pings = output_to_save(of, context, later_turns), pings_worth(of, context, ping_output)
        yield (
            name or "none stated",
            f"{expired_handover_usd(of, context):.4f}",
            "-" if output is None else f"{output:,}",
            "-" if alive is None else f"{ping_usd(of, context, ping_output):.4f}",
            "-" if alive is None or pings is None else f"{pings:,}",
            "-" if alive is None else _minutes(longest_wait_worth(of, policy, context, ping_output)),
            _longer(of, [other for other in known.values() if _lives(policy, other) > _lives(policy, of)]),
        )


def _lives(policy: "CachePolicy", of: "Rates") -> timedelta:
    return policy.lifetime(of.lifetime) or timedelta.max


def _longer(of: "Rates", longer: "list[Rates]") -> str:
    from cost_model.break_even import rebuilt_share_for_longer

    told = []
    for other in longer:
        share = rebuilt_share_for_longer(of, other)
        told.append(f"{other.lifetime}: {'never' if share is None else f'{share:.1%}'}")
    return ", ".join(told) or "-"


def _minutes(wait: timedelta | None) -> str:
    return "-" if wait is None else f"{wait / timedelta(minutes=1):,.0f}"
