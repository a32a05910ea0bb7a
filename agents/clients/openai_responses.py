"""OpenAI's Responses API without any state at the provider: the whole conversation is sent every time.

An answer is several items (reasoning, message, function calls); a lane's block holds them as `{"role", "items"}`, and
on the wire its items stand in the request's `input` one by one.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import orjson

from agents.clients import NATIVE_IDLE, ClientOptions, Reply, ToolResult
from agents.clients.caching import caching_of
from agents.clients.openai_endpoint import openai_endpoint
from agents.clients.ping import ping_of
from agents.clients.request import Settings, begin, filled
from agents.clients.responses_answer import ResponsesAnswer
from agents.lane import Lane, Message
from agents.registry import ModelEntry
from agents.tools import Tool, with_nonce
from agents.transport.call import CurrentCall
from agents.wire_text import wire_text

if TYPE_CHECKING:
    import httpx2

_ITEMS = b',"items":['


def _items(encoded: bytes) -> bytes:
    return encoded[encoded.index(_ITEMS) + len(_ITEMS) : -len(b"]}")]


class OpenAIResponses:
    """Where a cache wants breakpoints, a tool's output is one content part, which can carry one; else a string."""

    flavour = "openai_responses"
    idle = NATIVE_IDLE
    least_output = 16

    def __init__(self, entry: ModelEntry, key: str, options: ClientOptions, http: "httpx2.AsyncClient") -> None:
        self._entry, self._key, self._options = entry, key, options
        self._endpoint = openai_endpoint(entry, key, "/responses", http)
        self._caching = caching_of(entry, options.lifetime, options.cache_key)

    def open_lane(
        self, name: str, system: str, tools: Sequence[Tool], nonce: str, *, schema: Mapping[str, object] | None = None
    ) -> Lane:
        head: Message = {"tools": self.tool_schemas(tools), "system": system}
        noted = orjson.dumps(self.tool_schemas(with_nonce(tools, nonce)))
        told = b'"tools":' + noted + b"," if tools else b""
        part = {"type": "input_text", "text": f"[run {nonce}]\n{system}"}
        message = orjson.dumps({"type": "message", "role": "developer", "content": [part]})
        first = message[: -len(b"}]}")] + self._caching.mark + b"}]}"
        return Lane.open(name, head, self._settings(schema) + told + b'"input":[' + first, _items)

    def _settings(self, schema: Mapping[str, object] | None) -> bytes:
        options = self._options
        settings: Settings = {
            "model": self._entry.model,
            "max_output_tokens": options.max_output_tokens,
            "stream": True,
            "store": False,
            # Nothing is kept there, so reasoning must come and go in a form that only the provider can read.
            "include": ["reasoning.encrypted_content"],
            **self._caching.settings,
        }
        if options.temperature is not None:
            settings["temperature"] = options.temperature
        if options.effort is not None:
            settings["reasoning"] = {"effort": options.effort}
        if schema is not None:
            named = {"type": "json_schema", "name": "action", "strict": True, "schema": schema}
            settings["text"] = {"format": named}
        return begin(settings, self._entry.extra_body)

    def tool_schemas(self, tools: Sequence[Tool]) -> list[Message]:
        return [
            {
                "type": "function",
                "name": t.name,
                "description": t.description,
                "parameters": t.schema,
                # As in Chat Completions: left out it would mean true here.
                "strict": False,
            }
            for t in tools
        ]

    def user(self, text: str) -> Message:
        item = {"type": "message", "role": "user", "content": self._parts(text)}
        return {"role": "user", "items": [item]}

    def results(self, results: Sequence[ToolResult]) -> list[Message]:
        items = [
            {
                "type": "function_call_output",
                "call_id": r.call_id,
                "output": self._parts(r.text) if self._caching.mark else wire_text(r.text),
            }
            for r in results
        ]
        return [{"role": "tool", "items": items}]

    def _parts(self, text: str) -> list[Message]:
        return [{"type": "input_text", "text": filled(wire_text(text))}]

    def render(self, lane: Lane) -> bytes:
        return self._body(lane, self._caching.marked(lane))

    def _body(self, lane: Lane, messages: Sequence[bytes]) -> bytes:
        return b"".join((b",".join((lane.wire_head, *messages)), b"]}"))

    async def ask(self, lane: Lane, call: CurrentCall) -> Reply:
        return await self._endpoint.ask(self.render(lane), ResponsesAnswer(self._entry, self._key), call)

    async def ping(self, lane: Lane, call: CurrentCall) -> None:
        body = self._body(lane, self._caching.marked(lane)[: lane.asked])
        await self._endpoint.ping(ping_of(body, "max_output_tokens", self.least_output), call)
