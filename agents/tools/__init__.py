"""What a model may call: `bash`, and the hand-overs of its role."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from agents.handover import HandoverTool


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool with one required string, named `parameter`. How it looks on the wire is the client's business."""

    name: str
    description: str
    parameter: str
    parameter_description: str

    @property
    def schema(self) -> dict[str, object]:
        """The JSON Schema of its arguments."""
        return {
            "type": "object",
            "properties": {self.parameter: {"type": "string", "description": self.parameter_description}},
            "required": [self.parameter],
            "additionalProperties": False,
        }

    def argument(self, arguments: Mapping[str, object] | None) -> str | None:
        """The one string; None when it is not there. Further arguments are overlooked."""
        value = None if arguments is None else arguments.get(self.parameter)
        return value if isinstance(value, str) else None


def handover_tool(design: HandoverTool) -> Tool:
    return Tool(design.name, design.description, design.parameter, design.parameter_description)


def with_nonce(tools: Sequence[Tool], nonce: str) -> list[Tool]:
    """The tools as they are sent: the nonce at the head of the first description, which is the head of the prefix."""
    return [replace(tool, description=f"[run {nonce}] {tool.description}") for tool in tools[:1]] + list(tools[1:])
