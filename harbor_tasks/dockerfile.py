"""Reads a Dockerfile into its instructions and a word of it into what Docker would make of it.

What a sandbox does with the instructions is in `harbor_tasks.sandbox.reader`.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from harbor_tasks.errors import TaskRefused

TEXT_LIMIT = 1 << 20
"""Characters of a Dockerfile, and of each file that it makes us read, that are accepted."""

EXPANDED_LIMIT = 1 << 17
"""Characters that the variables of one instruction may stand for: no process takes a longer string."""

MOST_INSTRUCTIONS = 1000

_INSTRUCTION = re.compile(r"\s*([A-Za-z]+)(?:\s+(.*))?", re.DOTALL)
_DIRECTIVE = re.compile(r"#\s*([A-Za-z]+)\s*=\s*(\S+)\s*")
_HEREDOC = re.compile(r"(?:^|\s)[0-9]*<<-?[\"']?[A-Za-z_]")
_REFERENCE = re.compile(r"\$(?:(?P<name>[A-Za-z_][A-Za-z0-9_]*)|\{(?P<braced>[A-Za-z_][A-Za-z0-9_]*)(?P<rest>[^}]*)\})")


@dataclass(frozen=True, slots=True)
class Instruction:
    """`line` is its first line, from 1; `op` is in capitals; `value` has its continuation lines joined."""

    line: int
    op: str
    value: str


def refused(line: int, reason: str) -> TaskRefused:
    return TaskRefused(f"Dockerfile line {line}: {reason}")


def read(path: Path) -> str:
    """A text file of a task, undecodable bytes replaced. Raises TaskRefused for one that is too large."""
    with path.open(encoding="utf-8", errors="replace") as stream:
        text = stream.read(TEXT_LIMIT + 1)
    if len(text) > TEXT_LIMIT:
        raise TaskRefused(f"{path.name} is larger than {TEXT_LIMIT:,} characters: shorten it")
    return text


def parse(text: str) -> list[Instruction]:
    """The instructions in order.

    Raises TaskRefused, naming the line, for a heredoc, what is no instruction, or more than MOST_INSTRUCTIONS.
    """
    _check_directives(text)
    instructions: list[Instruction] = []
    for line, statement in _statements(text):
        match = _INSTRUCTION.fullmatch(statement)
        if match is None:
            raise refused(line, f"expected an instruction, found {statement.strip()[:60]!r}")
        if len(instructions) == MOST_INSTRUCTIONS:
            raise refused(line, f"more than {MOST_INSTRUCTIONS:,} instructions")
        op, value = match[1].upper(), (match[2] or "").strip()
        if op in ("RUN", "COPY", "ADD") and _HEREDOC.search(value):
            raise refused(line, f"{op} with a heredoc is not supported: put the text into a file and COPY it")
        instructions.append(Instruction(line, op, value))
    return instructions


def words(value: str, variables: Mapping[str, str], line: int, *, split: bool = True) -> list[str]:
    """Splits at blanks and expands $NAME, ${NAME}, ${NAME:-x} and ${NAME:+x} as Docker does.

    Single quotes keep everything as it is, a backslash the next character. Without `split`, for an item of a JSON
    list, blanks are kept. Raises TaskRefused for an open quote, another form of expansion, or variables that stand for
    more than EXPANDED_LIMIT characters.
    """
    found: list[str] = []
    word: str | None = None
    quote = ""
    position = expanded = 0
    while position < len(value):
        char = value[position]
        position += 1
        if char == "\\" and quote != "'" and position < len(value):
            # Inside double quotes a backslash protects only what would be special there.
            kept = "\\" if quote == '"' and value[position] not in '"\\$' else ""
            word = (word or "") + kept + value[position]
            position += 1
        elif char == "$" and quote != "'":
            text, position = _expand(value, position - 1, variables, line)
            expanded += len(text)
            if expanded > EXPANDED_LIMIT:
                raise refused(line, f"its variables stand for more than {EXPANDED_LIMIT:,} characters")
            word = (word or "") + text
        elif quote:
            if char == quote:
                quote = ""
            else:
                word = (word or "") + char
        elif char in "\"'":
            quote, word = char, word or ""
        elif split and char.isspace():
            if word is not None:
                found.append(word)
            word = None
        else:
            word = (word or "") + char
    if quote:
        raise refused(line, f"the quote {quote} is never closed")
    if word is not None:
        found.append(word)
    return found


def _expand(value: str, position: int, variables: Mapping[str, str], line: int) -> tuple[str, int]:
    """What the `$` at `position` stands for, and the position after it."""
    match = _REFERENCE.match(value, position)
    if match is None:
        if value.startswith("${", position):
            raise refused(line, f"the expansion {value[position : position + 20]!r} is not supported")
        return "$", position + 1
    name, rest = match["name"] or match["braced"], match["rest"] or ""
    current = variables.get(name, "")
    if rest.startswith(":-"):
        current = current or rest[2:]
    elif rest.startswith(":+"):
        current = rest[2:] if current else ""
    elif rest:
        raise refused(line, f"the expansion {match[0]!r} is not supported: use ${{{name}}} or ${{{name}:-default}}")
    return current, match.end()


def _check_directives(text: str) -> None:
    for number, line in enumerate(text.splitlines(), start=1):
        match = _DIRECTIVE.fullmatch(line)
        if match is None:
            return
        if match[1].lower() == "escape" and match[2] != "\\":
            raise refused(number, f"escape={match[2]} is not supported: the backslash only")


def _statements(text: str) -> Iterator[tuple[int, str]]:
    """Logical lines with the number of their first: comment and empty lines inside a continuation are dropped."""
    first, parts = 0, list[str]()
    for number, line in enumerate(text.replace("\r\n", "\n").split("\n"), start=1):
        if line.lstrip().startswith("#") or (not line.strip()):
            continue
        if not parts:
            first = number
        body = line.rstrip()
        if body.endswith("\\"):
            parts.append(body[:-1])
            continue
        parts.append(body)
        yield first, "".join(parts)
        parts = []
    if parts:
        yield first, "".join(parts)
