"""Questions to the database, also while a run writes: an in-memory DuckDB over the file and the unmerged journals.

The file is attached read-only and every table stands under its plain name, united with what the journals hold; then
the connection is locked down. Nothing that a question says can reach a file, the network, or the stored rows.
"""

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from cost_model.prices import PriceBook
from experiments.errors import JournalDamaged, QueryError, StoreError, StoreMissing, UnknownExperiment
from experiments.store import migrations
from experiments.store.attempts import attempt_rows
from experiments.store.database import PATIENCE_S, Columns, as_relation, one_line, retried, table_columns, unfit
from experiments.store.facts import experiments_of, load_facts, unmerged
from experiments.store.journal import journal_folder
from experiments.store.ledger import Facts
from experiments.store.rows import Rows
from experiments.store.segment import segments
from experiments.store.settle import settle_trials
from experiments.store.store import Store

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

QUERY_TIMEOUT_S = 120.0
QUERY_ROWS = 1_000_000
"""Rows of one answer that a person gets: all of them are held in memory."""

MEMORY_LIMIT = "2GB"
"""Of DuckDB's own working memory in a reader, which may not spill to disk."""

LOCK_DOWN = ("SET enable_external_access = false", "SET lock_configuration = true")


class Answer(NamedTuple):
    """Money comes as Decimal, times as aware UTC date-times, JSON as text."""

    columns: list[str]
    rows: list[tuple[Any, ...]]


class Reader:
    """All tables and views, for reading, in a `with` block: every answer in it speaks of one moment.

    Leave it soon: while it is open no run can merge. An older file is upgraded first, a missing one is never created.
    `warnings` names what a journal holds that cannot be read or booked, a line each: it is left out of every answer.
    """

    def __init__(self, path: Path, *, patience_s: float = PATIENCE_S) -> None:
        self.path = path
        self.patience_s = patience_s
        self.warnings: tuple[str, ...] = ()
        self._connection: DuckDBPyConnection | None = None

    def __enter__(self) -> Self:
        """Raises StoreMissing, StoreLocked, StoreNewer, JournalDamaged, StoreError."""
        import duckdb

        connection = attached_current(self.path, self.patience_s)
        try:
            connection.execute("BEGIN")
            try:
                self.warnings = _tables(connection, self.path)
            except (duckdb.Error, TypeError) as error:
                if not unfit(error):
                    raise
                raise JournalDamaged(
                    f"{journal_folder(self.path)}: a record does not fit its column ({one_line(error)[:200]}); "
                    "move the damaged file away"
                ) from error
            connection.execute(migrations.views())
            connection.execute("COMMIT")
            for statement in LOCK_DOWN:
                connection.execute(statement)
        except duckdb.Error as error:
            connection.close()
            raise damaged(self.path, error) from error
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    @property
    def connection(self) -> "DuckDBPyConnection":
        """The locked-down connection itself."""
        if self._connection is None:
            raise RuntimeError("a Reader answers inside its `with` block only")
        return self._connection

    def query(
        self,
        sql: str,
        parameters: Sequence[object] | Mapping[str, object] | None = None,
        *,
        timeout_s: float = QUERY_TIMEOUT_S,
        max_rows: int | None = None,
    ) -> Answer:
        """Answers one SELECT. Raises QueryError, one line, for SQL that fails, is no SELECT, takes too long or has more
        than `max_rows` rows."""
        import duckdb

        watch = threading.Timer(timeout_s, self.connection.interrupt)
        try:
            statements = self.connection.extract_statements(sql)
            if len(statements) != 1:
                raise QueryError(f"expected one SQL statement, found {len(statements)}; ask one question at a time")
            if statements[0].type != duckdb.StatementType.SELECT:
                raise QueryError(f"only SELECT is answered, not {statements[0].type.name}; runs alone write the data")
            watch.start()
            self.connection.execute(statements[0], parameters)
            columns = [column[0] for column in self.connection.description or ()]
            if max_rows is None:
                return Answer(columns, self.connection.fetchall())
            rows = self.connection.fetchmany(max_rows + 1)
            if len(rows) > max_rows:
                raise QueryError(f"the answer has more than {max_rows:,} rows; aggregate them, or add a LIMIT")
            return Answer(columns, rows)
        except duckdb.InterruptException:
            raise QueryError(f"the query took over {timeout_s:g} s and was stopped; ask for less") from None
        except (duckdb.IOException, duckdb.SerializationException, duckdb.FatalException) as error:
            raise damaged(self.path, error) from error
        except duckdb.Error as error:
            raise QueryError(one_line(error)) from None
        finally:
            watch.cancel()


def query(
    path: Path,
    sql: str,
    *,
    timeout_s: float = QUERY_TIMEOUT_S,
    patience_s: float = PATIENCE_S,
    max_rows: int = QUERY_ROWS,
) -> Answer:
    """Column names and rows of one SELECT. Raises what Reader and Reader.query do."""
    with Reader(path, patience_s=patience_s) as reader:
        return reader.query(sql, timeout_s=timeout_s, max_rows=max_rows)


