"""What booking needs to know of an experiment, read from its own rows: models, price cards, when it is priced."""

import json
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from experiments.errors import UnknownExperiment
from experiments.store.cards import Cards
from experiments.store.ledger import Facts, ModelFacts

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from cost_model.prices import PriceBook


def unmerged(
    connection: "DuckDBPyConnection", attempts: Iterable[tuple[str, int]], catalog: str = ""
) -> list[tuple[str, int]]:
    """Those of the attempts that are not stored yet, in order. `catalog` is a prefix for the tables ("store.")."""
    names = list(attempts)
    stored = set(
        connection.execute(
            f"SELECT trial_id, attempt FROM {catalog}attempts WHERE trial_id IN (SELECT unnest(?))",  # noqa: S608
            [[trial for trial, _ in names]],
        ).fetchall()
    )
    return [name for name in names if name not in stored]


def experiments_of(connection: "DuckDBPyConnection", trials: Iterable[str], catalog: str = "") -> dict[str, str]:
    """The experiment of each trial that is in this database."""
    return dict(
        connection.execute(
            f"SELECT id, experiment FROM {catalog}trials WHERE id IN (SELECT unnest(?))",  # noqa: S608
            [sorted(set(trials))],
        ).fetchall()
    )


def load_facts(
    connection: "DuckDBPyConnection", experiment: str, book: "Callable[[], PriceBook]", catalog: str = ""
) -> Facts:
    """`catalog` is a prefix for the tables ("store."). Raises UnknownExperiment."""
    row = connection.execute(
        f"SELECT models, prices_at FROM {catalog}experiments WHERE name = ?",  # noqa: S608
        [experiment],
    ).fetchone()
    if row is None:
        known = [
            name
            for (name,) in connection.execute(f"SELECT name FROM {catalog}experiments ORDER BY name").fetchall()  # noqa: S608
        ]
        raise UnknownExperiment(f"no experiment {experiment!r} is stored; known: {', '.join(known) or 'none'}")
    relation = connection.execute(f"SELECT * FROM {catalog}prices WHERE experiment = ?", [experiment])  # noqa: S608
    names = [column[0] for column in relation.description or ()]
    prices = [dict(zip(names, line, strict=True)) for line in relation.fetchall()]
    models = {name: ModelFacts(**facts) for name, facts in json.loads(row[0]).items()}
    return Facts(models, row[1], Cards(experiment, prices, book))
