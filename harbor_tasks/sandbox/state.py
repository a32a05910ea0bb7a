"""Where a sandbox's writable folders stand on the host, and which unused uid owns them.

A slot is a number that one live sandbox on this machine holds, by the lock of a file. It gives the sandbox its uid and
its folder. The kernel frees the lock of a process that died, so a folder whose slot is free is a leftover.
"""

import fcntl
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from harbor_tasks.environment import shared_folder
from harbor_tasks.errors import SandboxBroken, SandboxMissing

SLOTS = 1000
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
        """Removes the folder with everything in it. No process of the sandbox may be left."""
        try:
            remove_tree(self.folder)
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
                    remove_tree(leftover)
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
                    remove_tree(leftover)
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

    `rm` and `chmod` never recurse into a path of names that could outgrow this process's stack. Raises SandboxBroken.
    """
    for attempt in range(5):
        said = subprocess.run(
            ["rm", "-rf", "--one-file-system", "--", str(path)],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        if said.returncode == 0:
            return
        # The last processes of a killed run may still be ending.
        time.sleep(0.05 * attempt)
        if attempt == 0:
            subprocess.run(["chmod", "-R", "u+rwx", "--", str(path)], capture_output=True, timeout=300, check=False)
    raise SandboxBroken(f"{path} cannot be removed: {said.stderr.strip()[:200]}")


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
