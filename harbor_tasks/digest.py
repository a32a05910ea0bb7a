"""One hash for a task directory: the same bytes under the same names give the same digest on every machine."""

import hashlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from harbor_tasks.errors import TaskInvalid

IGNORED = frozenset({"__pycache__"})
"""Directory names left out: installers write compiled files beside sources, and these differ by interpreter."""

_CHUNK = 1 << 20


def tree_digest(root: Path) -> str:
    """SHA-256 (64 hex digits) over relative names, the owner's x bit, and bytes of all files below `root`.

    Modes beyond the x bit, times and empty directories do not count. Raises TaskInvalid for a link, a socket or a
    device anywhere in the tree: what a link names is not part of the task and may differ on the next machine.
    """
    whole = hashlib.sha256()
    for name, file in sorted((os.fsencode(file.relative_to(root).as_posix()), file) for file in _files(root)):
        content = hashlib.sha256()
        with file.open("rb") as stream:
            executable = os.fstat(stream.fileno()).st_mode & stat.S_IXUSR
            while chunk := stream.read(_CHUNK):
                content.update(chunk)
        # Every part has a known length, so that no two trees can give the same stream.
        whole.update(len(name).to_bytes(8, "big") + name + (b"x" if executable else b"-") + content.digest())
    return whole.hexdigest()


def _files(directory: Path) -> Iterator[Path]:
    with os.scandir(directory) as scanned:
        entries = list(scanned)
    for entry in entries:
        path = Path(entry.path)
        if entry.is_symlink():
            raise TaskInvalid(f"{path}: expected a file or a directory, found a link: copy what it names in its place")
        if entry.is_dir():
            if entry.name not in IGNORED:
                yield from _files(path)
        elif entry.is_file():
            yield path
        else:
            raise TaskInvalid(f"{path}: expected a file or a directory, found a device, socket or pipe: remove it")
