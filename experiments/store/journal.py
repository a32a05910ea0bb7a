"""The append-only segment file of one run: one JSON object a line, on disk before a call is sent.

Group commit: all records that come while one sync is under way share the next one. The owner holds an exclusive flock
for its life, so that a segment whose lock is free has a dead owner. Reading is in `segment`.
"""

import asyncio
import errno
import fcntl
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from types import TracebackType
from typing import Self

import orjson

from experiments.errors import JournalFull, StoreLocked

Event = dict[str, object]

SYNC_TIMEOUT_S = 60.0
"""A disk that takes longer than this to sync one batch is broken."""

NOTE_DELAY_S = 0.05
"""A noted record is handed to the operating system (which survives kill -9, not power-off) after at most so long."""

DEEPEST = 64
WIDEST_INTEGER = 1 << 63


def journal_folder(database: Path) -> Path:
    """Where the segments of a database lie."""
    return database.with_name(database.name + ".journal")


def encode(event: Mapping[str, object]) -> bytes:
    """One line. Date-times become ISO-8601 UTC with microseconds, Decimal text.

    What a model or task wrote may hold what JSON or a database cannot: lone surrogates become U+FFFD, integers beyond
    64 bits become text, and nesting deeper than 64 levels is replaced by a remark. Raises ValueError on a naive
    date-time and on a number that is not finite.
    """
    try:
        return orjson.dumps(event, default=_plain, option=orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_APPEND_NEWLINE)
    except orjson.JSONEncodeError as error:
        if isinstance(error.__cause__, ValueError | TypeError):
            raise error.__cause__ from None
        return orjson.dumps(_tamed(event, 0), option=orjson.OPT_APPEND_NEWLINE)


def _plain(value: object) -> str:
    if isinstance(value, datetime):
        return iso(value)
    if isinstance(value, Decimal):
        return str(value)
    raise TypeError(f"{type(value).__name__} is no journal value")


def iso(moment: datetime) -> str:
    """ISO-8601 UTC with microseconds. Raises ValueError on a naive date-time."""
    if moment.tzinfo is None:
        raise ValueError(f"{moment.isoformat()} has no time zone; the journal takes aware date-times only")
    return (moment if moment.tzinfo is UTC else moment.astimezone(UTC)).isoformat(timespec="microseconds")


def _tamed(value: object, depth: int) -> object:
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, int):
        return value if -WIDEST_INTEGER <= value < WIDEST_INTEGER else _digits(value)
    if isinstance(value, Mapping | list | tuple) and depth >= DEEPEST:
        return f"[nested deeper than {DEEPEST} levels]"
    if isinstance(value, Mapping):
        return {str(_tamed(key, depth)): _tamed(inner, depth + 1) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_tamed(inner, depth + 1) for inner in value]
    return _plain(value)


def _digits(value: int) -> str:
    return str(value) if value.bit_length() < 4_000 else f"[an integer of {value.bit_length()} bits]"


