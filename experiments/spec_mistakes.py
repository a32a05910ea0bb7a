"""What is said of a mistake in a spec: one line with file, line, field, what was expected and how to mend it.

Knows no field of a spec but by an example: which fields there are it is told.
"""

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import yaml
from pydantic import ValidationError

from agents.strict_yaml import LIMIT, FileKind
from experiments.errors import SpecError

Place = Sequence[str | int]
"""The way to a field: names, and numbers in lists."""

SPECS = FileKind(
    SpecError,
    too_long=f"longer than {LIMIT} bytes; a spec is a short YAML file",
    too_deep="nested too deep; a spec is a few levels of mappings and lists",
    missing="no such spec file; give a path, or the name of a shipped spec",
    unreadable="cannot be read ({}); give a readable YAML file",
    no_text="not UTF-8 text (byte {}); save the file as UTF-8",
    malformed="malformed YAML: {}; mend that line",
    twice="the key {!r} stands twice; keep one of them",
    line="{}:{}",
)


def near(word: str, known: Sequence[str]) -> str:
    """The tail of a message about an unknown word: the nearest known ones, or all of them when none is near."""
    close = difflib.get_close_matches(word, known, n=3, cutoff=0.6)
    if close:
        return f"did you mean {' or '.join(repr(name) for name in close)}?"
    return f"known: {', '.join(known) or 'none'}"


def mistake(path: Path, root: yaml.Node, at: Place, message: str) -> SpecError:
    """What is wrong with the field `at`."""
    field = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in at).lstrip(".")
    return SpecError(f"{path}:{_line(root, at)}: {field}: {message}" if field else f"{path}: {message}")


def first_mistake(
    path: Path, root: yaml.Node, error: ValidationError, fields: Callable[[Place], Iterable[str]]
) -> SpecError:
    """Of all that pydantic found. `fields` are those that could stand where an unknown one does."""
    found = error.errors(include_url=False)
    # An unknown field is mostly a misspelt one, and then explains a field that seems to be missing.
    wrong = next((each for each in found if each["type"] == "extra_forbidden"), found[0])
    at = wrong["loc"]
    if wrong["type"] == "extra_forbidden":
        message = f"unknown field; {near(str(at[-1]), list(fields(at)))}"
    else:
        message = _message(wrong["type"], wrong["msg"], str(at[-1]), wrong["input"], wrong.get("ctx", {}))
    return mistake(path, root, at, message + (f" (and {len(found) - 1} more)" if len(found) > 1 else ""))


def _line(node: yaml.Node, at: Place) -> int:
    """The line on which the field stands, or the nearest thing above it that is in the file. Counts from 1."""
    line = node.start_mark.line + 1
    for step in at:
        if isinstance(node, yaml.MappingNode):
            inside = {key.value: (key, value) for key, value in node.value if isinstance(key, yaml.ScalarNode)}
            if step not in inside:
                break
            key, node = inside[str(step)]
            line = key.start_mark.line + 1
        elif isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
            node = node.value[step]
            line = node.start_mark.line + 1
        else:
            break
    return line


def _message(kind: str, message: str, field: str, value: object, context: Mapping[str, object]) -> str:
    if kind == "missing":
        return f"missing; add it ({_EXAMPLES.get(field, f'{field}: ...')})"
    if kind == "string_pattern_mismatch":
        return (
            f"{_shown(value)} is no name; expected letters, digits, '.', '_' and '-', beginning with a letter or digit"
        )
    if kind == "timezone_aware":
        return f"{_shown(value)} has no time zone; expected a date-time like 2026-11-24T12:00:00Z"
    if kind == "too_short":
        return "is empty; name at least one"
    if kind == "literal_error":
        return f"{_shown(value)} is not known; expected {context.get('expected')}"
    if kind in _BOUNDS:
        word, limit = _BOUNDS[kind]
        return f"expected {word} {context.get(limit)}, found {_shown(value)}"
    if kind in _EXPECTED:
        example = f"; write {_EXAMPLES[field]}" if field in _EXAMPLES else ""
        return f"expected {_EXPECTED[kind]}, found {_shown(value)}{example}"
    if kind == "value_error":
        return message.removeprefix("Value error, ")
    return f"{message[:1].lower()}{message[1:]}, found {_shown(value)}"


_EXAMPLES = {
    "name": "name: my-experiment",
    "tasks": "tasks: [bundled]",
    "arms": "arms: a list of {name, topology, roles}",
    "topology": "topology: solo",
    "roles": "roles: {solo: sim-claude-opus-5-5}",
    "model": "model: a name of the registry",
    "limits": "limits: {max_turns: 100}",
    "budget_usd": "budget_usd: 5.00",
}

_BOUNDS = {
    "greater_than_equal": ("at least", "ge"),
    "greater_than": ("more than", "gt"),
    "less_than_equal": ("at most", "le"),
}

_EXPECTED = {
    kind: expected
    for expected, kinds in {
        "a whole number such as 3": ("int_type", "int_parsing", "int_parsing_size", "int_from_float"),
        "a number such as 1.5": ("float_type", "float_parsing", "finite_number", "decimal_type", "decimal_parsing"),
        "text in quotes": ("string_type",),
        "a list such as [a, b]": ("list_type",),
        "a mapping of fields": ("dict_type", "model_type"),
        "a date-time like 2026-11-24T12:00:00Z": (
            "datetime_type", "datetime_parsing", "datetime_from_date_parsing", "datetime_object_invalid",
        ),
    }.items()
    for kind in kinds
}  # fmt: skip


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def kind_of(value: object) -> str:
    return {list: "a list", str: "text", int: "a number", float: "a number"}.get(type(value), "something else")
