"""Files cross a sandbox's border as tar streams only; what lands on the host is filtered and bounded."""

import shutil
import tarfile
import tempfile
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import IO

from harbor_tasks.errors import SandboxBroken

SIZE_LIMIT = 512 * 1024 * 1024
"""Bytes of one stream, in either direction."""
COUNT_LIMIT = 100_000
"""Members of one stream."""


def pack(entries: Iterable[tuple[Path, str]], mode: int | None = None) -> IO[bytes]:
    """A tar of files and whole directories, each under the name given ("." for a directory's contents), rewound.

    Links below the top stay links. Owner is root, times are kept, and modes unless `mode` is given. Sockets, pipes and
    devices are left out. The caller closes it. Raises SandboxBroken above the limits.
    """
    count = size = 0

    def admit(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
        nonlocal count, size
        if not (member.isreg() or member.isdir() or member.issym() or member.islnk()):
            return None
        count, size = count + 1, size + member.size
        if count > COUNT_LIMIT or size > SIZE_LIMIT:
            raise SandboxBroken(f"{member.name}: more than {SIZE_LIMIT} bytes or {COUNT_LIMIT} files to bring in")
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        if mode is not None and not member.issym():
            member.mode = mode
        # Inside, root has no right over modes: what it brings in it must be able to read and to fill.
        member.mode |= 0o700 if member.isdir() else 0o400
        return member

    stream = tempfile.TemporaryFile()  # noqa: SIM115 (the caller's to close)
    try:
        with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as tar:
            for path, name in entries:
                # A link at the top is followed: it was named, not found.
                tar.add(path if path.is_dir() else path.resolve(), name, filter=admit)
        stream.seek(0)
    except BaseException:
        stream.close()
        raise
    return stream


def unpack(stream: IO[bytes], target: Path) -> bool:
    """Unpacks a hostile tar of one file to `target`, or of one directory (its first member is ".") into it.

    False when its first member is neither. Regular files and directories alone: names that could lead out are left out
    and so are links, whole, so that no later member and no later reader can be led through one; of a mode the owner's x
    bit is kept. Raises SandboxBroken above the limits or when the stream is torn.
    """
    count = size = 0
    try:
        with tarfile.open(fileobj=stream, mode="r:") as tar:
            for member in tar:
                if count == 0 and member.isreg():
                    _write(tar, member, target)
                    return True
                if count == 0:
                    if not member.isdir():
                        return False
                    target.mkdir(parents=True, exist_ok=True)
                count, size = count + 1, size + member.size
                if count > COUNT_LIMIT or size > SIZE_LIMIT:
                    raise SandboxBroken(f"more than {SIZE_LIMIT} bytes or {COUNT_LIMIT} files to bring out")
                # Not by the filters of tarfile: Python 3.11 has none before 3.11.4.
                name = PurePosixPath(member.name)
                if name.is_absolute() or ".." in name.parts:
                    continue
                if member.isdir():
                    (target / name).mkdir(parents=True, exist_ok=True)
                elif member.isreg():
                    _write(tar, member, target / name)
    except tarfile.TarError as error:
        raise SandboxBroken(f"the sandbox's tar stream is torn: {error}") from error
    return count > 0


def _write(tar: tarfile.TarFile, member: tarfile.TarInfo, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    content = tar.extractfile(member)
    assert content is not None  # noqa: S101 (a regular file)
    with content, target.open("wb") as copy:
        shutil.copyfileobj(content, copy)
    target.chmod(0o755 if member.mode & 0o100 else 0o644)
