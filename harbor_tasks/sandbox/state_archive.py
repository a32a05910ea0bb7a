"""A state that is kept: one compressed tar with all that must be laid into a fresh sandbox to verify it again.

The same content makes the same bytes and the same name, whatever the times: every file is of one moment. Owners, modes,
bytes and links are kept; pipes and devices are not.
"""

import gzip
import hashlib
import io
import json
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import IO

from harbor_tasks.errors import SandboxBroken, StateUnfit
from harbor_tasks.sandbox.archive import COUNT_LIMIT
from harbor_tasks.sandbox.copied_files import CopiedFiles, Entry, Layout, copy_bytes, put

FORMAT = "tar.gz"
MOST_BYTES = 256 * 1024**2
"""Of a state's files, before they are compressed."""
MOMENT = 946_684_800
"""2000-01-01: programs refuse files that are older than some formats can say."""

_LAYOUT, _ROOT = "state.json", "root/"
_MOST_UNPACKED = MOST_BYTES + COUNT_LIMIT * 4096 + (64 << 20)
_MOST_LAYOUT = 32 << 20


def pack(files: CopiedFiles, layout: Layout, target: IO[bytes]) -> str:
    """Writes the archive and returns the hash of what is in it. Blocks.

    Raises StateUnfit for more than MOST_BYTES, SandboxBroken when the files' own stream is torn.
    """
    if files.size > MOST_BYTES:
        raise StateUnfit(f"{files.size:,} bytes, more than the {MOST_BYTES:,} that are kept")
    told = _told(layout)
    if len(told) > _MOST_LAYOUT:
        raise StateUnfit(
            f"what was removed is told in {len(told):,} bytes, more than the {_MOST_LAYOUT:,} that are kept"
        )
    digest = hashlib.sha256(told)
    with (
        gzip.GzipFile(filename="", mode="wb", fileobj=target, mtime=0, compresslevel=3) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT, encoding="utf-8") as tar,
    ):
        head = tarfile.TarInfo(_LAYOUT)
        head.size, head.mtime = len(told), MOMENT
        tar.addfile(head, io.BytesIO(told))
        for entry in files.entries:
            tar.addfile(entry.header(_ROOT + entry.path, entry.mode, str(MOMENT)))
            inner = hashlib.sha256()
            if entry.kind == "file":
                put(tar, _hashed(files.content(entry), inner), entry.size)
            digest.update(_line(entry, inner.hexdigest()))
    return digest.hexdigest()


class Unpacked:
    """An archive that was read and found whole: `files`, `layout` and the `hash` of both. Close it."""

    def __init__(self, archive: Path) -> None:
        """Blocks. Raises StateUnfit when it is no archive of this kind, OSError when it cannot be read."""
        self._stream = tempfile.TemporaryFile()  # noqa: SIM115 (closed by `close`)
        try:
            with gzip.open(archive) as packed:
                if not copy_bytes(packed, self._stream, _MOST_UNPACKED):
                    raise StateUnfit(f"{archive}: it unpacks to more than {_MOST_UNPACKED:,} bytes")
            everything = CopiedFiles.read(self._stream)
            self.layout = self._layout(everything, archive)
            self.files = CopiedFiles(self._stream, (_inner(entry) for entry in everything.entries if _is_inner(entry)))
        except (EOFError, zlib.error, gzip.BadGzipFile, SandboxBroken) as error:
            self.close()
            raise StateUnfit(f"{archive}: no archive of a state ({error})") from error
        except BaseException:
            self.close()
            raise
        digest = hashlib.sha256(_told(self.layout))
        for entry in self.files.entries:
            inner = hashlib.sha256()
            for piece in self.files.content(entry) if entry.kind == "file" else ():
                inner.update(piece)
            digest.update(_line(entry, inner.hexdigest()))
        self.hash = digest.hexdigest()

    def close(self) -> None:
        self._stream.close()

    def _layout(self, everything: CopiedFiles, archive: Path) -> Layout:
        head = next((entry for entry in everything.entries if entry.path == _LAYOUT and entry.kind == "file"), None)
        if head is None or head.size > _MOST_LAYOUT:
            raise StateUnfit(f"{archive}: no archive of a state (no {_LAYOUT})")
        try:
            told = json.loads(b"".join(everything.content(head)))
            layout = Layout(
                str(told["backend"]),
                tuple(_text(path) for path in told["emptied"]),
                tuple(_text(path) for path in told["removed"]),
            )
        except (ValueError, TypeError, KeyError) as error:
            raise StateUnfit(f"{archive}: its {_LAYOUT} cannot be read ({error!r})") from None
        for path in (*layout.emptied, *layout.removed):
            if not path or path.startswith("/") or "\0" in path or ".." in path.split("/"):
                raise StateUnfit(f"{archive}: its {_LAYOUT} names a path that leads out: {path[:200]!r}")
        return layout


def _text(path: object) -> str:
    if not isinstance(path, str):
        raise TypeError(f"a path must be text, not {type(path).__name__}")
    return path


def _told(layout: Layout) -> bytes:
    # Names of other bytes than UTF-8 stand in it as lone surrogates, escaped.
    parts = {"backend": layout.backend, "emptied": sorted(layout.emptied), "removed": sorted(layout.removed)}
    return json.dumps(parts, separators=(",", ":"), ensure_ascii=True).encode() + b"\n"


def _line(entry: Entry, content: str) -> bytes:
    """What the hash covers of an entry."""
    size = entry.size if entry.kind == "file" else 0
    parts = [entry.path, entry.kind, entry.mode, entry.uid, entry.gid, size, entry.says]
    return json.dumps([*parts, content if entry.kind == "file" else ""], ensure_ascii=True).encode() + b"\n"


def _hashed(pieces: Iterator[bytes], digest: "hashlib._Hash") -> Iterator[bytes]:
    for piece in pieces:
        digest.update(piece)
        yield piece


def _is_inner(entry: Entry) -> bool:
    return entry.path.startswith(_ROOT)


def _inner(entry: Entry) -> Entry:
    return replace(entry, path=entry.path.removeprefix(_ROOT))
