"""The DuckDB file itself: opened for moments only, because DuckDB locks it against every other process meanwhile."""

import random
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

from experiments.errors import StoreError, StoreLocked

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

PATIENCE_S = 10.0
"""How long an opening is retried while another process holds the file."""

OBJECT_BYTES = 16 << 20
"""DuckDB's own limit for one JSON row; raised to the longest row that is inserted."""


@contextmanager
def opened(path: Path, *, patience_s: float = PATIENCE_S) -> Iterator["DuckDBPyConnection"]:
    """The file opened for writing (created when missing), times in UTC. Raises StoreLocked, StoreError."""
    import duckdb

    connection = retried(path, lambda: duckdb.connect(str(path)), patience_s)
    try:
        # A merge is small, and the cores belong to the trials.
        connection.execute("SET TimeZone = 'UTC'; SET threads = 1")
        yield connection
    finally:
        connection.close()


def retried(path: Path, connect: "Callable[[], DuckDBPyConnection]", patience_s: float) -> "DuckDBPyConnection":
    """Calls `connect` until nobody else holds the file. Raises StoreLocked after `patience_s`, else StoreError."""
    import duckdb

    deadline = time.monotonic() + patience_s
    while True:
        try:
            return connect()
        except duckdb.Error as error:
            reason = one_line(error)
            if not _held(reason):
                if "sqlite_scanner" in reason:
                    reason = "it is a SQLite file"
                raise StoreError(f"{path}: not a usable DuckDB file ({reason}); name another with --db") from None
            if time.monotonic() >= deadline:
                raise StoreLocked(
                    f"{path}: another process has held this file for {patience_s:g} s ({_holder(reason)}); close it "
                    "and run this again"
                ) from None
        time.sleep(random.uniform(0.01, 0.05))  # noqa: S311  (so that two waiting processes do not stay in step)


def _held(reason: str) -> bool:
    """Another process, or another connection of this one with other settings, has the file."""
    return any(
        words in reason
        for words in (
            "Could not set lock",
            "Conflicting lock",
            "Unique file handle conflict",
            "different configuration",
        )
    )


def _holder(reason: str) -> str:
    found = reason.partition("Conflicting lock is held in ")[2].partition(". ")[0]
    return f"held by {found}" if found else "it is open elsewhere"


def unfit(error: Exception) -> bool:
    """A value that its column cannot hold, such as a number with too many digits."""
    import duckdb

    bad = (duckdb.ConversionException, duckdb.InvalidInputException, duckdb.OutOfRangeException, orjson.JSONEncodeError)
    return isinstance(error, bad)


def one_line(error: BaseException) -> str:
    return " ".join(str(error).split())


Columns = Mapping[str, str]
"""Column name -> DuckDB type, in the table's order."""


def table_columns(connection: "DuckDBPyConnection", catalog: str | None = None) -> Mapping[str, Columns]:
    """The columns of every table of the file."""
    found: dict[str, dict[str, str]] = {}
    for table, column, kind in connection.execute(
        "SELECT table_name, column_name, data_type FROM duckdb_columns() "
        "WHERE NOT internal AND database_name = coalesce(?, current_database()) ORDER BY table_name, column_index",
        [catalog],
    ).fetchall():
        found.setdefault(table, {})[column] = "TIMESTAMPTZ" if kind == "TIMESTAMP WITH TIME ZONE" else kind
    return found


@contextmanager
def as_relation(rows: Sequence[Mapping[str, object]], columns: Columns) -> Iterator[str]:
    """SQL for a relation of these rows, valid inside the block; a column that a row lacks is null.

    The rows go through a file that has no name any more, so that no crash leaves it behind.
    """
    with tempfile.TemporaryFile() as file:
        longest = OBJECT_BYTES
        for row in rows:
            longest = max(longest, file.write(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE)))
        file.flush()
        file.seek(0)
        types = ", ".join(f"'{name}': '{kind}'" for name, kind in columns.items())
        yield (
            f"read_json('/dev/fd/{file.fileno()}', format = 'newline_delimited', columns = {{{types}}}, "
            f"maximum_object_size = {longest})"
        )


def bulk_insert(
    connection: "DuckDBPyConnection", table: str, rows: Sequence[Mapping[str, object]], columns: Columns
) -> None:
    """Inserts rows whose primary key is not there yet. JSON-able values, money as text, times as ISO-8601 text."""
    if rows:
        with as_relation(rows, columns) as relation:
            connection.execute(f"INSERT INTO {table} BY NAME SELECT * FROM {relation} ON CONFLICT DO NOTHING")  # noqa: S608
