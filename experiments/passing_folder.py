"""A temporary folder for as long as a block runs; one whose owner was killed is removed by the next that is made."""

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PREFIX = "fullchain-passing-"
_NEW_S = 60.0
"""A folder is made and held in two steps; one younger than this is left alone."""


@contextmanager
def passing_folder() -> Iterator[Path]:
    """Blocks. What cannot be removed afterwards is left to the next one."""
    _sweep()
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(held)


def _sweep() -> None:
    for found in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        # Whoever is killed lets go of its lock.
        with suppress(OSError):
            held = os.open(found, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                told = os.fstat(held)
                if told.st_uid == os.geteuid() and time.time() - told.st_mtime > _NEW_S:
                    fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(found, ignore_errors=True)
            finally:
                os.close(held)
