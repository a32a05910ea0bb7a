"""fullchain models: the registry's entries, what they ask for and what they cost."""

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from experiments.cli.models_add import add
from experiments.cli.models_check import check

if TYPE_CHECKING:
    from agents.registry import ModelEntry
    from cost_model.price_card import PriceCard
    from cost_model.prices import PriceBook

models = typer.Typer(help="Lists, checks and adds the models that a spec can name.", rich_markup_mode=None)
models.command("check")(check)
models.command("add")(add)

Registries = Annotated[
    list[Path] | None, typer.Option("--models", help="A further registry file; may be repeated.", metavar="FILE")
]
PriceFiles = Annotated[
    list[Path] | None, typer.Option("--prices", help="A further price file; may be repeated.", metavar="FILE")
]

_APIS = {"anthropic_messages": "messages", "openai_chat": "chat", "openai_responses": "responses"}


@models.command("list")
def list_models(extra: Registries = None, prices: PriceFiles = None) -> None:
    """Name, API, context, cache policy, efforts, today's price per million tokens, and the variable with the key."""
    from agents.registry import load_models
    from cost_model.prices import PriceBook
    from experiments.cli.terminal import one_line, say, say_table, table

    rows = table(
        ("model", "left"), ("API", "left"), ("context", "right"), ("cache", "left"), ("efforts", "left"),
        ("$ in/read/out", "left"), ("key variable", "left"),
    )  # fmt: skip
    book, now = PriceBook(prices or []), datetime.now().astimezone()
    for name, entry in load_models(extra or []).items():
        cells = (
            name,
            _APIS[entry.protocol] + ("" if entry.actions == "tools" else f" {entry.actions.removesuffix('_schema')}"),
            _thousands(entry.limits.context_tokens),
            entry.cache,
            _efforts(entry),
            _price_at_a_glance(entry, book, now),
            entry.key_variable or ("simulated" if entry.simulated else "none"),
        )
        rows.add_row(*(one_line(cell) for cell in cells))
    say_table(rows)
    say("Prices are USD per million tokens now, of a short prompt. One model in full: fullchain models show NAME")


@models.command("show")
def show_model(
    name: Annotated[str, typer.Argument(help="The name that a spec would use.", metavar="NAME")],
    extra: Registries = None,
    prices: PriceFiles = None,
) -> None:
    """One entry with everything that it inherits, how its cache behaves, and its price for each class of tokens."""
    from agents.registry import find_model, load_models
    from cost_model.errors import PriceMissing
    from cost_model.policies import POLICIES, charged_classes
    from cost_model.prices import PriceBook
    from experiments.cli.terminal import one_line, say

    entry = find_model(load_models(extra or []), name)
    lines = [*_entry_lines(entry), *_cache_lines(entry)]
    card = None
    try:
        card = _card(entry, PriceBook(prices or []), datetime.now().astimezone())
        lines += _price_lines(card)
        lacking = card.lacking(charged_classes(POLICIES[entry.cache]))
        if lacking:
            lines.append(("NOT PRICED", ", ".join(lacking) + ": add a price file, or no run can use this model"))
    except PriceMissing as error:
        lines.append(("NOT PRICED", str(error)))
    width = max(len(heading) for heading, _ in lines)
    for heading, text in lines:
        say(f"{heading:<{width}}  {one_line(text)}".rstrip())


def _card(entry: "ModelEntry", book: "PriceBook", at: datetime) -> "PriceCard":
    from cost_model.price_card import SELF_HOSTED

    return SELF_HOSTED if entry.price is None else book.card(entry.price, at)


def _price_at_a_glance(entry: "ModelEntry", book: "PriceBook", at: datetime) -> str:
    from cost_model.errors import PriceMissing

    if entry.self_hosted:
        return "self-hosted, $0"
    try:
        prices = _card(entry, book, at).usd_per_mtok
    except PriceMissing:
        return "none known"
    return " / ".join(f"{prices[each].normalize():f}" if each in prices else "-" for each in _GLANCE)


_GLANCE = ("input", "cache_read", "output")


def _entry_lines(entry: "ModelEntry") -> list[tuple[str, str]]:
    import json

    limit = entry.output_limit_parameter if entry.protocol == "openai_chat" else None
    told = [
        ("model", entry.name),
        ("provider", entry.provider),
        ("asked for as", entry.model),
        ("API", f"{entry.protocol} at {entry.base_url}"),
        ("key", f"in {entry.key_variable}" if entry.key_variable else "none"),
        ("context", f"{entry.limits.context_tokens:,} tokens, prompt and answer together"),
        ("one answer", f"at most {entry.limits.max_output_tokens:,} tokens" + (f" ({limit})" if limit else "")),
        ("temperature", "may be set" if entry.temperature else "is not taken"),
        ("efforts", ", ".join(entry.efforts) or "none may be set"),
        ("actions", entry.actions),
    ]
    if entry.protocol == "openai_chat":
        told.append(("reasoning", f"{entry.reasoning}: what it thought {_GOES_BACK[entry.reasoning]}"))
    if entry.extra_body:
        told.append(("extra body", json.dumps(entry.extra_body, ensure_ascii=False)))
    if entry.headers:
        # Their names alone: gateways have their tokens in headers.
        told.append(("headers", ", ".join(entry.headers)))
    return told


_GOES_BACK = {"keep": "goes back with its message", "drop": "does not go back"}


def _cache_lines(entry: "ModelEntry") -> list[tuple[str, str]]:
    from cost_model.policies import POLICIES

    policy = POLICIES[entry.cache]
    if policy.matching == "none":
        return [("cache", "none: nothing is cached")]
    lives = ", ".join(
        each + (" (default)" if each == policy.default_lifetime and len(policy.lifetimes) > 1 else "")
        for each in policy.lifetimes
    )
    asked = entry.cache_request + (" and a cache key" if entry.sends_cache_key else "")
    at = "at breakpoints" if policy.matching == "breakpoints" else f"any prefix, in steps of {policy.multiple}"
    return [
        ("cache", f"{policy.name}: {at}, prompts from {policy.minimum_tokens:,} tokens on"),
        ("lifetimes", lives or "none stated"),
        ("asked for by", asked),
    ]


def _price_lines(card: "PriceCard") -> list[tuple[str, str]]:
    from cost_model.price_card import SELF_HOSTED
    from cost_model.tokens import CLASSES

    if card is SELF_HOSTED:
        return [("prices", "self-hosted: tokens cost nothing")]

    lines = [("prices", f"USD per million tokens now, by {card.source}")]
    for token_class in (*_GLANCE[:2], *(each for each in CLASSES if each not in _GLANCE), "output"):
        if token_class in card.usd_per_mtok:
            steps = [f"{card.usd_per_mtok[token_class].normalize():f}"]
            steps += [
                f"{tier.usd_per_mtok[token_class].normalize():f} above {tier.above:,} prompt tokens"
                for tier in card.tiers
                if token_class in tier.usd_per_mtok
            ]
            lines.append((f"  {token_class}", ", ".join(steps)))
    return lines


def _efforts(entry: "ModelEntry") -> str:
    if len(entry.efforts) < 3:
        return ", ".join(entry.efforts)
    return f"{entry.efforts[0]}..{entry.efforts[-1]}"


def _thousands(tokens: int) -> str:
    return f"{tokens / 10**6:.2f}M".replace(".00M", "M") if tokens >= 10**6 else f"{tokens // 1000}k"
