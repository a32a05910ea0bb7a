"""What a topology's roles and parameters are, in words: for people, and as JSON."""

import re
from typing import Any

from topologies.contract import Topology

Described = dict[str, Any]


def describe(topology: Topology) -> Described:
    """JSON-able: name, place, summary, roles with tools and hand-overs, parameters with type, default and meaning."""
    return {
        "name": topology.name,
        "place": "built in" if topology.home is None else topology.home.place,
        "summary": topology.summary,
        "roles": [
            {
                "name": role.name,
                "prompt": role.prompt,
                "tools": list(role.tools),
                "handovers": [
                    {"name": each.name, "to_role": each.to_role, "description": each.description}
                    for each in role.handovers
                ],
            }
            for role in topology.roles
        ],
        "parameters": _parameters(topology),
    }


def _parameters(topology: Topology) -> list[Described]:
    whole = topology.parameters.model_json_schema()
    defaults = topology.parameters().model_dump(mode="json", by_alias=True)
    told = _told(topology)
    return [
        {
            "name": name,
            "type": _kind(schema, whole.get("$defs", {})),
            "default": defaults[name],
            "meaning": " ".join((schema.get("description") or told.get(name, "")).split()),
        }
        for name, schema in whole.get("properties", {}).items()
    ]


def _told(topology: Topology) -> dict[str, str]:
    """Of each parameter, what the form's docstring says behind its name: "`rounds`: how often ..."."""
    text = topology.parameters.__doc__ or ""
    names = "|".join(re.escape(name) for name in topology.parameters.model_fields)
    if not names:
        return {}
    parts = re.split(rf"(?:^|(?<=\s))`({names})`: ", text)
    return {name: meaning.split("\n\n")[0] for name, meaning in zip(parts[1::2], parts[2::2], strict=True)}


def _kind(schema: Described, definitions: Described) -> str:
    """ "integer, 1 to 20", "full | digest | fresh" """
    if "$ref" in schema:
        schema = definitions.get(str(schema["$ref"]).rpartition("/")[2], {})
    if "enum" in schema:
        return " | ".join(map(str, schema["enum"]))
    if "const" in schema:
        return str(schema["const"])
    if "anyOf" in schema:
        return " or ".join(_kind(part, definitions) for part in schema["anyOf"])
    kind = str(schema.get("type", "anything"))
    return {"null": "nothing"}.get(kind, kind) + _bounds(schema)


def _bounds(schema: Described) -> str:
    least = _bound(schema, "minimum", "exclusiveMinimum", "more than")
    most = _bound(schema, "maximum", "exclusiveMaximum", "less than")
    if least and most and "than" not in least + most:
        return f", {least} to {most}"
    if least and "than" not in least:
        least = f"at least {least}"
    if most and "than" not in most:
        most = f"at most {most}"
    return "".join(f", {bound}" for bound in (least, most) if bound)


def _bound(schema: Described, inclusive: str, exclusive: str, word: str) -> str:
    if inclusive in schema:
        return str(schema[inclusive])
    return f"{word} {schema[exclusive]}" if exclusive in schema else ""
