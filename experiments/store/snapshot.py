"""A read copy of the database for programs that are not ours: whole, of one moment, and never locked by us.

DuckDB locks a file against every other process while one writes it. The copy is written aside, with what only journals
hold yet, and takes its name when it is whole: whoever has the last one open goes on reading that.
"""

import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from experiments.errors import JournalDamaged, SnapshotRefused, StoreError, StoreLocked
from experiments.store import migrations
from experiments.store.database import PATIENCE_S, bulk_insert, one_line, opened, retried, table_columns, unfit
from experiments.store.journal import journal_folder
from experiments.store.reader import attached_current, damaged, journal_rows
from experiments.store.rows import Rows
from experiments.store.settle import settle_trials

_MAGIC, _MAGIC_AT = b"DUCK", 8


def publish(database: Path, target: Path, *, patience_s: float = PATIENCE_S) -> tuple[str, ...]:
    """Puts a copy of the database at `target`, in place of an earlier one, with all tables and views.

    No run can merge while its bytes are copied. Returns what a journal holds that had to be left out, a line each.
    Raises SnapshotRefused where something else than a copy of ours stands, StoreMissing, StoreLocked, StoreNewer, and
    StoreError when it cannot be written: what stood there then still does.
    """
    target = target.absolute()
    _refuse_unless_ours(database, target)
    copy = target.with_name(f".{target.name}.partial")
    try:
        with _alone(target, patience_s):
            _remove(copy)
            try:
                rows, left_out = _copied(database, copy, patience_s)
                _complete(copy, rows, journal_folder(database))
                _settle_on_disk(copy)
                os.replace(copy, target)
                _settle_on_disk(target.parent)
            finally:
                _remove(copy)
    except OSError as error:
        raise StoreError(
            f"{target}: the copy cannot be written ({error.strerror or error}); free some space, mend the folder's "
            "mode, or name another file"
        ) from None
    return left_out


def _refuse_unless_ours(database: Path, target: Path) -> None:
    """Nobody loses a file to a slip of the hand."""
    try:
        if not target.exists():
            return
        if target.is_dir() or target.samefile(database):
            what = "a folder" if target.is_dir() else "the database itself"
            raise SnapshotRefused(f"{target}: is {what}; name another file for the copy")
        with target.open("rb") as file:
            head = file.read(_MAGIC_AT + len(_MAGIC))
    except OSError as error:
        raise SnapshotRefused(f"{target}: cannot be read ({error.strerror}); name another file for the copy") from None
    if head[_MAGIC_AT:] != _MAGIC or not _is_copy(target):
        raise SnapshotRefused(f"{target}: stands there and is no database of ours; name another file for the copy")


@contextmanager
def _alone(target: Path, patience_s: float) -> Iterator[None]:
    """One at a time makes copies in a folder, so that what a killed one has left is nobody's."""
    folder = os.open(target.parent, os.O_RDONLY)
    try:
        deadline = time.monotonic() + patience_s
        while True:
            try:
                fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise StoreLocked(
                        f"{target.parent}: another process makes a copy there and has not ended for {patience_s:g} s; "
                        "wait for it or stop it"
                    ) from None
            time.sleep(0.05)
        yield
    finally:
        os.close(folder)


def _remove(copy: Path) -> None:
    for path in (copy, Path(f"{copy}.wal")):
        path.unlink(missing_ok=True)


def _is_copy(target: Path) -> bool:
    import duckdb

    with retried(target, lambda: duckdb.connect(str(target), read_only=True), PATIENCE_S) as connection:
        found = connection.execute(
            "SELECT count(*) FROM duckdb_tables() WHERE table_name IN ('migrations', 'trials', 'calls')"
        ).fetchone()
    return found == (3,)


def _copied(database: Path, copy: Path, patience_s: float) -> tuple[Rows, tuple[str, ...]]:
    """While it is attached nobody can write it; its journals are read in the same moment."""
    import duckdb

    connection = attached_current(database, patience_s)
    try:
        rows, left_out = journal_rows(connection, database)
        shutil.copyfile(database, copy)
        # What a killed writer had not yet put into its place.
        with suppress(FileNotFoundError):
            shutil.copyfile(f"{database}.wal", f"{copy}.wal")
    except duckdb.Error as error:
        raise damaged(database, error) from error
    finally:
        connection.close()
    return rows, left_out


def _complete(copy: Path, rows: Rows, journals: Path) -> None:
    import duckdb

    trials = sorted({str(row["trial_id"]) for row in rows.get("attempts", ())})
    with opened(copy) as connection:
        migrations.upgrade(connection, copy)
        columns = table_columns(connection)
        try:
            connection.execute("BEGIN")
            for table, lines in rows.items():
                bulk_insert(connection, table, lines, columns[table])
            settle_trials(connection, trials)
            connection.execute("COMMIT")
            connection.execute("CHECKPOINT")
        except (duckdb.Error, TypeError) as error:
            if unfit(error):
                said = one_line(error)[:200]
                raise JournalDamaged(
                    f"{journals}: a record does not fit its column ({said}); move the damaged file away"
                ) from error
            if isinstance(error, duckdb.Error):
                raise StoreError(f"{copy.parent}: the copy cannot be written ({one_line(error)[:200]})") from error
            raise


def _settle_on_disk(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
