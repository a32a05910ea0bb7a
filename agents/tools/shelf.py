"""The tools that work in the sandbox, by the names that topologies and experiments give a role."""

from collections.abc import Mapping
from types import MappingProxyType

from agents.arguments import Arguments
from agents.tools.bash import BASH, bash_result
from agents.tools.files import FILE_TOOLS
from agents.tools.sandbox_tool import Bench, SandboxTool, Told

__all__ = ["SHELF", "Bench", "SandboxTool", "Told"]


async def _bash(arguments: Arguments, bench: Bench) -> str:
    output, timeout_s = await bench.run(str(getattr(arguments, "command")))  # noqa: B009  (a computed field)
    return bash_result(output, timeout_s)


SHELF: Mapping[str, SandboxTool] = MappingProxyType(
    {one.tool.name: one for one in (SandboxTool(BASH, _bash), *FILE_TOOLS)}
)
