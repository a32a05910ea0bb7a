"""Commands that only look: how a persona explores a directory and looks at results.

Their output depends on the files alone: sorted, without dates, process ids, users or commit hashes, so that the same
trial reads the same bytes again. No command comes twice in a row of looks.
"""

import re
import shlex
from collections.abc import Iterator, Sequence

LIST = "pwd; ls -1A"
_LISTING = "find . -type f -not -path '*/.git/*' -not -path '*/__pycache__/*' | LC_ALL=C sort"
FIND = f"{_LISTING} | head -n 50"
FIND_AGAIN = f"ls -1A; {_LISTING} | tail -n 50"

_NO_TEXT = (
    ".pyc",
    ".png",
    ".jpg",
    ".gif",
    ".pdf",
    ".gz",
    ".xz",
    ".zip",
    ".tar",
    ".db",
    ".sqlite",
    ".so",
    ".whl",
    ".bin",
)
_GIT = (
    "git status --short",
    "git log --first-parent --format='%an: %s' | head -n 30",
    "git branch --all --format='%(refname:short)'",
    "git diff --stat",
)
_QUOTED = re.compile(r"`([^`\n]{3,40})`")
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]{5,30}")


def files_in(listing: str) -> list[str]:
    """The text files that a `FIND` listing names, at most 50. The text came over the wire: names are quoted on use."""
    names = [line for line in listing.splitlines() if line.startswith("./") and len(line) <= 200]
    return [name for name in names if not name.lower().endswith(_NO_TEXT)][:50]


def is_repository(listing: str) -> bool:
    return ".git" in listing.splitlines()


def words_of(instruction: str) -> list[str]:
    """What to search for: the instruction's quoted names first, then its longest words; at most eight."""
    quoted = _QUOTED.findall(instruction)
    longest = sorted(set(_WORD.findall(instruction)), key=lambda word: (-len(word), word))
    return list(dict.fromkeys([*quoted, *longest]))[:8]


def in_order(files: Sequence[str], instruction: str) -> list[str]:
    """Files whose name the instruction mentions first, else as listed."""
    return sorted(files, key=lambda file: file.rsplit("/", 1)[-1] not in instruction)


def looks(files: Sequence[str], words: Sequence[str], *, repository: bool, lines: int) -> Iterator[str]:
    """Distinct commands without end: heads of `files` (so many `lines`), history, searches, then ever smaller parts."""
    quoted = [shlex.quote(file) for file in files]
    yield from (f"head -n {lines} {file}" for file in quoted[:12])
    if repository:
        yield from _GIT
    yield from (
        f"grep -rnIF --exclude-dir=.git --exclude-dir=__pycache__ -e {shlex.quote(word)} . | LC_ALL=C sort | head -n 25"
        for word in words
    )
    yield from (f"tail -n 40 {file}" for file in quoted)
    yield from (f"wc -l {file}" for file in quoted)
    yield from (f"head -n {lines} {file}" for file in quoted[12:])
    step = 30
    targets = quoted or ["/dev/null"]
    for start in range(1, 1_000_000, step):
        yield from (f"sed -n '{start},{start + step - 1}p' {file}" for file in targets)