class Journal:
    """Owner of one segment file; use it as an async context manager, on one event loop.

    A failed write or sync ends the journal: the file is cut back to its whole lines, the waiting callers and every
    later one get JournalFull. What was acknowledged before is safe.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = -1
        self._size = 0
        self._buffer: list[bytes] = []
        self._waiting: asyncio.Future[None] | None = None
        self._kick = asyncio.Event()
        self._closing = False
        self._broken: str | None = None
        self._unsynced = False
        self._hangs = False
        self._timer: asyncio.TimerHandle | None = None
        self._finished: list[Sequence[bytes]] = []
        self._disk = ThreadPoolExecutor(1, thread_name_prefix="journal")
        self._writer: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """Raises StoreLocked when another process owns this segment, JournalFull when it cannot be created."""
        try:
            self._fd = await asyncio.to_thread(_own, self.path)
        except OSError as error:
            raise JournalFull(_why(self.path, error)) from error
        self._size = os.fstat(self._fd).st_size
        self._writer = asyncio.create_task(self._write())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Writes and syncs what is noted, then lets go of the file. Raises JournalFull when that fails."""
        self._closing = True
        self._kick.set()
        try:
            if self._writer is not None:
                await _finish(self._writer)
        finally:
            if self._timer is not None:
                self._timer.cancel()
            self._disk.shutdown(wait=False)
            # A thread that hangs in a write still uses the number: closing it would let it write into another file.
            if not self._hangs:
                os.close(self._fd)
        if self._broken and kind is None:
            raise JournalFull(self._broken)

    def note(self, line: bytes) -> None:
        """Takes a line that `encode` made: recorded in order, on disk with the next durable record at the latest.

        Raises JournalFull once the journal has failed.
        """
        self._take(line)
        if self._timer is None and not self._kick.is_set():
            self._timer = asyncio.get_running_loop().call_later(NOTE_DELAY_S, self._kick.set)

    async def durable(self, line: bytes) -> None:
        """Returns once the line, and everything noted before it, is on disk. Raises JournalFull."""
        self._take(line)
        if self._waiting is None:
            self._waiting = asyncio.get_running_loop().create_future()
        shared = self._waiting
        self._kick.set()
        await asyncio.shield(shared)

    def finished(self, lines: Sequence[bytes]) -> None:
        """All lines of an attempt that has ended: kept until they are taken to be merged."""
        self._finished.append(lines)

    def take_finished(self) -> list[Sequence[bytes]]:
        """The attempts that have ended since the last time."""
        taken, self._finished = self._finished, []
        return taken

    def _take(self, line: bytes) -> None:
        if self._broken:
            raise JournalFull(self._broken)
        if self._closing or self._writer is None:
            raise JournalFull(f"{self.path}: the journal is closed")
        self._buffer.append(line)

    async def _write(self) -> None:
        waiting: asyncio.Future[None] | None = None
        try:
            while not self._broken and not (self._closing and not self._buffer and not self._unsynced):
                await self._kick.wait()
                # While closing nobody kicks again: the loop runs on until all is written.
                if not self._closing:
                    self._kick.clear()
                if self._timer is not None:
                    self._timer.cancel()
                    self._timer = None
                lines, waiting = b"".join(self._buffer), self._waiting
                self._buffer, self._waiting = [], None
                sync = waiting is not None or self._closing
                try:
                    async with asyncio.timeout(SYNC_TIMEOUT_S):
                        await asyncio.get_running_loop().run_in_executor(self._disk, self._append, lines, sync)
                except (OSError, TimeoutError) as error:
                    self._fail(error, waiting)
                else:
                    self._unsynced = not sync
                    if waiting is not None and not waiting.done():
                        waiting.set_result(None)
        except BaseException:
            # Cancelled or interrupted, the loop is being torn down: whoever waits for a record would wait for ever.
            self._fail(InterruptedError(errno.EINTR, "the program is being stopped"), waiting)
            raise

    def _append(self, lines: bytes, sync: bool) -> None:
        view = memoryview(lines)
        try:
            while view:
                view = view[os.write(self._fd, view) :]
            if sync:
                os.fdatasync(self._fd)
        except OSError:
            os.ftruncate(self._fd, self._size)
            raise
        self._size += len(lines)

    def _fail(self, error: OSError | TimeoutError, waiting: "asyncio.Future[None] | None") -> None:
        self._hangs = not isinstance(error, OSError) or error.errno is None
        self._broken = why = _why(self.path, error)
        for each in (waiting, self._waiting):
            if each is not None and not each.done():
                each.set_exception(JournalFull(why))
                each.exception()
        self._buffer, self._waiting = [], None


async def _finish(task: "asyncio.Task[None]") -> None:
    """Waits for the writer even while the caller is being cancelled: noted events must not be dropped on Ctrl-C."""
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled


def _own(path: Path) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        fd = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            raise StoreLocked(f"{path}: another process writes this journal; use another run id") from None
        # Between open and lock a recovery may have taken the empty file for a dead one and removed it.
        if os.fstat(fd).st_nlink:
            _cut(path, fd)
            return fd
        os.close(fd)


def _cut(path: Path, fd: int) -> None:
    """Cuts off a torn last line, or the first new record would be glued to it."""
    content = path.read_bytes()
    os.ftruncate(fd, content.rfind(b"\n") + 1)


def _why(path: Path, error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return f"{path}: the disk took over {SYNC_TIMEOUT_S:.0f} s to sync; move the database (--db) to a working disk"
    full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    mend = "free some space" if full else "make it writable"
    return f"{path}: cannot write the journal ({reason}); {mend} or move the database (--db), then run again"
