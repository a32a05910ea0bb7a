"""Where a sandbox's writable folders stand on the host, and which unused uid owns them.

A slot is a number that one live sandbox on this machine holds, by the lock of a file. It gives the sandbox its uid and
its folder. The kernel frees the lock of a process that died, so a folder whose slot is free is a leftover.
"""

import contextlib
import errno
import fcntl
import os
import secrets
import stat
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from harbor_tasks.environment import shared_folder
from harbor_tasks.errors import SandboxBroken, SandboxMissing

SLOTS = 1000
_DIRECTORY = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FIRST_UIDS = (200_000, 60_000)
"""Ranges that no distribution hands to people or services; the second for containers that map 65536 ids."""


@dataclass(frozen=True, slots=True)
class Slot:
    """`uid` is None when we are not root: the sandbox then runs as our own user. `folder` is 0700 and the uid's."""

    uid: int | None
    folder: Path
    lock: int

    def make(self, name: str, mode: int = 0o755) -> Path:
        """A sub-folder, owned by the sandbox's uid whatever our umask."""
        path = self.folder / name
        path.mkdir()
        path.chmod(mode)
        if self.uid is not None:
            os.chown(path, self.uid, self.uid)
        return path

    def release(self) -> None:
        """Removes the folder with everything in it. No process of the sandbox may be left.

        What cannot be removed is a leftover, tried again whenever a sandbox starts: the trial itself has ended well.
        """
        try:
            _try_remove(self.folder)
        finally:
            os.close(self.lock)


def take_slot() -> Slot:
    """A slot that nobody holds, with an empty folder. Raises SandboxBroken when all are held."""
    first = first_uid()
    try:
        trials = shared_folder("trials")
        for number in range(SLOTS):
            if (lock := _try_lock(trials / f"{number}.lock")) is None:
                continue
            try:
                for leftover in _leftovers(trials, number):
                    _try_remove(leftover)
                folder = Path(tempfile.mkdtemp(prefix=f"{number}-", dir=trials))
                uid = None if first is None else first + number
                if uid is not None:
                    os.chown(folder, uid, uid)
            except BaseException:
                os.close(lock)
                raise
            return Slot(uid, folder, lock)
    except OSError as error:
        raise SandboxBroken(f"no folder for a sandbox: {error}") from error
    raise SandboxBroken(f"all {SLOTS} places for sandboxes on this machine are taken")


def remove_leftovers() -> None:
    """Removes the folders of sandboxes whose process died without closing them."""
    trials = shared_folder("trials")
    for path in trials.glob("*.lock"):
        leftovers = list(_leftovers(trials, int(path.stem))) if path.stem.isdigit() else []
        if leftovers and (lock := _try_lock(path)) is not None:
            try:
                for leftover in leftovers:
                    _try_remove(leftover)
            finally:
                os.close(lock)


def first_uid() -> int | None:
    """The first of the uids that sandboxes drop to; None when we are not root.

    Raises SandboxMissing when this root cannot become any of them (a container that maps only a few ids).
    """
    if os.geteuid() != 0:
        return None
    ranges = []
    for name in ("uid_map", "gid_map"):
        lines = (line.split() for line in Path("/proc/self", name).read_text().splitlines())
        ranges.append([(int(start), int(start) + int(count)) for start, _, count in lines])
    for first in _FIRST_UIDS:
        if all(any(start <= first and first + SLOTS <= end for start, end in each) for each in ranges):
            return first
    raise SandboxMissing(
        f"root in this container maps no unused user ids ({_FIRST_UIDS[1]} and above): run as an ordinary user"
    )


def remove_tree(path: Path) -> None:
    """Removes what a hostile process may have left: any depth, any mode; links are removed, never followed.

    Every directory is first moved up to the top of the tree: no path grows long, nothing recurses, and the time grows
    with the number of entries alone. What is mounted inside is left alone. Raises SandboxBroken.
    """
    for attempt in range(5):
        if not os.path.lexists(path):
            return
        try:
            parent = os.open(path.parent, _DIRECTORY)
            try:
                _remove(parent, path.name)
            finally:
                os.close(parent)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.ENOENT) or attempt == 4:
                raise SandboxBroken(f"{path} cannot be removed: {error.strerror}") from error
            # The last processes of a killed run may still be ending, and writing.
            time.sleep(0.05 * (attempt + 1))
        else:
            return


def _remove(parent: int, name: str) -> None:
    if not stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
        os.unlink(name, dir_fd=parent)
        return
    top = _open_directory(parent, name)
    try:
        # No name inside begins like this one: whoever chose those could not know it.
        prefix = f"{secrets.token_hex(8)}-"
        emptied, moved = 0, _empty(top, top, prefix, 0)
        while emptied < moved:
            child = _open_directory(top, f"{prefix}{emptied}")
            try:
                moved = _empty(child, top, prefix, moved)
            finally:
                os.close(child)
            os.rmdir(f"{prefix}{emptied}", dir_fd=top)
            emptied += 1
    finally:
        os.close(top)
    os.rmdir(name, dir_fd=parent)


def _empty(folder: int, top: int, prefix: str, moved: int) -> int:
    """Unlinks a directory's files and moves its directories to the top, named by their count. Returns the new count."""
    found = True
    while found:
        # What is removed while a directory is read may hide other entries: it is read until there are none.
        found = False
        with os.scandir(folder) as entries:
            for entry in entries:
                if folder == top and entry.name.startswith(prefix):
                    continue
                found = True
                if entry.is_dir(follow_symlinks=False):
                    _move(folder, entry.name, top, f"{prefix}{moved}")
                    moved += 1
                else:
                    os.unlink(entry.name, dir_fd=folder)
    return moved


def _move(folder: int, name: str, top: int, new: str) -> None:
    try:
        os.rename(name, new, src_dir_fd=folder, dst_dir_fd=top)
    except PermissionError:
        # Its owner must be able to write a directory that gets another parent.
        os.close(_open_directory(folder, name))
        os.rename(name, new, src_dir_fd=folder, dst_dir_fd=top)


def _open_directory(parent: int, name: str) -> int:
    """Opens a directory whatever its mode; its owner can write it from then on."""
    handle = os.open(name, os.O_PATH | _DIRECTORY, dir_fd=parent)
    try:
        # A descriptor that only names the directory needs no permission, and cannot lead to another one by a link.
        itself = f"/proc/self/fd/{handle}"
        if stat.S_IMODE(os.fstat(handle).st_mode) & 0o700 != 0o700:
            os.chmod(itself, 0o700)
        return os.open(itself, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    finally:
        os.close(handle)


def _try_remove(folder: Path) -> None:
    with contextlib.suppress(SandboxBroken):
        remove_tree(folder)


def _try_lock(path: Path) -> int | None:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def _leftovers(trials: Path, number: int) -> Iterator[Path]:
    return trials.glob(f"{number}-*")
