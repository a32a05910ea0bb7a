"""Options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

Database = Annotated[
    Path, typer.Option("--db", envvar="FULLCHAIN_DB", help="The database file.", show_default=True, metavar="FILE")
]

DEFAULT_DATABASE = Path("fullchain.duckdb")
