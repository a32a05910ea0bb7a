"""fullchain snapshot: a read copy of the database, for programs that are not ours."""

from pathlib import Path
from typing import Annotated

import typer

from experiments.cli.options import DEFAULT_DATABASE, Database


def snapshot(
    target: Annotated[Path, typer.Argument(help="Where the copy is put, in place of an earlier one.", metavar="FILE")],
    database: Database = DEFAULT_DATABASE,
) -> None:
    """Copies the database, also while a run writes: whole, of one moment, with what is not merged yet.

    A foreign DuckDB client can keep the copy open. `fullchain run --publish FILE` renews it during a run.
    """
    from experiments.cli.terminal import say, warn
    from experiments.store.snapshot import publish

    warn(publish(database, target))
    say(f"{target}: a copy of {database}")
