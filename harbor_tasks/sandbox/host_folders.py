"""The folders that host mode makes at the root, and the marker by which the next start removes what was left."""

import asyncio
import fcntl
import json
import os
import signal
import stat
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from harbor_tasks.errors import SandboxBroken, SandboxMissing
from harbor_tasks.sandbox.host_processes import KILL_TIMEOUT_S, marked
from harbor_tasks.sandbox.state import remove_tree

MARKER = Path("/var/lib/fullchain-host.json")
LOCK = Path("/var/lib/fullchain-host.lock")
TURN_TIMEOUT_S = 6 * 3600.0
"""How long a trial waits for the one before it."""


@dataclass(frozen=True, slots=True)
class Folder:
    path: str
    inode: int
    """0 until it has been made."""


@dataclass(frozen=True, slots=True)
class Marker:
    folders: tuple[Folder, ...] = ()
    private: str | None = None
    mark: str | None = None


async def take_turn() -> int:
    """The lock that one trial on this machine holds; freed by the kernel when its process dies."""
    LOCK.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        async with asyncio.timeout(TURN_TIMEOUT_S):
            while not _lock(descriptor):  # noqa: ASYNC110 (another process holds it: no event can tell)
                await asyncio.sleep(0.05)
    except TimeoutError:
        os.close(descriptor)
        raise SandboxBroken("host mode: another trial holds the machine and does not end") from None
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def foreign_folder(names: Sequence[str]) -> str | None:
    """The first /NAME that exists and that no run of ours made, and why; None while another run holds the machine."""
    if LOCK.exists():
        descriptor = os.open(LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            if not _lock(descriptor):
                return None
        finally:
            os.close(descriptor)
    left = {folder.path: folder for folder in read_marker().folders}
    for name in names:
        path = f"/{name}"
        if not os.path.lexists(path):
            continue
        if path not in left:
            return f"{path}, which exists here: it is left alone"
        if not _still_ours(left[path]):
            return f"{path}, but what is there now is not what an earlier run made: it is left alone, move it away"
    return None


def _still_ours(folder: Folder) -> bool:
    """Whether `clear` will remove what stands there now."""
    status = os.lstat(folder.path)
    if folder.inode == 0:
        return stat.S_ISDIR(status.st_mode) and not os.listdir(folder.path)
    return stat.S_ISLNK(status.st_mode) or (stat.S_ISDIR(status.st_mode) and status.st_ino == folder.inode)


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def make_folders(names: Sequence[str], private: Path, mark: str) -> None:
    """Makes /NAME for each. The marker names them before they exist and knows their inodes after."""
    for name in names:
        if os.path.lexists(f"/{name}"):
            raise SandboxMissing(f"host mode makes and removes /{name}, which exists here: it is left alone")
    folders = [Folder(f"/{name}", 0) for name in names]
    _write_marker(Marker(tuple(folders), str(private), mark))
    for index, name in enumerate(names):
        path = Path("/", name)
        path.mkdir(mode=0o755)
        folders[index] = Folder(str(path), path.stat().st_ino)
        _write_marker(Marker(tuple(folders), str(private), mark))
    for part in ("agent", "verifier", "artifacts"):
        Path("/logs", part).mkdir()


def clear(marker: Marker, private: Path | None = None) -> None:
    """Removes what the marker names, if it is what was made: a folder that somebody else put there stays."""
    if marker.mark is not None:
        deadline = time.monotonic() + KILL_TIMEOUT_S
        while (found := marked(marker.mark, set())) and time.monotonic() < deadline:
            for pid in found:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.01)
    for folder in marker.folders:
        try:
            status = os.lstat(folder.path)
        except FileNotFoundError:
            continue
        if folder.inode == 0:
            # Made, perhaps, by a run that was killed before it could write down what it made: it is empty then.
            with suppress(OSError):
                os.rmdir(folder.path)
        elif stat.S_ISLNK(status.st_mode):
            # A command put it in the folder's place. What it leads to is not ours, and stays.
            os.unlink(folder.path)
        elif status.st_ino == folder.inode and stat.S_ISDIR(status.st_mode):
            remove_tree(Path(folder.path))
    for path in {str(private) if private else None, marker.private}:
        if path is not None and Path(path).name.startswith("fullchain-host-"):
            # It stands in nobody's way.
            with suppress(SandboxBroken):
                remove_tree(Path(path))
    MARKER.unlink(missing_ok=True)


def read_marker() -> Marker:
    """An absent, torn or foreign marker names nothing."""
    try:
        descriptor = os.open(MARKER, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return Marker()
    with os.fdopen(descriptor, "rb") as file:
        if os.fstat(descriptor).st_uid != 0:
            return Marker()
        try:
            data = json.loads(file.read(65536))
            folders = tuple(Folder(str(path), int(inode)) for path, inode in data["folders"])
            return Marker(folders, str(data["private"]), str(data["mark"]))
        except (ValueError, TypeError, KeyError):
            return Marker()


def _write_marker(marker: Marker) -> None:
    MARKER.parent.mkdir(parents=True, exist_ok=True)
    descriptor, new = tempfile.mkstemp(dir=MARKER.parent, prefix=".fullchain-host-")
    with os.fdopen(descriptor, "w") as file:
        folders = [[folder.path, folder.inode] for folder in marker.folders]
        json.dump({"folders": folders, "private": marker.private, "mark": marker.mark}, file)
        file.flush()
        os.fsync(descriptor)
    os.replace(new, MARKER)
