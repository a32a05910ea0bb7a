"""How a model acts that has no native tool calls: by one JSON object, or by one fenced block, in plain text.

Both are told in the system text, read strictly, and come out as the tool call that they mean.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import orjson

from agents.tools import Tool

TextProtocol = Literal["json_schema", "fenced"]

FENCED_HEAD = "Actions: one fenced block."
JSON_HEAD = "Actions: one JSON object."
"""The first lines of what the system text says about actions; fixed, so that it can be found there."""

_FENCE = re.compile(r"^ {0,3}(`{3,})[ \t]*([A-Za-z0-9_+.-]*)[ \t]*\r?$")
_FENCED_OBJECT = re.compile(
    r"\A\s*(`{3,})[ \t]*(?:json[c5]?)?[ \t]*\r?\n(.*?)(?:\n[ \t]*\1`*\s*)?\Z", re.DOTALL | re.IGNORECASE
)
_THOUGHTS = re.compile(r"\A\s*<think(?:ing)?>.*?</think(?:ing)?>", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Action:
    """`name` may be no tool at all: only the role knows that it has none of that name."""

    name: str
    argument: str


@dataclass(frozen=True, slots=True)
class Unreadable:
    """`mend` tells the model what was wrong and how it acts."""

    mend: str


def told(protocol: TextProtocol, tools: Sequence[Tool]) -> str:
    """What the system text says about actions, for these tools. Constant in a lane: it is part of the cached head."""
    return (_fenced_told if protocol == "fenced" else _json_told)(tools)


def idle(protocol: TextProtocol) -> str:
    """What a model is told that did not act."""
    if protocol == "fenced":
        return "You did not act, so nothing was done. Go on with exactly one fenced block."
    return "You did not act, so nothing was done. Go on with exactly one JSON object."


def answer_schema(tools: Sequence[Tool]) -> dict[str, object]:
    """The JSON Schema of one action."""
    return {
        "type": "object",
        "properties": {
            "thought": {"type": "string", "description": "Why you do this now."},
            "tool": {"type": "string", "enum": [tool.name for tool in tools]},
            "argument": {"type": "string", "description": "The tool's one argument."},
        },
        "required": ["thought", "tool", "argument"],
        "additionalProperties": False,
    }


def read(protocol: TextProtocol, text: str, tools: Sequence[Tool]) -> Action | Unreadable | None:
    """The action in an answer's text; None when there is none."""
    text = _THOUGHTS.sub("", text)
    if not text.strip():
        return None
    return _read_fenced(text, tools) if protocol == "fenced" else _read_json(text)


def bare(argument: str) -> str:
    """A JSON argument without the code fence that models like to put around it; its end may be missing, since it looks
    like the end of the action's own block."""
    match = _FENCED_OBJECT.match(argument)
    return match[2] if match else argument


def _read_json(text: str) -> Action | Unreadable:
    try:
        value = orjson.loads(text.strip())
    except orjson.JSONDecodeError:
        return Unreadable(
            'error: nothing was done, your answer must be one JSON object and nothing else: {"thought": "...", '
            '"tool": "...", "argument": "..."}'
        )
    name, argument = (value.get("tool"), value.get("argument")) if isinstance(value, dict) else (None, None)
    if not isinstance(name, str) or not isinstance(argument, str):
        return Unreadable(
            "error: nothing was done, the JSON object must have the strings `thought`, `tool` and `argument`"
        )
    return Action(name, argument)


def _read_fenced(text: str, tools: Sequence[Tool]) -> Action | Unreadable | None:
    """A fence ends at a line of at least as many backticks as began it; blocks in other languages are talk."""
    names = {tool.name for tool in tools}
    found: list[Action] = []
    fence, language, inside = "", "", list[str]()
    for line in text.split("\n"):
        match = _FENCE.match(line)
        if fence:
            if match and not match[2] and len(match[1]) >= len(fence):
                if language in names:
                    found.append(Action(language, "\n".join(inside)))
                fence = ""
            else:
                inside.append(line.removesuffix("\r"))
        elif match:
            fence, language, inside = match[1], match[2], []
    if fence and language in names:
        return Unreadable(
            f"error: nothing was done, the {language} block does not end: close it with a line of {fence}"
        )
    if len(found) > 1:
        return Unreadable(f"error: nothing was done, there were {len(found)} blocks: send exactly one, then wait")
    return found[0] if found else None


def _ways(tools: Sequence[Tool]) -> str:
    return "\n".join(f"- {tool.name}: {tool.description} {_its_text(tool)}" for tool in tools)


def _its_text(tool: Tool) -> str:
    if tool.text is None:
        return f"Its text is a JSON object by the schema {orjson.dumps(tool.schema).decode()}"
    return f"Its text: {tool.arguments.model_fields[tool.text].description}"


def _fenced_told(tools: Sequence[Tool]) -> str:
    name = tools[0].name
    worked = "ls -la" if name == "bash" else "..."
    return f"""\
{FENCED_HEAD}
Act by exactly one fenced block in each answer; the word after the backticks says what to do:
{_ways(tools)}
What you write around the block is only read as your thoughts. One block an answer: its result comes as the next
message. If a line of the text is itself a fence of three backticks, fence the block with four. For example:

I look at what is here.

```{name}
{worked}
```"""


def _json_told(tools: Sequence[Tool]) -> str:
    name = tools[0].name
    worked = "ls -la" if name == "bash" else "..."
    example = orjson.dumps({"thought": "I look at what is here.", "tool": name, "argument": worked}).decode()
    return f"""\
{JSON_HEAD}
Each answer is exactly one JSON object with the strings `thought`, `tool` and `argument`, and nothing around it. `tool`
is one of these, and `argument` is its text:
{_ways(tools)}
The result comes as the next message. For example:

{example}"""
