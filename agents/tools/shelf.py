"""The tools that work in the sandbox, by the names that topologies and experiments give a role."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

from agents.arguments import Arguments
from agents.tools import Tool
from agents.tools.bash import BASH, bash_result
from harbor_tasks.sandbox import Output


class Bench(Protocol):
    """Where a tool does its work: the role's own shell, on the trial's clock, with everything recorded."""

    async def run(self, command: str) -> tuple[Output, float]:
        """The output, and the seconds after which a command is stopped. Raises VisitEnded when time is up or the role
        goes round in circles."""


@dataclass(frozen=True, slots=True)
class SandboxTool:
    """`act` does the work and returns what the model is told of it."""

    tool: Tool
    act: Callable[[Arguments, Bench], Awaitable[str]]


async def _bash(arguments: Arguments, bench: Bench) -> str:
    output, timeout_s = await bench.run(str(getattr(arguments, "command")))  # noqa: B009  (a computed field)
    return bash_result(output, timeout_s)


SHELF: Mapping[str, SandboxTool] = MappingProxyType({one.tool.name: one for one in (SandboxTool(BASH, _bash),)})
