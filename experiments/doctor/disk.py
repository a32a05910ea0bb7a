"""Whether there is room, and leave to write, where runs write."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from experiments.doctor import Line
from harbor_tasks.environment import cache_folder

LEAST_GB = 1.0
"""Less than this, and a run of some length may fill the disk: messages and commands of a trial take megabytes."""
_GB = 1e9


def disks(database: Path) -> Iterator[Line]:
    """The folders of the database, of temporary files and of the cache."""
    yield _disk("database", database.absolute().parent)
    yield _disk("temporary files", Path(tempfile.gettempdir()))
    yield _disk("cache", cache_folder())


def _disk(what: str, folder: Path) -> Line:
    there = next(path for path in (folder, *folder.parents) if path.exists())
    if not there.is_dir():
        return Line("off", what, f"{there} is a file where a folder is needed: move it away")
    if not os.access(there, os.W_OK | os.X_OK):
        return Line("off", what, f"{there} cannot be written: mend its mode, or choose another folder")
    free_gb = shutil.disk_usage(there).free / _GB
    if free_gb < LEAST_GB:
        return Line("off", what, f"{folder}: {free_gb:.1f} GB are free, expected at least {LEAST_GB:g} GB: make room")
    return Line("ok", what, f"{folder}: {free_gb:,.0f} GB free")
