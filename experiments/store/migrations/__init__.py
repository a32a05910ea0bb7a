"""Numbered, append-only steps of the schema. A released step never changes: what it got wrong, a later one mends.

Views are no step: they hold no data, and are replaced whenever the shipped text differs from the one in the file.
"""

import hashlib
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from experiments.errors import StoreError, StoreNewer

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

MIGRATIONS = (
    "0001_tables",
    "0002_expiries",
    "0003_settlements",
    "0004_reviews",
    "0005_refused_commands",
    "0006_states",
    "0007_handover_record",
    "0008_rewrites",
)
"""File names beside this one, without .sql; a name's number is its place, counted from 1."""

_COMPUTES_EXPIRIES = "0002_expiries"
"""After this step the rows of its tables are computed from the charges that the file has; no prices are asked for."""

VIEWS = 0
"""The number in table `migrations` under which the digest of the views in the file is kept."""


def upgrade(connection: "DuckDBPyConnection", path: Path) -> None:
    """Brings the file to the newest schema, each step in a transaction of its own, and refreshes the views.

    Raises StoreNewer for a file of a newer program, StoreError for a database that is not ours.
    """
    done = _applied(connection, path, "")
    if not done:
        connection.execute(
            "CREATE TABLE IF NOT EXISTS migrations (number INTEGER PRIMARY KEY, name VARCHAR, applied_at TIMESTAMPTZ)"
        )
    start = max(done, default=0)
    for number, name in enumerate(MIGRATIONS[start:], start=start + 1):
        _step(connection, number, name, _text(f"migrations/{name}.sql"))
    digest = hashlib.sha256(views().encode()).hexdigest()
    if done.get(VIEWS) != digest:
        _step(connection, VIEWS, digest, views())


def is_current(connection: "DuckDBPyConnection", path: Path, catalog: str) -> bool:
    """Whether an attached file has the newest schema. Raises StoreNewer, StoreError."""
    return max(_applied(connection, path, f"{catalog}."), default=0) == len(MIGRATIONS)


def views() -> str:
    """The shipped views, as SQL over the plain table names."""
    return _text("views.sql")


def _applied(connection: "DuckDBPyConnection", path: Path, catalog: str) -> dict[int, str]:
    """Number -> name of what was applied to this file; empty for a new one."""
    import duckdb

    try:
        done = dict(connection.execute(f"SELECT number, name FROM {catalog}migrations").fetchall())  # noqa: S608
    except duckdb.CatalogException:
        if connection.execute("SELECT count(*) FROM duckdb_tables() WHERE NOT internal").fetchone() != (0,):
            raise StoreError(
                f"{path}: a DuckDB file of something else (no table `migrations`); name another with --db"
            ) from None
        return {}
    if max(done, default=0) > len(MIGRATIONS):
        raise StoreNewer(
            f"{path}: written by a newer version (schema {max(done)}, known here {len(MIGRATIONS)}); upgrade fullchain"
        )
    return done


def _step(connection: "DuckDBPyConnection", number: int, name: str, sql: str) -> None:
    connection.execute("BEGIN")
    try:
        connection.execute(sql)
        if name == _COMPUTES_EXPIRIES:
            from experiments.store.rebuild import fill_expiries

            fill_expiries(connection)
        connection.execute("INSERT OR REPLACE INTO migrations VALUES (?, ?, now())", [number, name])
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


def _text(name: str) -> str:
    return resources.files("experiments.store").joinpath(name).read_text(encoding="utf-8")
