"""The public front of fullchain: run a spec, compare its arms, ask the database, price a usage.

    import fullchain

    report = fullchain.run("quickstart", db="demo.duckdb")
    for arm in fullchain.compare("quickstart", db="demo.duckdb"):
        print(arm["arm"], arm["passed"], arm["usd_a_pass"])
    fullchain.query("SELECT cause, sum(usd_low) FROM charges GROUP BY cause", db="demo.duckdb")

A user's mistake raises an exception of `experiments.errors`, `harbor_tasks.errors`, `agents.errors`,
`topologies.errors` or `cost_model.errors` whose text is one line that says how to mend it. Money is Decimal US
dollars, times are aware UTC.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from experiments.runner import Report
    from experiments.store.reader import Reader

__all__ = ["compare", "open_database", "price", "query", "run"]

DEFAULT_DATABASE = "fullchain.duckdb"


def run(
    spec: str | PathLike[str], *, db: str | PathLike[str] = DEFAULT_DATABASE, name: str | None = None,
    concurrency: int | None = None, simulator_url: str | None = None, budget_usd: Decimal | None = None,
    no_budget: bool = False, pilot: bool = False, yes: bool = False,
) -> "Report":  # fmt: skip
    """Runs the trials of a spec (a file, or the name of a shipped one) that `db` does not have yet.

    `name` runs it as a new experiment. `budget_usd` is what the experiment may spend over all its runs and wins over
    the spec; `no_budget` sets no limit. Real models that cost money need one of both, and `yes`: nobody is asked.
    `pilot` runs one trial an arm. Returns how it ended; the results are in the database. Not to be called from a
    running event loop.
    """
    import asyncio

    from experiments.errors import SpecError
    from experiments.loading import find_spec, load
    from experiments.runner import run_experiment

    experiment = load(
        find_spec(str(spec)), name=name, concurrency=concurrency, simulator_url=simulator_url, budget_usd=budget_usd,
        no_budget=no_budget,
    )  # fmt: skip
    if experiment.costs_money and not yes:
        raise SpecError(f"{experiment.path}: real models cost money; give yes=True to start them")
    return asyncio.run(run_experiment(experiment, Path(db), simulator_url=simulator_url, pilot=pilot))


def compare(experiment: str, *, db: str | PathLike[str] = DEFAULT_DATABASE) -> list[dict[str, Any]]:
    """One mapping an arm, in the spec's order: the columns of the view `compare`."""
    from experiments.statistics.comparison import comparison

    with open_database(db) as reader:
        return comparison(reader, experiment)


def query(sql: str, *, db: str | PathLike[str] = DEFAULT_DATABASE) -> list[dict[str, Any]]:
    """The rows of one SELECT, a mapping each; also while a run writes."""
    from experiments.store.reader import query as ask

    names, rows = ask(Path(db), sql)
    return [dict(zip(names, row, strict=True)) for row in rows]


def price(
    flavour: str, usage: Mapping[str, object], model: str, at: datetime, *, prices: Sequence[str | PathLike[str]] = ()
) -> Decimal:
    """Dollars of one call at list price: `usage` is the provider's raw object, `flavour` its API (a name of
    `cost_model.usage.SHAPES`, such as anthropic_messages), `model` a price reference, `at` an aware
    moment, `prices` further price files.

    A tier, a speed and a region that the usage tells multiply, searches and an advisor's tokens are added. Cache writes
    whose lifetime it does not tell have the price of the shortest. Raises UsageError when the usage contradicts itself,
    lacks a number, or leaves open what was read from a cache; PriceMissing for what has no price."""
    from cost_model.errors import UsageError
    from cost_model.prices import PriceBook
    from cost_model.usage import read_usage
    from cost_model.usage.lines import price_usage

    book = PriceBook([Path(path) for path in prices])
    reading = read_usage(usage, flavour)
    usd = price_usage(reading, model, book.card(model, at), lambda name: book.card(name, at)).list_usd
    if usd is None:
        untold = ", ".join(sorted(reading.untold))
        raise UsageError(f"usage: {untold} is null, which is not known and not zero: its dollars are not known", usage)
    return usd


def open_database(db: str | PathLike[str] = DEFAULT_DATABASE) -> "Reader":
    """The database for reading, in a `with` block: `.query(sql, parameters)` gives columns and rows, and all answers
    speak of one moment. Leave it soon: while it is open no run can merge."""
    from experiments.store.reader import Reader

    return Reader(Path(db))
