"""What differs between two copies of a directory, as a text of bounded size that a reader or a model can take in.

Both are hostile: whatever their files hold, comparing them takes bounded time and memory.
"""

import difflib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

LIMIT = 40_000
"""Characters of all files' changes together; files beyond are only named."""
FILE_LIMIT = 12_000
"""Characters of one file's changes; what is beyond is cut out of their middle."""
LINE_LIMIT = 500
NAMED = 200
"""So many further files are named."""
READ_LIMIT = 1 << 20
"""Bytes of a file that is still shown."""
CELLS = 1_000_000
"""Two parts with more pairs of lines than this are not matched line by line: the one replaces the other."""

NOTHING = "Nothing has changed."

_CONTEXT = 3


@dataclass(frozen=True, slots=True)
class _Change:
    path: str
    before: Path | None
    after: Path | None

    @property
    def word(self) -> str:
        return "added" if self.before is None else "removed" if self.after is None else "changed"


def tree_diff(before: Path, after: Path, *, seconds: float = 10.0) -> str:
    """A unified diff of the regular files under two directories; `NOTHING` when there is no difference.

    It has no times and sizes, so that the same change always reads the same. Compiled Python and git's index are
    overlooked, and what else git keeps comes last. Files that are no UTF-8 text are named only, as are those that are
    met after `seconds`.
    """
    until = time.monotonic() + seconds
    shown: list[str] = []
    named: list[str] = []
    room = LIMIT
    for change in _changes(before, after):
        text = _shown(change) if room > 0 and time.monotonic() < until else None
        if text is None or len(text) > room:
            named.append(f"{change.word}: {_name(change.path)}")
            if text is not None:
                room = 0
            continue
        shown.append(text)
        room -= len(text)
    if named:
        beyond = len(named) - NAMED
        shown.append(
            "\n".join(
                [
                    f"[the diff is too long: of {len(named)} further files only the names are told]",
                    *named[:NAMED],
                    *([f"[and {beyond} more]"] if beyond > 0 else []),
                ]
            )
        )
    return "\n".join(shown) or NOTHING


def _changes(before: Path, after: Path) -> Iterator[_Change]:
    old, new = _files(before), _files(after)
    for path in sorted(old.keys() | new.keys(), key=lambda path: (".git" in path.split("/"), path)):
        here, there = old.get(path), new.get(path)
        if here is None or there is None or not _same(here, there):
            yield _Change(path, here, there)


def _files(root: Path) -> dict[str, Path]:
    found = {}
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        for name in names:
            path = Path(folder, name)
            if not path.is_symlink() and path.is_file() and not (name == "index" and path.parent.name == ".git"):
                found[path.relative_to(root).as_posix()] = path
    return found


def _same(one: Path, other: Path) -> bool:
    if one.stat().st_size != other.stat().st_size:
        return False
    with one.open("rb") as left, other.open("rb") as right:
        while piece := left.read(1 << 18):
            if piece != right.read(1 << 18):
                return False
    return True


def _shown(change: _Change) -> str:
    name = _name(change.path)
    before, after = _lines(change.before), _lines(change.after)
    if before is None or after is None:
        return f"Binary file {name} {change.word}"
    old = "/dev/null" if change.before is None else f"a/{name}"
    new = "/dev/null" if change.after is None else f"b/{name}"
    lines = [f"--- {old}", f"+++ {new}", *_unified(before, after)]
    return _cut([line if len(line) <= LINE_LIMIT else f"{line[:LINE_LIMIT]} [...]" for line in lines])


def _lines(path: Path | None) -> list[str] | None:
    """None when it is no text, or too much of it."""
    if path is None:
        return []
    with path.open("rb") as file:
        content = file.read(READ_LIMIT + 1)
    if len(content) > READ_LIMIT or b"\0" in content:
        return None
    try:
        lines = content.decode("utf-8").split("\n")
    except UnicodeDecodeError:
        return None
    if lines[-1] == "":
        lines.pop()
    elif lines:
        # So that a last line with and one without its newline differ, told as diff tells it.
        lines[-1] += "\n\\ No newline at end of file"
    return lines


def _unified(before: list[str], after: list[str]) -> Iterator[str]:
    """The hunks. Where there are too many lines to match, what lies between the common head and tail is replaced."""
    head = next(
        (n for n, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), min(len(before), len(after))
    )
    most = min(len(before), len(after)) - head
    ends = zip(reversed(before), reversed(after), strict=False)
    tail = min(most, next((n for n, (a, b) in enumerate(ends) if a != b), most))
    old, new = before[head : len(before) - tail], after[head : len(after) - tail]
    if len(old) * len(new) <= CELLS:
        # Three lines around stay for the context of the outermost hunks.
        start, stop = max(0, head - _CONTEXT), max(0, tail - _CONTEXT)
        a, b = before[start : len(before) - stop], after[start : len(after) - stop]
        for line in list(difflib.unified_diff(a, b, n=_CONTEXT, lineterm=""))[2:]:
            yield _moved(line, start) if line.startswith("@@") else line
        return
    yield f"@@ -{head + 1},{len(old)} +{head + 1},{len(new)} @@"
    yield from (f"-{line}" for line in old)
    yield from (f"+{line}" for line in new)


def _moved(hunk: str, by: int) -> str:
    """The heading of a hunk, `by` lines further down."""
    parts = []
    for part in hunk.split(" ")[1:3]:
        first, comma, count = part[1:].partition(",")
        parts.append(f"{part[0]}{int(first) + by}{comma}{count}")
    return f"@@ {' '.join(parts)} @@"


def _cut(lines: list[str]) -> str:
    text = "\n".join(lines)
    if len(text) <= FILE_LIMIT:
        return text
    head, tail, used = 0, len(lines), 0
    while used + len(lines[head]) < FILE_LIMIT * 3 // 4:
        used += len(lines[head]) + 1
        head += 1
    while tail > head and used + len(lines[tail - 1]) < FILE_LIMIT:
        tail -= 1
        used += len(lines[tail]) + 1
    return "\n".join([*lines[:head], f"[... {tail - head} lines of this file's changes left out ...]", *lines[tail:]])


def _name(path: str) -> str:
    """On one line, and text: a file's name may hold anything."""
    plain = path.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return plain if plain.isprintable() else repr(plain)
