"""What both protocols' readers need: JSON values of unknown type, narrowed or refused."""

from collections.abc import Mapping

import orjson

from agents.simulated.conversation import Tool
from agents.simulated.errors import Refused


def encode(value: object) -> bytes:
    """The bytes that count and are hashed: compact JSON in the key order that was sent."""
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError:
        raise Refused("The request body is nested too deeply.") from None


def whole(value: object) -> int | None:
    """`value` when it is a whole number, None when not (true and false are none)."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def text_parameter(schema: Mapping[str, object]) -> str:
    """The tool parameter that a single text goes into: the first required one, else the first there is."""
    required = schema.get("required")
    if isinstance(required, list) and required and isinstance(required[0], str):
        return required[0]
    properties = schema.get("properties")
    if isinstance(properties, dict) and properties:
        return str(next(iter(properties)))
    return "input"


def tool_of(name: str, description: object, schema: Mapping[str, object]) -> Tool:
    return Tool(name, description if isinstance(description, str) else "", text_parameter(schema))
