"""One run of an experiment at a time: two would give the same trials the same attempt numbers."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from experiments.errors import StoreError, StoreLocked
from experiments.store.journal import journal_folder


@contextmanager
def run_lock(database: Path, experiment: str) -> Iterator[None]:
    """Held for the length of a run, let go by the system when the process dies. Raises StoreLocked, StoreError."""
    folder = journal_folder(database)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder / f"{experiment}.lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644)
    except FileExistsError:
        raise StoreError(f"{folder}: expected a folder for the journals, found a file; move it away") from None
    except OSError as error:
        raise StoreError(
            f"{database}: its folder of journals {folder} cannot be written ({error.strerror}); "
            "mend the folder's mode, or name another database with --db"
        ) from None
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StoreLocked(
                f"{database}: experiment {experiment!r} is being run by another process; wait for it or stop it"
            ) from None
        yield
    finally:
        os.close(handle)
