"""What a model may call: tools that work in the sandbox, and the hand-overs of its role."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from agents.arguments import Arguments, read, schema_of, text_of
from agents.handover import HandoverTool


@dataclass(frozen=True, slots=True)
class Tool:
    """How a tool looks to a model. How it looks on the wire is the client's business."""

    name: str
    description: str
    arguments: type[Arguments]

    @property
    def schema(self) -> dict[str, object]:
        """The JSON Schema of its arguments."""
        return schema_of(self.arguments)

    @property
    def text(self) -> str | None:
        """The name of its one parameter, where it takes a single text."""
        return text_of(self.arguments)

    def read(self, arguments: Mapping[str, object] | None) -> Arguments:
        """Raises agents.arguments.Unfit. Further arguments are overlooked."""
        return read(self.arguments, arguments)


def handover_tool(design: HandoverTool) -> Tool:
    return Tool(design.name, design.description, design.arguments)


def with_nonce(tools: Sequence[Tool], nonce: str) -> list[Tool]:
    """The tools as they are sent: the nonce at the head of the first description, which is the head of the prefix."""
    return [replace(tool, description=f"[run {nonce}] {tool.description}") for tool in tools[:1]] + list(tools[1:])
