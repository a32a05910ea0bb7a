"""Any client, for a model that acts in plain text: native tools are left away, and answers are read as actions."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import orjson

from agents import actions
from agents.clients import Client, Reply, ToolCall, ToolResult
from agents.clients.events import json_object
from agents.lane import Lane, Message
from agents.tools import Tool
from agents.transport.call import CurrentCall


class TextActions:
    """Serves one role: its tools are those of the lane that was opened."""

    def __init__(self, inner: Client, protocol: actions.TextProtocol) -> None:
        self.flavour = inner.flavour
        self.idle = actions.idle(protocol)
        self._inner, self._protocol = inner, protocol
        self._tools: Sequence[Tool] = ()

    def open_lane(
        self, name: str, system: str, tools: Sequence[Tool], nonce: str, *, schema: Mapping[str, object] | None = None
    ) -> Lane:
        self._tools = tools
        if self._protocol == "json_schema":
            schema = actions.answer_schema(tools)
        told = f"{system}\n\n{actions.told(self._protocol, tools)}"
        return self._inner.open_lane(name, told, (), nonce, schema=schema)

    def tool_schemas(self, tools: Sequence[Tool]) -> list[Message]:
        return [actions.answer_schema(tools)] if self._protocol == "json_schema" else []

    def user(self, text: str) -> Message:
        return self._inner.user(text)

    def results(self, results: Sequence[ToolResult]) -> list[Message]:
        return [self._inner.user("\n\n".join(result.text for result in results))]

    def render(self, lane: Lane) -> bytes:
        return self._inner.render(lane)

    @property
    def least_output(self) -> int:
        return self._inner.least_output

    async def ping(self, lane: Lane, call: CurrentCall) -> None:
        await self._inner.ping(lane, call)

    async def ask(self, lane: Lane, call: CurrentCall) -> Reply:
        reply = await self._inner.ask(lane, call)
        match actions.read(self._protocol, reply.text, self._tools):
            case actions.Action(name, argument):
                tool = next((tool for tool in self._tools if tool.name == name), None)
                if tool is None or tool.text is not None:
                    arguments: dict[str, object] | None = {} if tool is None else {str(tool.text): argument}
                    raw = orjson.dumps(arguments).decode()
                else:
                    arguments, raw = json_object(actions.bare(argument)), argument
                action = ToolCall(f"action-{lane.blocks}", name, arguments, raw)
                return replace(reply, tool_calls=(action,))
            case actions.Unreadable(mend):
                return replace(reply, tool_calls=(), mend=mend)
        return replace(reply, tool_calls=())