def attached_current(path: Path, patience_s: float) -> "DuckDBPyConnection":
    """As `attached`, of a file that is brought to the newest schema first.

    Raises StoreMissing, StoreLocked, StoreNewer, StoreError."""
    import duckdb

    try:
        there = path.is_file()
    except OSError as error:
        raise StoreError(
            f"{path}: cannot be read ({error.strerror}); mend the folder's mode, or name another with --db"
        ) from None
    if not there:
        raise StoreMissing(f"{path}: no such database; run an experiment first, or name the file with --db")
    connection = retried(path, lambda: attached(path), patience_s)
    try:
        if not migrations.is_current(connection, path, "store"):
            connection.close()
            Store(path, patience_s=patience_s).upgrade()
            connection = retried(path, lambda: attached(path), patience_s)
    except duckdb.Error as error:
        connection.close()
        raise damaged(path, error) from error
    except BaseException:
        connection.close()
        raise
    return connection


def damaged(path: Path, error: BaseException) -> StoreError:
    return StoreError(
        f"{path}: the file is damaged ({one_line(error)[:200]}); name another with --db, or take a copy back"
    )


def attached(path: Path) -> "DuckDBPyConnection":
    """A connection in memory with the file as its catalog `store`, read-only, times in UTC; the caller closes it.

    It sees what is merged, in the tables of the file alone. Raises duckdb.Error.
    """
    import duckdb

    connection = duckdb.connect(
        ":memory:",
        config={
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
            "python_enable_replacements": False,
        },
    )
    try:
        connection.execute("SET TimeZone = 'UTC'")
        # Spilling to disk is not for a reader: it would leave a folder beside the database.
        connection.execute("SET temp_directory = ''")
        connection.execute(f"SET memory_limit = '{MEMORY_LIMIT}'")
        quoted = str(path).replace("'", "''")
        connection.execute(f"ATTACH '{quoted}' AS store (READ_ONLY)")
    except BaseException:
        connection.close()
        raise
    return connection


def _tables(connection: "DuckDBPyConnection", path: Path) -> tuple[str, ...]:
    """One view a table: the stored rows, and those that only a journal holds yet. Returns what had to be left out."""
    columns = table_columns(connection, "store")
    rows, left_out = journal_rows(connection, path)
    trials = sorted({str(row["trial_id"]) for row in rows.get("attempts", ())})
    connection.execute("CREATE SCHEMA live")
    for table, types in columns.items():
        if table in ("trials", "migrations") or not rows.get(table):
            connection.execute(f"CREATE VIEW {table} AS SELECT * FROM store.{table}")  # noqa: S608
            continue
        _create_live(connection, table, rows[table], types)
        # Several attempts may have kept the same state: what is merged names the first.
        once = "QUALIFY row_number() OVER (PARTITION BY hash ORDER BY stored_at) = 1" if table == "states" else ""
        connection.execute(
            f"CREATE VIEW {table} AS SELECT * FROM "  # noqa: S608
            f"(SELECT * FROM store.{table} UNION ALL BY NAME SELECT * FROM live.{table}) {once}"
        )
    if trials:
        _settle(connection, trials)
    return left_out


def _create_live(
    connection: "DuckDBPyConnection", table: str, rows: Sequence[Mapping[str, object]], types: Columns
) -> None:
    with as_relation(rows, types) as relation:
        connection.execute(f"CREATE TABLE live.{table} AS SELECT * FROM {relation}")  # noqa: S608


def _settle(connection: "DuckDBPyConnection", trials: list[str]) -> None:
    """Trials whose attempts are still in a journal show what the merge will make of them."""
    connection.execute("DROP VIEW trials")
    connection.execute(
        "CREATE TABLE live.trials AS SELECT * FROM store.trials WHERE id IN (SELECT unnest($ids))", {"ids": trials}
    )
    settle_trials(connection, trials, "live.trials")
    connection.execute(
        "CREATE VIEW trials AS SELECT * FROM store.trials WHERE id NOT IN (SELECT id FROM live.trials) "
        "UNION ALL BY NAME SELECT * FROM live.trials"
    )


def journal_rows(connection: "DuckDBPyConnection", path: Path) -> tuple[Rows, tuple[str, ...]]:
    """Rows of attempts that only a journal holds, and a line for each segment or attempt that cannot be booked.

    The attached file cannot change meanwhile: nobody can merge.
    """
    found: Rows = {}
    left_out: list[str] = []
    facts: dict[str, Facts] = {}
    book: list[PriceBook] = []

    def shipped() -> PriceBook:
        if not book:
            book.append(PriceBook())
        return book[0]

    for segment in segments(path):
        try:
            alive, attempts = segment.alive(), segment.attempts()
        except JournalDamaged as error:
            left_out.append(str(error))
            continue
        except OSError as error:
            left_out.append(f"{segment.path}: cannot be read ({error.strerror}); mend its mode or move it away")
            continue
        experiments = experiments_of(connection, (trial for trial, _ in attempts), "store.")
        for name in unmerged(connection, attempts, "store."):
            experiment = experiments.get(name[0])
            if experiment is None:
                raise UnknownExperiment(
                    f"{segment.path}: speaks of the trial {name[0]}, which is not stored; move it away"
                )
            if experiment not in facts:
                facts[experiment] = load_facts(connection, experiment, shipped, "store.")
            try:
                booked = attempt_rows(attempts[name], facts[experiment], alive=alive)
            except JournalDamaged as error:
                left_out.append(f"{segment.path}: {error}")
                continue
            for table, lines in booked.items():
                found.setdefault(table, []).extend(lines)
    return found, tuple(left_out)
