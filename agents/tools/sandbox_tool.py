"""What a tool that works in the sandbox is: how it looks to a model, what it does, and where."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from agents.arguments import Arguments
from agents.tools import Tool
from harbor_tasks.sandbox import Output


@dataclass(frozen=True, slots=True)
class Told:
    """What is kept of a command that a tool has composed, in place of its text: the tool, and what it was asked for.
    `digest` tells apart what `text` leaves out, `writes` says that it changes a file."""

    tool: str
    text: str
    digest: str = ""
    writes: bool = False


class Bench(Protocol):
    """Where a tool does its work: the role's own shell, on the trial's clock, with everything recorded."""

    async def run(self, command: str, told: Told | None = None) -> tuple[Output, float]:
        """The output, and the seconds after which a command is stopped. `told`: the command is a tool's own.

        Raises CommandRefused when the role's policy does not let it run, VisitEnded when time is up or the role goes
        round in circles."""


@dataclass(frozen=True, slots=True)
class SandboxTool:
    """`act` does the work and returns what the model is told of it."""

    tool: Tool
    act: Callable[[Arguments, Bench], Awaitable[str]]
