"""fullchain usage: what a provider's raw usage comes to in tokens and dollars, without running anything."""

import sys
from contextlib import contextmanager
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

MOST_BYTES = 256 << 20
"""Of a document that is read; a longer one is none."""


def usage(
    file: Annotated[
        str | None,
        typer.Argument(
            help="JSON, JSON lines or server-sent events: a usage object, a response, a list of stream events, of "
            "responses or of transcript lines. - reads standard input.",
            metavar="FILE|-",
        ),
    ] = None,
    calls: Annotated[
        str | None,
        typer.Option(
            "--calls",
            help="Instead: a log of calls as JSON lines (role, requested_at, usage, ...), whose causes are told; "
            "model, API, tier and lifetime then hold where a line tells none. docs/cost-model.md has the fields.",
            metavar="FILE|-",
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(help="Whose price holds, or self-hosted. Left out: the model that the response names."),
    ] = None,
    api: Annotated[str | None, typer.Option(help="The API's usage; left out it is recognised.", metavar="NAME")] = None,
    at: Annotated[
        str | None, typer.Option(help="When it was called, UTC. Left out: its own time, else now.", metavar="DATE")
    ] = None,
    tier: Annotated[
        str | None, typer.Option(help="batch, flex, ...: where the response does not tell its tier.")
    ] = None,
    ttl: Annotated[
        str | None, typer.Option(help="5m, 30m, 1h or 12h: of cache writes, where the usage does not tell.")
    ] = None,
    cache_hours: Annotated[
        str | None, typer.Option(help="For how many hours an explicit cache was held (Gemini).", metavar="HOURS")
    ] = None,
    cache: Annotated[
        str | None,
        typer.Option(help="With --calls: the cache policy of models that none is known of.", metavar="NAME"),
    ] = None,
    prices: Annotated[
        list[Path] | None, typer.Option("--prices", help="A further price file; may be repeated.", metavar="FILE")
    ] = None,
) -> None:
    """Prints JSON: tokens and cost by class, the dollars, where the price is from, and warnings. null is not known."""
    import json
    from datetime import UTC, datetime

    from cost_model.policies import POLICIES
    from cost_model.prices import PriceBook
    from cost_model.usage import SHAPES
    from cost_model.usage.document import parse
    from cost_model.usage.report import Question, report
    from cost_model.writes import LIFETIMES
    from experiments.cli.terminal import say

    if (file is None) == (calls is None):
        raise typer.BadParameter("give either a FILE (or -) or --calls FILE (or -)", param_hint="FILE|-")
    if api is not None and api not in SHAPES:
        raise typer.BadParameter(f"{api!r} is none that can be read; one of {', '.join(SHAPES)}", param_hint="--api")
    if ttl is not None and ttl not in LIFETIMES:
        raise typer.BadParameter(f"{ttl!r} is no lifetime; one of {', '.join(LIFETIMES)}", param_hint="--ttl")
    if cache is not None and (calls is None or cache not in POLICIES):
        raise typer.BadParameter(
            "goes with --calls" if calls is None else f"{cache!r} is no policy; one of {', '.join(POLICIES)}",
            param_hint="--cache",
        )
    if cache_hours is not None and calls is not None:
        raise typer.BadParameter("does not go with --calls", param_hint="--cache-hours")
    question = Question(
        prices=PriceBook(prices or []),
        now=datetime.now(UTC),
        model=model,
        api=api,
        at=None if at is None else moment(at),
        tier=tier,
        lifetime=ttl,
        cache_hours=None if cache_hours is None else _hours(cache_hours),
    )
    if calls is not None:
        from experiments.cli.usage_calls import print_calls

        print_calls(_read(calls), "standard input" if calls == "-" else calls, question, cache)
    elif file is not None:
        source = "standard input" if file == "-" else file
        with _naming(source):
            found = report(parse(_read(file)), question)
        say(json.dumps(found, indent=1))


@contextmanager
def _naming(source: str) -> "Iterator[None]":
    """What is wrong with the text says where it stands."""
    from cost_model.errors import DocumentError, PriceMissing, UsageError

    try:
        yield
    except (DocumentError, UsageError, PriceMissing) as error:
        told = str(error)
        raise DocumentError(told if told.startswith(f"{source}: ") else f"{source}: {told}") from None


def moment(text: str) -> "datetime":
    """A date (midnight UTC) or a date-time (UTC unless it tells its offset)."""
    from datetime import UTC, datetime

    try:
        told = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no date; give one such as 2026-11-24 or 2026-11-24T02:00Z") from None
    if not 1970 <= told.year <= 9998:
        raise typer.BadParameter(f"{text!r} must lie in the years 1970 to 9998")
    return told.replace(tzinfo=UTC) if told.tzinfo is None else told.astimezone(UTC)


def _hours(text: str) -> Decimal:
    try:
        hours = Decimal(text)
    except InvalidOperation:
        hours = Decimal(-1)
    if not hours.is_finite() or not 0 <= hours <= 100_000 or hours != round(hours, 6):
        raise typer.BadParameter(f"{text!r} is no number of hours from 0 to 100,000", param_hint="--cache-hours")
    return hours


def _read(file: str) -> str:
    from cost_model.errors import DocumentError

    name = "standard input" if file == "-" else file
    try:
        if file == "-":
            if sys.stdin is None:
                raise DocumentError("standard input: is closed; give a file, or something to read there")
            content = sys.stdin.buffer.read(MOST_BYTES + 1)
        else:
            with Path(file).open("rb") as opened:
                content = opened.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise DocumentError(f"{name}: longer than {MOST_BYTES >> 20} MiB; give less of it at a time")
        return content.decode("utf-8-sig")
    except OSError as error:
        raise DocumentError(f"{name}: cannot be read ({error.strerror or error}); give a file or -") from None
    except UnicodeDecodeError as error:
        raise DocumentError(f"{name}: is not UTF-8 text (byte {error.start}); save it as UTF-8") from None
