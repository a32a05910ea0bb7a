"""Which commands a role may run: rules over the parsed command, however it is wrapped.

What is refused is told to the model in one line, and never runs. A guard rail against mistakes, and no security
boundary: that is the sandbox. A program that a role writes itself, or a script file, is not looked into.
"""

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from agents.shell import looking
from agents.shell.script import Simple, Unreadable, simple_commands
from agents.shell.words import COMPUTED, Word, names
from agents.shell.wrappers import base_name, inside

_DEEPEST = 12
_MOST = 5_000
_SHOWN = 120
_RESERVED = names("{ } if then elif else fi for while until do done case esac in select function !")
_EVALUATES = names("let declare typeset local export readonly unset read printf test [ [[ wait getopts")
_SUBSTITUTES = re.compile(r"\$\(|`")
_FLAGS = re.compile(r"-[A-Za-z]{1,3}")
_NO_FILE = ("/dev/null", "/dev/stdout", "/dev/stderr")


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

    def refusal(self, command: str) -> str | None:
        """Why it is refused, in one line; None where it may run."""
        try:
            return next(self._refusals(command, 0, [_MOST]), None)
        except Unreadable as problem:
            return _line(None, f"the command cannot be judged: {problem}")
        except RecursionError:
            return _line(None, "the command cannot be judged: it is nested too deep")

    def writing_refusal(self, tool: str) -> str | None:
        """The same of a tool that writes a file."""
        return _line(tool, "writes a file, and this role may only look (read_only)") if self.read_only else None

    def _refusals(self, script: str, depth: int, left: list[int]) -> Iterator[str]:
        if depth > _DEEPEST:
            raise Unreadable("it runs shells within shells too deep")
        for simple in simple_commands(script):
            if self.read_only:
                yield from self._writes(simple)
            if simple.words:
                yield from self._judged(simple.words, simple, depth, left)

    def _judged(self, words: Sequence[Word], simple: Simple, depth: int, left: list[int]) -> Iterator[str]:
        left[0] -= 1
        if depth > _DEEPEST or left[0] < 0:
            raise Unreadable("it runs too much, or commands within commands too deep")
        name, shown = words[0], _shown(words)
        if not name.known or (name.pattern and name.text not in ("[", "[[")) or not name.text:
            yield _line(shown, "cannot be judged: the command's name is computed; write it out")
            return
        if name.text in _RESERVED:
            yield _line(shown, f"cannot be judged: {name.text!r} stands where a command is expected")
            return
        if name.text in _EVALUATES and any(_SUBSTITUTES.search(word.text) for word in words):
            yield _line(shown, f"cannot be judged: {name.text} would run what stands in its words")
        for pattern in self.deny:
            if pattern.may_fit(words):
                sure = pattern.surely_fits(words) or all(word.known for word in words)
                yield _line(shown, f"{'matches' if sure else 'could match'} the denied pattern {pattern.text!r}")
        found = inside(words, simple)
        if found.why is not None:
            yield _line(shown, f"cannot be judged: {found.why}")
        for inner in found.exact:
            yield from self._judged(inner, simple, depth + 1, left)
        for inner in found.loose:
            for pattern in self.deny:
                if pattern.may_fit(inner):
                    yield _line(shown, f"may run what the denied pattern {pattern.text!r} matches")
        for script in found.scripts:
            yield from self._refusals(script, depth + 1, left)
        for script in found.perhaps:
            try:
                yield from self._refusals(script, depth + 1, left)
            except Unreadable:
                continue
        if found.plain:
            yield from self._plain(words, shown)

    def _plain(self, words: Sequence[Word], shown: str) -> Iterator[str]:
        if (
            self.allow is not None
            and words[0].text not in looking.SHELL
            and not any(pattern.surely_fits(words) for pattern in self.allow)
        ):
            allowed = ", ".join(repr(pattern.text) for pattern in self.allow[:8])
            yield _line(shown, f"matches no allowed pattern ({allowed}{', ...' if len(self.allow) > 8 else ''})")
        if self.read_only and (why := looking.why_it_writes(words)) is not None:
            yield _line(shown, f"{why}, and this role may only look (read_only)")

    def _writes(self, simple: Simple) -> Iterator[str]:
        for target in simple.writes:
            if target.text not in _NO_FILE:
                name = target.text.replace(COMPUTED, "...")
                yield _line(
                    _cut(simple.text.partition("\n")[0]),
                    f"writes to {_cut(name)!r}, and this role may only look (read_only)",
                )
        for name in simple.assigns:
            if not looking.VARIABLES.fullmatch(name):
                yield _line(
                    _cut(simple.text.partition("\n")[0]), f"sets {_cut(name)}, and this role may only look (read_only)"
                )


def _shown(words: Sequence[Word]) -> str:
    return _cut(" ".join(word.text.replace(COMPUTED, "...") for word in words[:40]))


def _cut(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def _line(what: str | None, why: str) -> str:
    return " ".join(["refused, nothing was run:", *([] if what is None else [f"`{what}`"]), *why.split()])
