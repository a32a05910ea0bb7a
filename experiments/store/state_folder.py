"""The states that reviewers saw, kept beside the database: an archive each, named by the hash of what is in it.

An archive appears whole or not at all. What a killed process was writing is a temporary file that nobody holds any
more, and is removed by the next run.
"""

import fcntl
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from harbor_tasks.sandbox.copied_files import CopiedFiles, Layout
from harbor_tasks.sandbox.state_archive import FORMAT, pack

_UNFINISHED = ".unfinished"


def state_folder(database: Path) -> Path:
    """Where the archives of a database lie."""
    return database.with_name(database.name + ".states")


@dataclass(frozen=True, slots=True)
class Kept:
    """`size` in bytes, of the archive."""

    hash: str
    size: int
    format: str = FORMAT


class StateFolder:
    """All methods block."""

    def __init__(self, database: Path) -> None:
        self.path = state_folder(database)

    def archive(self, name: str) -> Path:
        """Of the state with this hash, there or not."""
        return self.path / f"{name}.{FORMAT}"

    def keep(self, files: CopiedFiles, layout: Layout) -> Kept:
        """A state that is there already is left as it is. Raises StateUnfit, SandboxBroken and OSError; nothing is left
        then."""
        self.path.mkdir(parents=True, exist_ok=True)
        unfinished = self.path / f"{os.urandom(8).hex()}{_UNFINISHED}"
        descriptor = os.open(unfinished, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            with os.fdopen(descriptor, "w+b") as target:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                name = pack(files, layout, target)
                target.flush()
                os.fsync(descriptor)
                size = os.fstat(descriptor).st_size
                if not self.archive(name).exists():
                    os.rename(unfinished, self.archive(name))
                    self._sync()
            return Kept(name, size)
        finally:
            with suppress(FileNotFoundError):
                unfinished.unlink()

    def sweep(self) -> int:
        """Removes what killed processes were writing. Returns how many."""
        removed = 0
        for path in self.path.glob(f"*{_UNFINISHED}"):
            with suppress(OSError), path.open("rb") as held:
                # Its writer, where it lives, holds the lock.
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()
                removed += 1
        return removed

    def _sync(self) -> None:
        folder = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
