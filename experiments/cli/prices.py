"""fullchain prices: what a model's tokens cost when, and by whose word."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from cost_model.price_card import PriceCard
PER_THOUSAND = ("web_search",)
"""Classes that people know the price of a thousand of; cards hold that of a million."""

prices = typer.Typer(help="Shows prices by model and date.", rich_markup_mode=None)

_UNITS = {"web_search": "thousand searches", "storage": "million tokens, an hour"}


@prices.callback()
def _prices() -> None:
    """A group, though it has one command only."""


@prices.command("show")
def show_prices(
    model: Annotated[str, typer.Argument(help="A model's id, provider:id, or self-hosted.", metavar="MODEL")],
    at: Annotated[str | None, typer.Option(help="A date or date-time, UTC. Left out: now.", metavar="DATE")] = None,
    files: Annotated[
        list[Path] | None, typer.Option("--prices", help="A further price file; may be repeated.", metavar="FILE")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Prints JSON instead of a table.")] = False,
) -> None:
    """The price of each class of tokens, its source and the dates between which it holds."""
    import json
    from datetime import UTC, datetime

    from cost_model.price_card import SELF_HOSTED
    from cost_model.prices import PriceBook
    from cost_model.usage.report import SELF_HOSTED_MODEL
    from experiments.cli.terminal import one_line, say, say_table, table
    from experiments.cli.usage import moment

    day = datetime.now(UTC) if at is None else moment(at)
    card = SELF_HOSTED if model == SELF_HOSTED_MODEL else PriceBook(files or []).card(model, day)
    if as_json:
        say(json.dumps(_plain(card, day.isoformat()), indent=1))
        return
    made = table(
        ("class", "left"), ("USD", "right"), ("a", "left"), ("prompt tokens", "left"), ("from", "left"),
        ("until", "left"), ("source", "left"),
    )  # fmt: skip
    since, until = _date(card.valid_from), _date(card.valid_until)
    for name, above, usd in _steps(card):
        length = f"above {above:,}" if above else "any" if not card.tiers else f"up to {card.tiers[0].above:,}"
        unit = _UNITS.get(name, "million tokens")
        usd = usd / 1000 if name in PER_THOUSAND else usd
        made.add_row(name, f"{usd.normalize():f}", unit, length, since, until, one_line(card.source))
    say_table(made)
    for modifier in card.modifiers:
        say(f"{one_line(modifier.why)}: {_effect(modifier.times, modifier.usd_per_mtok)}")


def _steps(card: "PriceCard") -> list[tuple[str, int, Any]]:
    from cost_model.tokens import BESIDE, CLASSES

    steps = [(0, card.usd_per_mtok), *((tier.above, tier.usd_per_mtok) for tier in card.tiers)]
    return [(name, above, prices[name]) for name in (*CLASSES, *BESIDE) for above, prices in steps if name in prices]


def _effect(times: Any, replaced: Any) -> str:
    told = [f"{name} {usd.normalize():f}" for name, usd in replaced.items()]
    return ", ".join([*told, *([] if times is None else [f"every token x{times.normalize():f}"])])


def _date(moment: Any) -> str:
    if moment is None:
        return "-"
    return f"{moment:%Y-%m-%d}" if not (moment.hour or moment.minute) else f"{moment:%Y-%m-%d %H:%M}Z"


def _plain(card: "PriceCard", at: str) -> dict[str, Any]:
    def usd(prices: Any) -> dict[str, str]:
        return {name: f"{price.normalize():f}" for name, price in prices.items()}

    return {
        "model": card.ref,
        "at": at,
        "source": card.source,
        "valid_from": card.valid_from.isoformat() if card.valid_from else None,
        "valid_until": card.valid_until.isoformat() if card.valid_until else None,
        "usd_per_million_units": usd(card.usd_per_mtok),
        "tiers": [{"above_prompt_tokens": t.above, "usd_per_million_units": usd(t.usd_per_mtok)} for t in card.tiers],
        "modifiers": [
            {
                "field": modifier.name,
                "value": modifier.value,
                "times": None if modifier.times is None else f"{modifier.times.normalize():f}",
                "usd_per_million_units": usd(modifier.usd_per_mtok),
            }
            for modifier in card.modifiers
        ],
    }
