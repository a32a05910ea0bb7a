"""fullchain models check: whether a model can be reached, acts, tells its usage and caches as its entry says."""

import sys
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from agents.registry import ModelEntry
    from cost_model.prices import PriceBook
    from experiments.model_check import CheckedModel
    from experiments.model_findings import CheckedCall

ASKS_FROM = Decimal("0.01")
"""Dollars that a check may cost without a question."""


def check(
    name: Annotated[str, typer.Argument(help="The name that a spec would use.", metavar="NAME")],
    extra: Annotated[
        list[Path] | None, typer.Option("--models", help="A further registry file; may be repeated.", metavar="FILE")
    ] = None,
    prices: Annotated[
        list[Path] | None, typer.Option("--prices", help="A further price file; may be repeated.", metavar="FILE")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Sends without asking.")] = False,
    output_tokens: Annotated[
        int | None, typer.Option(min=16, max=100_000, help="The limit of each answer, thinking included.")
    ] = None,
    simulator: Annotated[
        str | None, typer.Option(help="A served simulator instead of one in process.", metavar="URL")
    ] = None,
) -> None:
    """Makes two short calls and tells what came of them.

    Exit code 1 when the model answered and something is off, 2 when it did not answer.
    """
    from agents.registry import find_model, load_models
    from cost_model.prices import PriceBook

    entry = find_model(load_models(extra or []), name)
    raise typer.Exit(0 if check_entry(entry, PriceBook(prices or []), yes, output_tokens, simulator) else 1)


def check_entry(
    entry: "ModelEntry",
    prices: "PriceBook",
    yes: bool,
    output_tokens: int | None = None,
    simulator: str | None = None,
) -> bool:
    """Whether all is well, after it was said. Raises ModelUnusable, RegistryError and PriceMissing."""
    import asyncio

    from agents.errors import ProviderRefused
    from agents.probe import OUTPUT_TOKENS
    from agents.registry import key_of
    from experiments.cli.terminal import one_line, say
    from experiments.errors import ModelUnusable
    from experiments.model_check import check_model, price_card, worst_case

    limit = output_tokens or OUTPUT_TOKENS
    if simulator is not None:
        _served(entry, simulator)
    key_of(entry)
    card = price_card(entry, prices)
    bound = worst_case(entry, card, limit)
    say(one_line(_what(entry)))
    if not _agreed(entry, bound, yes):
        say("nothing was sent and nothing spent", stderr=True)
        return False
    try:
        checked = asyncio.run(check_model(entry, card, simulator_url=simulator, output_tokens=limit))
    except ProviderRefused as error:
        raise ModelUnusable(str(error)) from error
    except KeyboardInterrupt:
        say("stopped: what was sent may be billed", stderr=True)
        raise typer.Exit(130) from None
    _show(checked)
    return not checked.findings


def _served(entry: "ModelEntry", simulator: str) -> None:
    from experiments.cli.served import reach
    from experiments.errors import SpecError

    if not entry.simulated:
        raise SpecError(f"--simulator: {entry.name} is a real model; it is reached at its own base_url")
    reach(simulator)


def _what(entry: "ModelEntry") -> str:
    return (
        f"{entry.name}: {entry.model} over {entry.protocol} at {entry.base_url}, actions {entry.actions}, "
        f"cache {entry.cache} ({entry.cache_request})"
    )


def _agreed(entry: "ModelEntry", bound: Decimal, yes: bool) -> bool:
    from experiments.cli.terminal import say
    from experiments.errors import SpecError

    if entry.simulated:
        say("simulated: nothing is paid; at list price the two calls would cost at most " + _usd(bound))
        return True
    if entry.self_hosted:
        say("self-hosted: the calls cost nothing by the token")
        return True
    say(f"worst case: {_usd(bound)} for two calls (a bound: one token a byte, each at its dearest price)")
    if yes or bound <= ASKS_FROM:
        return True
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise SpecError(
            f"model {entry.name}: the check can cost up to {_usd(bound)} and there is no terminal to ask on; add --yes"
        )
    from experiments.cli.question import answer

    return answer("send? [y/N] ").strip().lower() in ("y", "yes")


def _show(checked: "CheckedModel") -> None:
    from experiments.cli.terminal import one_line, say, say_table, table

    calls = checked.calls
    rows = table(("", "left"), *((heading, "right") for heading in ("first call", "second call")[: len(calls)]))
    for heading, cells in _rows(calls):
        rows.add_row(heading, *(one_line(cell, 60) for cell in cells))
    say_table(rows)
    last = calls[-1]
    for number, call in enumerate(calls, start=1):
        told = ", ".join(f"{name} {_short(value)}" for name, value in call.usage if value is not None) or "none"
        say(one_line(f"usage of call {number}: {told}", 1500))
    if last.exchange.ended.response_model:
        say(one_line(f"answered as: {last.exchange.ended.response_model}"))
    tries = f" in {checked.tries} requests" if checked.tries > len(calls) else ""
    say(f"cost: {_usd(checked.usd)}{tries}" + (" (simulated)" if checked.entry.simulated else ""))
    for finding in checked.findings:
        say(one_line(f"OFF: {finding.what}", 1000))
        say("     " + one_line(finding.advice, 1000))
    if not checked.findings:
        say("all is well")


def _rows(calls: "tuple[CheckedCall, ...]") -> list[tuple[str, list[str]]]:
    from cost_model.tokens import PROMPT_CLASSES

    rows = [
        ("answered", ["yes"] * len(calls)),
        ("action", [_acted(call) for call in calls]),
        ("ended by", [call.exchange.reply.finish_reason or "-" for call in calls]),
        ("first token", ["-" if call.first_token_s is None else f"{call.first_token_s:.2f} s" for call in calls]),
        ("prompt tokens", [_count(call, "prompt") for call in calls]),
    ]
    for name in PROMPT_CLASSES:
        if name in ("input", "cache_read") or any(call.tokens and call.tokens.of(name) for call in calls):
            rows.append((f"  {name}", [_count(call, name) for call in calls]))
    predicted = ["-" if call.predicted_read is None else f"{call.predicted_read:,}" for call in calls]
    rows.insert([heading for heading, _ in rows].index("  cache_read") + 1, ("    predicted", predicted))
    return [
        *rows,
        ("output tokens", [_count(call, "output") for call in calls]),
        ("cost (list price)", ["unknown" if call.usd is None else _usd(call.usd) for call in calls]),
    ]


def _acted(call: "CheckedCall") -> str:
    return {"valid": "valid", "none": "none", "malformed": "MALFORMED"}[call.exchange.acted]


def _count(call: "CheckedCall", name: str) -> str:
    if call.tokens is None:
        return "unknown"
    return f"{call.tokens.prompt if name == 'prompt' else call.tokens.of(name):,}"


def _short(value: object) -> str:
    return f"{value:.5g}" if isinstance(value, float) else str(value)


def _usd(amount: Decimal) -> str:
    return f"${amount:,.4f}" if amount == 0 or amount >= Decimal("0.001") else f"${amount:.6f}"
