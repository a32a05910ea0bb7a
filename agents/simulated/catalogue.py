"""The tasks that personas know by their instruction text, and the scripts that they can play for each."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from agents.simulated.conversation import Said
from agents.simulated.errors import SimulatorError

if TYPE_CHECKING:
    from harbor_tasks.format import Task


@dataclass(frozen=True, slots=True)
class Script:
    """A right or wrong solution: its file's name and its bytes (UTF-8, no NUL)."""

    name: str
    content: bytes


@dataclass(frozen=True, slots=True)
class KnownTask:
    """`solution` is None when the task ships none: then nobody knows how to solve it."""

    name: str
    instruction: str
    solution: Script | None
    wrong: tuple[Script, ...]


class Catalogue:
    """Finds a task by its instruction in what a user said, whatever the white space. Raises SimulatorError on a script
    that cannot be typed into a shell."""

    def __init__(self, tasks: Iterable["Task"]) -> None:
        known = [_known(task) for task in tasks if task.instruction.strip()]
        # An instruction may contain another one: the longest match is meant.
        self._tasks = sorted(known, key=lambda task: (-len(task.instruction), task.name))
        self._in_text = lru_cache(maxsize=512)(self._search)

    def find(self, said: Iterable[Said]) -> KnownTask | None:
        for line in said:
            if line.speaker == "user" and (task := self._in_text(line.text)) is not None:
                return task
        return None

    def _search(self, text: str) -> KnownTask | None:
        text = " ".join(text.split())
        return next((task for task in self._tasks if task.instruction in text), None)


def _known(task: "Task") -> KnownTask:
    solution = None if task.solution is None else _script(task.solution / "solve.sh")
    return KnownTask(
        name=task.name,
        instruction=" ".join(task.instruction.split()),
        solution=solution,
        wrong=tuple(_script(path) for path in task.wrong),
    )


def _script(path: Path) -> Script:
    try:
        content = path.read_bytes()
        content.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SimulatorError(f"{path}: a persona cannot play it: {error}; it must be UTF-8 text") from None
    if b"\0" in content:
        raise SimulatorError(f"{path}: a persona cannot play it: it contains a NUL byte; it must be text")
    return Script(path.name, content)
