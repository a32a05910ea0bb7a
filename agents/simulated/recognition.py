"""Which of a task's scripts was played, told from the text of a diff alone.

What tells scripts apart is learned or derived. Learned: `diffs/<task>.json` holds the lines that only some of the
task's scripts leave in a diff. Derived, where nothing was learned of exactly these scripts: a script's own lines, of
those that not all of them share, as they stand in a diff where the script wrote them into a file.

The script is meant whose lines differ least from those found; of derived ones, which need not stand in any file, only
those count that were found. Two that differ equally, or none that comes near, are not recognised.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

import orjson
import xxhash

from agents.simulated.catalogue import KnownTask, Script

_LEARNED = Path(__file__).parent / "diffs"

_TELLING = ("+", "-", "Binary file ")
_LONGEST = 300
"""Characters of a line that are compared."""


def digest(script: bytes) -> str:
    """What learned lines name a script by."""
    return xxhash.xxh3_64_hexdigest(script)


def changed_lines(diff: str) -> frozenset[str]:
    """The lines of a diff that tell what has changed."""
    return frozenset(line.rstrip()[:_LONGEST] for line in diff.split("\n") if line.startswith(_TELLING))


def changed_files(diff: str) -> list[str]:
    """The files that a diff names, in its order."""
    found = []
    for line in diff.split("\n"):
        if line.startswith(("--- a/", "+++ b/")):
            found.append(line[6:])
        elif line.startswith("Binary file "):
            found.append(line.removeprefix("Binary file ").rpartition(" ")[0])
    return list(dict.fromkeys(found))


def recognised(task: KnownTask, diff: str) -> Script | None:
    """None when the diff does not tell."""
    scripts = [script for script in (task.solution, *task.wrong) if script is not None]
    marks, learned = _marks(tuple(scripts), task.name)
    telling = frozenset[str]().union(*marks)
    found = changed_lines(diff) & telling
    if not found:
        return None
    off = [len(found ^ lines if learned else found - lines) for lines in marks]
    best = min(off)
    near = [script for script, by in zip(scripts, off, strict=True) if by == best]
    return near[0] if len(near) == 1 and best <= len(found) / 2 else None


def left_by(task: str, script: bytes) -> frozenset[str]:
    """The lines of a diff that a script of the task would be recognised by."""
    return _learned(task).get(digest(script)) or _written(script)


def learned_lines(task: str) -> frozenset[str]:
    """All lines of diffs that were learned of a task's scripts."""
    return frozenset[str]().union(*_learned(task).values())


@lru_cache(maxsize=256)
def _marks(scripts: tuple[Script, ...], task: str) -> tuple[Sequence[frozenset[str]], bool]:
    """Each script's lines, and whether they were learned."""
    learned = _learned(task)
    names = [digest(script.content) for script in scripts]
    if all(name in learned for name in names):
        return [learned[name] for name in names], True
    return apart([_written(script.content) for script in scripts]), False


def apart(lines: Sequence[frozenset[str]]) -> list[frozenset[str]]:
    """Without what all have in common."""
    common = frozenset.intersection(*lines) if len(lines) > 1 else frozenset[str]()
    return [each - common for each in lines]


def _written(script: bytes) -> frozenset[str]:
    return frozenset(f"+{line.rstrip()}"[:_LONGEST] for line in script.decode("utf-8").split("\n") if line.strip())


@lru_cache(maxsize=64)
def _learned(task: str) -> Mapping[str, frozenset[str]]:
    """By a script's digest; nothing of a task that nothing was learned of. A task's name is safe as a file name."""
    path = _LEARNED / f"{task}.json"
    if not path.is_file():
        return {}
    known = orjson.loads(path.read_bytes())
    return {name: frozenset(known["lines"][place] for place in places) for name, places in known["scripts"].items()}
