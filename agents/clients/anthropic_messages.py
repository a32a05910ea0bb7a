"""Anthropic's Messages API over its SDK."""

from collections.abc import Mapping, Sequence

import anthropic  # noqa: TID253  (loaded by `connect`, when a model of this protocol is hired)
import httpx2  # noqa: TID253
import orjson

from agents.clients import NATIVE_IDLE, ClientOptions, Reply, ToolResult
from agents.clients.anthropic_answer import AnthropicAnswer
from agents.clients.caching import caching_of
from agents.clients.endpoint import Endpoint
from agents.clients.ping import ping_of
from agents.clients.request import Settings, begin, filled
from agents.lane import Lane, Message
from agents.registry import ModelEntry
from agents.tools import Tool, with_nonce
from agents.transport.call import CurrentCall
from agents.transport.surroundings import TIMEOUT
from agents.wire_text import wire_text


class AnthropicMessages:
    flavour = "anthropic_messages"
    idle = NATIVE_IDLE

    def __init__(self, entry: ModelEntry, key: str, options: ClientOptions, http: httpx2.AsyncClient) -> None:
        self._entry, self._options = entry, options
        sdk = anthropic.AsyncAnthropic(
            api_key=key,
            base_url=entry.base_url,
            http_client=http,
            max_retries=0,
            timeout=TIMEOUT,
            # Else its environment variables could have traces made, and told to the provider.
            open_telemetry=False,
        )
        stream = anthropic.AsyncStream[object]
        self._endpoint = Endpoint(sdk, stream, anthropic.AnthropicError, entry=entry, key=key, path="/v1/messages")
        self._caching = caching_of(entry, options.lifetime, options.cache_key)

    @property
    def least_output(self) -> int:
        """0 fills the cache and says nothing. Whether a request that thinks or answers by a schema may ask for that is
        not stated."""
        return 1 if self._entry.actions == "json_schema" or "thinking" in self._entry.extra_body else 0

    def open_lane(
        self, name: str, system: str, tools: Sequence[Tool], nonce: str, *, schema: Mapping[str, object] | None = None
    ) -> Lane:
        system_blocks = [{"type": "text", "text": system}]
        head: Message = {"tools": self.tool_schemas(tools), "system": system_blocks}
        noted = orjson.dumps(self.tool_schemas(with_nonce(tools, nonce)))
        told = b'"tools":' + noted + b"," if tools else b""
        text_block = orjson.dumps({"type": "text", "text": f"[run {nonce}]\n{system}"})
        marked = text_block[:-1] + self._caching.mark + b"}"
        return Lane.open(name, head, self._settings(schema) + told + b'"system":[' + marked + b'],"messages":[')

    def _settings(self, schema: Mapping[str, object] | None) -> bytes:
        options = self._options
        settings: Settings = {
            "model": self._entry.model,
            "max_tokens": options.max_output_tokens,
            "stream": True,
            **self._caching.settings,
        }
        if options.temperature is not None:
            settings["temperature"] = options.temperature
        output: Message = {} if options.effort is None else {"effort": options.effort}
        if schema is not None:
            output["format"] = {"type": "json_schema", "schema": schema}
        if output:
            settings["output_config"] = output
        return begin(settings, self._entry.extra_body)

    def tool_schemas(self, tools: Sequence[Tool]) -> list[Message]:
        return [{"name": t.name, "description": t.description, "input_schema": t.schema} for t in tools]

    def user(self, text: str) -> Message:
        return {"role": "user", "content": [{"type": "text", "text": filled(wire_text(text))}]}

    def results(self, results: Sequence[ToolResult]) -> list[Message]:
        blocks = []
        for result in results:
            block: Message = {"type": "tool_result", "tool_use_id": result.call_id, "content": wire_text(result.text)}
            if result.failed:
                block["is_error"] = True
            blocks.append(block)
        return [{"role": "user", "content": blocks}]

    def render(self, lane: Lane) -> bytes:
        return self._body(lane, self._caching.marked(lane))

    def _body(self, lane: Lane, messages: Sequence[bytes]) -> bytes:
        return b"".join((lane.wire_head, b",".join(messages), b"]}"))

    async def ask(self, lane: Lane, call: CurrentCall) -> Reply:
        return await self._endpoint.ask(self.render(lane), AnthropicAnswer(), call)

    async def ping(self, lane: Lane, call: CurrentCall) -> None:
        body = self._body(lane, self._caching.marked(lane)[: lane.asked])
        await self._endpoint.ping(ping_of(body, "max_tokens", self.least_output), call)
