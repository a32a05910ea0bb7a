"""Which commands a role may run: patterns over the words of a command, and whether it may only look.

What they mean for a command is told by `agents.shell.judge`.
"""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Self

from agents.shell.words import COMPUTED, Word, base_name

_FLAGS = re.compile(r"-[A-Za-z]{1,3}")


@dataclass(frozen=True, slots=True)
class CommandPattern:
    """Words of a command with `*` and `?` in them: a `*` at the end stands for any further words, or none; a name alone
    for the command with any words. Raises ValueError for a text that has no words."""

    text: str
    words: tuple[str, ...] = field(init=False)
    open: bool = field(init=False)

    def __post_init__(self) -> None:
        words = tuple(shlex.split(self.text))
        if not words or "\0" in self.text:
            raise ValueError("expected a command's words, such as 'rm -rf *'")
        is_open = len(words) == 1 or words[-1] == "*"
        object.__setattr__(self, "words", words[:-1] if len(words) > 1 and is_open else words)
        object.__setattr__(self, "open", is_open)

    def may_fit(self, words: Sequence[Word]) -> bool:
        """Whether a command could be one of these, its short options (up to three together) in whatever order."""
        if self._may_fit(self.words, words):
            return True
        flags = [word[1:] for word in self.words[1:] if _FLAGS.fullmatch(word)]
        if not flags:
            return False
        given: set[str] = set()
        kept: list[Word] = []
        for at, word in enumerate(words):
            if word.text == "--":
                kept += words[at + 1 :]
                break
            if word.known and re.match(r"-[A-Za-z]", word.text):
                given |= set(word.text[1:])
            else:
                kept.append(word)
        rest = [word for word in self.words if not _FLAGS.fullmatch(word)]
        return set("".join(flags)) <= given and self._may_fit(rest, kept)

    def surely_fits(self, words: Sequence[Word]) -> bool:
        """Whether it is one of these, whatever is computed in it."""
        if len(words) < len(self.words) or (len(words) > len(self.words) and not self.open):
            return False
        for at, (pattern, word) in enumerate(zip(self.words, words, strict=False)):
            names = {word.text, base_name(word)} if at == 0 else {word.text}
            computed = word.several or (COMPUTED in word.text and pattern != "*")
            if computed or not any(fnmatchcase(name, pattern) for name in names):
                return False
        return True

    def _may_fit(self, patterns: Sequence[str], words: Sequence[Word]) -> bool:
        for at, pattern in enumerate(patterns):
            if at >= len(words):
                return False
            word = words[at]
            if word.several:
                return True
            if not (word.may_be(pattern) or (at == 0 and fnmatchcase(base_name(word), pattern))):
                return False
        rest = words[len(patterns) :]
        return self.open or not rest or all(word.several for word in rest)


@dataclass(frozen=True, slots=True)
class CommandPolicy:
    """`deny` goes first. With `allow` (not None) nothing else runs but bash's own commands that only change the shell.
    With `read_only` only commands that look (`agents.shell.looking`), and no output goes into a file."""

    deny: tuple[CommandPattern, ...] = ()
    allow: tuple[CommandPattern, ...] | None = None
    read_only: bool = False

    def parts(self) -> dict[str, object]:
        """All that it says, JSON-able."""
        allow = None if self.allow is None else [pattern.text for pattern in self.allow]
        return {"deny": [pattern.text for pattern in self.deny], "allow": allow, "read_only": self.read_only}

    @classmethod
    def from_parts(cls, parts: Mapping[str, Any]) -> Self:
        """From what `parts` gave."""
        allow = None if parts["allow"] is None else tuple(map(CommandPattern, parts["allow"]))
        return cls(tuple(map(CommandPattern, parts["deny"])), allow, parts["read_only"])

    def writing_refusal(self, tool: str) -> str | None:
        """Why a tool that writes a file is refused, in one line; None where it may write."""
        return refused(tool, "writes a file, and this role may only look (read_only)") if self.read_only else None


def refused(what: str | None, why: str) -> str:
    """What a model is told, in one line, of a command or a tool that was not run."""
    return " ".join(["refused, nothing was run:", *([] if what is None else [f"`{what}`"]), *why.split()])
