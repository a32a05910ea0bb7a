"""OpenAI's Chat Completions API, and all that are compatible with it."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import orjson

from agents.clients import NATIVE_IDLE, ClientOptions, Reply, ToolResult
from agents.clients.caching import caching_of
from agents.clients.chat_answer import ChatAnswer
from agents.clients.openai_endpoint import openai_endpoint
from agents.clients.ping import ping_of
from agents.clients.request import Settings, begin, filled
from agents.lane import Lane, Message
from agents.registry import ModelEntry
from agents.tools import Tool, with_nonce
from agents.transport.call import CurrentCall
from agents.wire_text import wire_text

if TYPE_CHECKING:
    import httpx2


class OpenAIChat:
    """Where a cache wants marks, a message's text is one content part, which can carry one; else it is a string."""

    flavour = "openai_chat"
    idle = NATIVE_IDLE
    least_output = 1

    def __init__(self, entry: ModelEntry, key: str, options: ClientOptions, http: "httpx2.AsyncClient") -> None:
        self._entry, self._options = entry, options
        self._endpoint = openai_endpoint(entry, key, "/chat/completions", http)
        self._caching = caching_of(entry, options.lifetime, options.cache_key)

    def open_lane(
        self, name: str, system: str, tools: Sequence[Tool], nonce: str, *, schema: Mapping[str, object] | None = None
    ) -> Lane:
        head: Message = {"tools": self.tool_schemas(tools), "system": system}
        noted = orjson.dumps(self.tool_schemas(with_nonce(tools, nonce)))
        told = b'"tools":' + noted + b"," if tools else b""
        message = {"role": "system", "content": self._content(f"[run {nonce}]\n{system}")}
        first = orjson.dumps(message)
        if mark := self._caching.mark:
            first = first[: -len(b"}]}")] + mark + b"}]}"
        return Lane.open(name, head, self._settings(schema) + told + b'"messages":[' + first)

    def _settings(self, schema: Mapping[str, object] | None) -> bytes:
        options = self._options
        settings: Settings = {
            "model": self._entry.model,
            self._entry.output_limit_parameter: options.max_output_tokens,
            "stream": True,
            "stream_options": {"include_usage": True},
            **self._caching.settings,
        }
        if options.temperature is not None:
            settings["temperature"] = options.temperature
        if options.effort is not None:
            settings["reasoning_effort"] = options.effort
        if schema is not None:
            named = {"name": "action", "strict": True, "schema": schema}
            settings["response_format"] = {"type": "json_schema", "json_schema": named}
        return begin(settings, self._entry.extra_body)

    def tool_schemas(self, tools: Sequence[Tool]) -> list[Message]:
        return [
            {"type": "function", "function": {"name": t.name, "description": t.description, "parameters": t.schema}}
            for t in tools
        ]

    def user(self, text: str) -> Message:
        return {"role": "user", "content": self._content(text)}

    def results(self, results: Sequence[ToolResult]) -> list[Message]:
        return [{"role": "tool", "tool_call_id": r.call_id, "content": self._content(r.text)} for r in results]

    def _content(self, text: str) -> object:
        text = wire_text(text)
        return [{"type": "text", "text": filled(text)}] if self._caching.mark else text

    def render(self, lane: Lane) -> bytes:
        return self._body(lane, self._caching.marked(lane))

    def _body(self, lane: Lane, messages: Sequence[bytes]) -> bytes:
        return b"".join((b",".join((lane.wire_head, *messages)), b"]}"))

    async def ask(self, lane: Lane, call: CurrentCall) -> Reply:
        return await self._endpoint.ask(self.render(lane), ChatAnswer(self._entry), call)

    async def ping(self, lane: Lane, call: CurrentCall) -> None:
        body = self._body(lane, self._caching.marked(lane)[: lane.asked])
        await self._endpoint.ping(ping_of(body, self._entry.output_limit_parameter, self.least_output), call)
