"""A sandbox's files as they were at one moment: a tar that was made inside, hostile, and never unpacked on the host."""

import re
import tarfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import IO, Literal, Protocol

from harbor_tasks.errors import SandboxBroken
from harbor_tasks.sandbox.archive import COUNT_LIMIT, SIZE_LIMIT

LONGEST = 4096
"""Bytes of a path, or of what a link says: no system takes longer ones."""

_SECONDS = re.compile(r"-?[0-9]{1,12}(\.[0-9]{1,20})?")

Kind = Literal["directory", "file", "link"]


class Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Layout:
    """How files are laid into a fresh sandbox of the task: these folders, relative to the root, are emptied before, and
    these paths, which a fresh sandbox has, are removed. `backend`: the one that they were copied in."""

    backend: str
    emptied: tuple[str, ...]
    removed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Entry:
    """`path` is relative to the root, `modified` in seconds as exact as they were told; `size` and `offset` are of a
    file's bytes in the stream, `says` is where a link leads."""

    path: str
    kind: Kind
    mode: int
    uid: int
    gid: int
    modified: str
    size: int = 0
    offset: int = 0
    says: str = ""

    def header(self, path: str, mode: int, modified: str) -> tarfile.TarInfo:
        made = tarfile.TarInfo(path)
        made.type = {"directory": tarfile.DIRTYPE, "file": tarfile.REGTYPE, "link": tarfile.SYMTYPE}[self.kind]
        made.mode, made.uid, made.gid, made.mtime = mode, self.uid, self.gid, int(float(modified))
        if "." in modified:
            made.pax_headers = {"mtime": modified}
        made.size, made.linkname = self.size, self.says
        return made


class CopiedFiles:
    """Files, directories and symbolic links, sorted by path; the last of two with one name. Pipes, devices and hard
    links are no part of it. All methods block."""

    def __init__(self, stream: IO[bytes], entries: Iterable[Entry]) -> None:
        self._stream = stream
        self.entries = tuple(sorted(entries, key=lambda entry: PurePosixPath(entry.path).parts))

    @classmethod
    def read(cls, stream: IO[bytes]) -> "CopiedFiles":
        """From a stream that can be rewound, and stays open for as long as the files are used. Raises SandboxBroken
        above the limits, for names that lead out, and when the stream is torn."""
        stream.seek(0)
        found: dict[str, Entry] = {}
        count = size = 0
        try:
            with tarfile.open(fileobj=stream, mode="r:", encoding="utf-8") as tar:
                for member in tar:
                    count, size = count + 1, size + member.size
                    if count > COUNT_LIMIT or size > SIZE_LIMIT:
                        raise SandboxBroken(f"more than {SIZE_LIMIT} bytes or {COUNT_LIMIT} files to copy")
                    entry = _entry(member)
                    if entry is not None:
                        found[entry.path] = entry
        except (tarfile.TarError, ValueError, OverflowError) as error:
            raise SandboxBroken(f"the sandbox's tar stream is torn: {error}") from error
        return cls(stream, found.values())

    @property
    def size(self) -> int:
        """Bytes of all files together."""
        return sum(entry.size for entry in self.entries)

    def content(self, entry: Entry) -> Iterator[bytes]:
        """A file's bytes, in pieces. Raises SandboxBroken when the stream ends before them."""
        self._stream.seek(entry.offset)
        left = entry.size
        while left:
            piece = self._stream.read(min(left, 1 << 20))
            if not piece:
                raise SandboxBroken("the sandbox's tar stream is torn: it ends in a file")
            left -= len(piece)
            yield piece

    def write(self, target: IO[bytes]) -> None:
        """A tar for unpacking inside a sandbox, where nobody can fill a directory that its owner may not write."""
        closed: list[tarfile.TarInfo] = []
        with tarfile.open(fileobj=target, mode="w", format=tarfile.PAX_FORMAT, encoding="utf-8") as tar:
            for entry in self.entries:
                mode = entry.mode
                if entry.kind == "directory" and mode & 0o700 != 0o700:
                    closed.append(entry.header(entry.path, mode, entry.modified))
                    mode |= 0o700
                tar.addfile(entry.header(entry.path, mode, entry.modified))
                if entry.kind == "file":
                    put(tar, self.content(entry), entry.size)
            # Told again once all is in them, the innermost first: tar then gives them their modes.
            for header in reversed(closed):
                tar.addfile(header)
        target.seek(0)


def put(tar: tarfile.TarFile, content: Iterable[bytes], size: int) -> None:
    """The bytes that follow a header which was added without any."""
    assert tar.fileobj is not None  # noqa: S101 (open for writing)
    for piece in content:
        tar.fileobj.write(piece)
    blank = -size % tarfile.BLOCKSIZE
    tar.fileobj.write(b"\0" * blank)
    tar.offset += size + blank


def copy_bytes(source: Readable, target: IO[bytes], most: int) -> bool:
    """Whether it ended within `most` bytes."""
    left = most
    while piece := source.read(min(1 << 20, left + 1)):
        if len(piece) > left:
            return False
        target.write(piece)
        left -= len(piece)
    return True


def _entry(member: tarfile.TarInfo) -> Entry | None:
    """None for the root itself and for what is left out."""
    path = _path(member.name)
    kind: Kind
    if member.isdir():
        kind = "directory"
    elif member.issym():
        kind = "link"
    elif member.isreg():
        if member.issparse():
            raise SandboxBroken("a sparse file cannot be copied")
        kind = "file"
    else:
        return None
    if not path:
        return None
    says = member.linkname if kind == "link" else ""
    if len(path.encode(errors="surrogateescape")) > LONGEST or len(says.encode(errors="surrogateescape")) > LONGEST:
        raise SandboxBroken(f"a name of more than {LONGEST} bytes cannot be copied")
    mode = member.mode & 0o7777 if kind != "link" else 0o777
    size = member.size if kind == "file" else 0
    modified = member.pax_headers.get("mtime", "")
    if not _SECONDS.fullmatch(modified):
        modified = str(int(member.mtime))
    return Entry(path, kind, mode, member.uid, member.gid, modified, size, member.offset_data, says)


def _path(name: str) -> str:
    pure = PurePosixPath(name)
    if pure.is_absolute() or ".." in pure.parts or "\0" in name:
        raise SandboxBroken(f"a name leads out of the sandbox: {name[:200]!r}")
    return "" if str(pure) == "." else str(pure)
