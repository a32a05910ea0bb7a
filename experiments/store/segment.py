"""A journal segment as it stands on disk, read again.

A torn last line is what a crash leaves: reading ends at the last newline. Any other line that is no event is damage and
is said, never skipped.
"""

import fcntl
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson

from experiments.errors import JournalDamaged
from experiments.store.journal import Event, journal_folder


class Segment:
    """One run's records. Its owner holds an exclusive flock on the file for its life."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def lines(self) -> Iterator[bytes]:
        """Whole lines, each with its newline. Nothing for a segment that was merged and removed meanwhile."""
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            return
        start = 0
        while (end := content.find(b"\n", start)) >= 0:
            yield content[start : end + 1]
            start = end + 1

    def events(self) -> Iterator[Event]:
        """Raises JournalDamaged naming the line that is no event."""
        for number, line in enumerate(self.lines(), start=1):
            yield decode(line, f"{self.path}:{number}")

    def alive(self) -> bool:
        """Whether the owner still runs: then an open call is in flight, not lost."""
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(fd)
        return False

    def attempts(self) -> dict[tuple[str, int], list[Event]]:
        """The events of each attempt, in order, attempts in order of first appearance. Raises JournalDamaged."""
        return by_attempt(self.events(), str(self.path))


@contextmanager
def claimed(segment: Segment) -> Iterator[bool]:
    """Whether the segment's owner is dead; then it is ours inside the block. Waits out a reader's short look."""
    try:
        fd = os.open(segment.path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        yield False
        return
    try:
        yield _lock(fd)
    finally:
        os.close(fd)


def _lock(fd: int) -> bool:
    for pause in (0.0, 0.01, 0.05, 0.1):
        time.sleep(pause)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            continue
        return True
    return False


def segments(database: Path) -> list[Segment]:
    folder = journal_folder(database)
    return [Segment(path) for path in sorted(folder.glob("*.jsonl"))] if folder.is_dir() else []


def decode(line: bytes, where: str) -> Event:
    """Raises JournalDamaged."""
    try:
        event = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise JournalDamaged(f"{where}: not a journal event ({error}); restore the file or move it away") from None
    if not isinstance(event, dict) or not isinstance(event.get("kind"), str):
        raise JournalDamaged(f"{where}: not a journal event (no kind); restore the file or move it away")
    return event


def by_attempt(events: Iterable[Event], where: str) -> dict[tuple[str, int], list[Event]]:
    """`ended` and `judged` name only their call's key; they belong to the attempt that sent it."""
    found: dict[tuple[str, int], list[Event]] = {}
    owner: dict[object, tuple[str, int]] = {}
    for event in events:
        kind = event["kind"]
        if kind in ("ended", "judged"):
            attempt = owner.get(event.get("key"))
            if attempt is None:
                raise JournalDamaged(
                    f"{where}: {kind} for the call {event.get('key')!r} that was never sent; move it away"
                )
        else:
            trial, number = event.get("trial_id"), event.get("attempt")
            if not isinstance(trial, str) or not isinstance(number, int):
                raise JournalDamaged(f"{where}: {kind} without trial_id and attempt; move it away")
            attempt = (trial, number)
            if kind == "sent":
                owner[event.get("key")] = attempt
        found.setdefault(attempt, []).append(event)
    return found
