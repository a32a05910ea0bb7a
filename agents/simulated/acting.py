"""Acting in words: how a persona acts where no native tool calls are offered, and how its earlier acts are read again.

A line in the system text says the form: one fenced block (the command in a block of `bash`, a hand-over in a block
that is named as its tool), or one JSON object with thought, tool and argument.
"""

import re
from typing import Literal, NamedTuple

import orjson

Form = Literal["tools", "fenced", "json"]

FENCED_HEAD = "Actions: one fenced block."
JSON_HEAD = "Actions: one JSON object."

_HANDOVERS = ("delegate", "approve", "submit")
_FENCE = re.compile(r"(`{3,})([A-Za-z][\w-]{0,63})[ \t]*")
_NO_TOOL = frozenset(("json", "text", "sh", "shell", "console"))
_LISTED = re.compile(r"- ([A-Za-z][\w-]{0,63}): ")
_WORD = re.compile(r"[\w-]+")


class Act(NamedTuple):
    tool: str
    argument: str


def form_of(system: str) -> Form:
    """The form that the system text asks for; native tools when it names none."""
    lines = {line.strip() for line in system.splitlines()}
    return "fenced" if FENCED_HEAD in lines else "json" if JSON_HEAD in lines else "tools"


def tools_told(system: str, command_tool: str) -> list[str]:
    """The tools that the text from the form's line on names: those that it lists ("- name: what it does"), else the
    command tool, the hand-overs that it mentions and the names of its blocks."""
    head = FENCED_HEAD if FENCED_HEAD in system else JSON_HEAD
    told = system[system.find(head) + len(head) :]
    lines = [line.strip() for line in told.splitlines()]
    if listed := [found[1] for line in lines if (found := _LISTED.match(line))]:
        return list(dict.fromkeys(listed))
    words = set(_WORD.findall(told))
    fenced = [found[2] for line in lines if (found := _FENCE.fullmatch(line))]
    names = [*(name for name in _HANDOVERS if name in words), *(name for name in fenced if name not in _NO_TOOL)]
    return list(dict.fromkeys([command_tool, *names]))


def say(form: Form, text: str, act: Act) -> str:
    """An answer's text with the act in it."""
    if form == "json":
        return orjson.dumps({"thought": text, "tool": act.tool, "argument": act.argument}).decode()
    longest = max((len(run) for run in re.findall(r"^`{3,}", act.argument, re.MULTILINE)), default=2)
    fence = "`" * max(3, longest + 1)
    return f"{text}\n\n{fence}{act.tool}\n{act.argument}\n{fence}"


def heard(form: Form, text: str) -> Act | None:
    """The act in an answer's text; None when it has none in this form."""
    return _object(text) if form == "json" else _block(text)


def _object(text: str) -> Act | None:
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    tool, argument = (value.get("tool"), value.get("argument")) if isinstance(value, dict) else (None, None)
    return Act(tool, argument) if isinstance(tool, str) and isinstance(argument, str) else None


def _block(text: str) -> Act | None:
    lines = text.split("\n")
    for start, line in enumerate(lines):
        if found := _FENCE.fullmatch(line):
            for end in range(start + 1, len(lines)):
                if lines[end].rstrip() == found[1]:
                    return Act(found[2], "\n".join(lines[start + 1 : end]))
            return None
    return None
