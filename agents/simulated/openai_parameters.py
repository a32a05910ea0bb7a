"""What OpenAI's two protocols check alike: numbers, tools, effort, and answers by a schema."""

import re
from collections.abc import Iterable, Mapping

from agents.simulated.conversation import Tool
from agents.simulated.errors import Refused
from agents.simulated.openai_refusals import missing, unknown, unsupported, wrong_type, wrong_value
from agents.simulated.persona import EFFORTS, Persona
from agents.simulated.prompt import Prompt
from agents.simulated.wire_rules import encode, tool_of

_BOUNDS = {"temperature": (0, 2), "top_p": (0, 1), "presence_penalty": (-2, 2), "frequency_penalty": (-2, 2)}
_TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_TOOL_KEYS = frozenset(("name", "description", "parameters", "strict"))


def check_flags(document: Mapping[str, object], names: Iterable[str]) -> None:
    for name in names:
        if not isinstance(document.get(name) or False, bool):
            raise wrong_type(name, "a boolean")


def check_numbers(document: Mapping[str, object]) -> None:
    for name, (low, high) in _BOUNDS.items():
        value = document.get(name) or 0
        if not isinstance(value, int | float) or isinstance(value, bool) or not low <= value <= high:
            raise Refused(
                f"Invalid '{name}': expected a number from {low} to {high}.", param=name, code="invalid_value"
            )


def check_stream_options(document: Mapping[str, object], *known: str) -> None:
    options = document.get("stream_options")
    if options is None:
        return
    if not document.get("stream"):
        raise Refused(
            "The 'stream_options' parameter is only allowed when 'stream' is enabled.", param="stream_options"
        )
    if not isinstance(options, dict):
        raise wrong_type("stream_options", "an object")
    for key in options:
        if key not in known:
            raise unknown(f"stream_options.{key}")


def effort(value: object, name: str, persona: Persona) -> float:
    """How many times the usual length is thought; 1 when the request says nothing."""
    if value is None:
        return 1.0
    if not persona.takes_effort(value):
        raise wrong_value(name, value, *(word for word in EFFORTS if persona.takes_effort(word)))
    return EFFORTS[str(value)]


def tools(value: object, prompt: Prompt, *, nested: bool) -> tuple[Tool, ...]:
    """The function tools, each added to the prompt as it was sent; `nested` as chat has them, under `function`."""
    if not isinstance(value, list):
        raise wrong_type("tools", "an array")
    offered: dict[str, Tool] = {}
    for number, tool in enumerate(value):
        path = f"tools[{number}]"
        function = _function(tool, path, nested=nested)
        where = f"{path}.function" if nested else path
        name = function.get("name")
        if not isinstance(name, str) or not _TOOL_NAME.fullmatch(name):
            raise Refused(
                f"Invalid '{where}.name': string does not match pattern '^[a-zA-Z0-9_-]{{1,64}}$'.",
                param=f"{where}.name",
                code="invalid_value",
            )
        if name in offered:
            raise Refused(f"Invalid 'tools': the function name '{name}' is not unique.", param="tools")
        schema = function.get("parameters") or {}
        if not isinstance(schema, dict):
            raise wrong_type(f"{where}.parameters", "an object")
        if function.get("strict"):
            check_strict(schema, f"Invalid schema for function '{name}'", f"{where}.parameters")
        offered[name] = tool_of(name, function.get("description"), schema)
        prompt.chain.add(encode(tool))
    return tuple(offered.values())


def may_call(document: Mapping[str, object], *, offered: bool) -> bool:
    """Whether tools may be called at all; checks `tool_choice`."""
    choice = document.get("tool_choice") or "auto"
    if isinstance(choice, dict):
        raise unsupported("tool_choice", "by simulated models when it forces a tool")
    if choice not in ("auto", "none", "required"):
        raise Refused("Invalid value for 'tool_choice': expected 'auto', 'none' or 'required'.", param="tool_choice")
    if choice == "required" and not offered:
        raise Refused("'tool_choice' is only allowed when 'tools' are specified.", param="tool_choice")
    return choice != "none"


def check_format(value: object, path: str, *, nested: bool) -> bool:
    """Whether an answer by a schema is asked for; `nested` as chat has it, under `json_schema`."""
    if value is None:
        return False
    if not isinstance(value, dict):
        raise wrong_type(path, "an object")
    kind = value.get("type")
    if kind is None:
        raise missing(f"{path}.type")
    if kind == "text":
        return False
    if kind == "json_object":
        raise unsupported(path, "by simulated models when its type is 'json_object'")
    if kind != "json_schema":
        raise wrong_value(f"{path}.type", kind, "text", "json_object", "json_schema")
    named = value.get("json_schema") if nested else value
    where = f"{path}.json_schema" if nested else path
    if not isinstance(named, dict):
        raise missing(where)
    name, schema = named.get("name"), named.get("schema")
    if not isinstance(name, str) or not _TOOL_NAME.fullmatch(name):
        raise missing(f"{where}.name")
    if not isinstance(schema, dict):
        raise missing(f"{where}.schema")
    if named.get("strict"):
        check_strict(schema, f"Invalid schema for {path.rsplit('.')[0]} '{name}'", path)
    return True


def check_strict(schema: Mapping[str, object], beginning: str, param: str) -> None:
    """A strict schema forbids other properties and requires all of its own."""
    properties = schema.get("properties", {})
    required = schema.get("required", [])
    trouble = ""
    if schema.get("additionalProperties") is not False:
        trouble = "'additionalProperties' is required to be supplied and to be false."
    elif isinstance(properties, dict) and isinstance(required, list):
        lacking = [name for name in properties if name not in required]
        if lacking:
            trouble = (
                "'required' is required to be supplied and to be an array including every key in properties. "
                f"Missing '{lacking[0]}'."
            )
    if trouble:
        raise Refused(f"{beginning}: In context=(), {trouble}", param=param, code="invalid_json_schema")


def _function(tool: object, path: str, *, nested: bool) -> Mapping[str, object]:
    if not isinstance(tool, dict) or tool.get("type") != "function":
        raise wrong_type(path, "an object with type 'function' and a function" if nested else "a function tool")
    function = tool.get("function") if nested else tool
    if not isinstance(function, dict):
        raise wrong_type(path, "an object with type 'function' and a function")
    outside = [key for key in tool if key not in ("type", "function")] if nested else []
    inside = [key for key in function if key not in _TOOL_KEYS and (nested or key != "type")]
    for key in (*outside, *inside):
        raise unknown(f"{path}.{key}")
    return function
