"""Anthropic's Messages API over its SDK: raw bytes out, plain dicts in.

Cache marks stand at the end of tools and system, at the end of the newest user message, and at the end of the one
before it, where the previous request left its entry: three of the four that a request may carry.
"""

from collections.abc import Mapping, Sequence

import anthropic  # noqa: TID253  (loaded by `connect`, when a model of this protocol is hired)
import httpx2  # noqa: TID253
import orjson

from agents.clients import Ending, Reply, ToolCall, ToolResult
from agents.clients.events import Fragments, encodable, json_object, mapping, text
from agents.clients.failure import BAD_EVENTS, failure
from agents.errors import TryFailed
from agents.lane import Lane, Message
from agents.registry import ModelEntry
from agents.tools import Tool, with_nonce
from agents.transport.call import CALL, CurrentCall
from agents.transport.routes import TIMEOUT
from agents.wire_text import wire_text

_ENDINGS: Mapping[str, Ending] = {
    "max_tokens": "max_tokens",
    "refusal": "refusal",
    "model_context_window_exceeded": "context_full",
}
_USER = b'{"role":"user"'
_CLOSE = b"}]}"


class AnthropicMessages:
    """`lifetime` is "5m", "1h" or None for the provider's default."""

    flavour = "anthropic_messages"

    def __init__(
        self, entry: ModelEntry, key: str, lifetime: str | None, max_output_tokens: int, http: httpx2.AsyncClient
    ) -> None:
        self._key = key
        self._sdk = anthropic.AsyncAnthropic(
            api_key=key, base_url=entry.base_url, http_client=http, max_retries=0, timeout=TIMEOUT
        )
        # Absolute: the SDK would put a relative address together, and parse it, anew for every call.
        self._url = f"{entry.base_url}/v1/messages"
        settings = {"model": entry.model, "max_tokens": max_output_tokens, "stream": True}
        self._start = orjson.dumps(settings)[:-1] + b","
        mark: Message = {"type": "ephemeral"}
        if lifetime == "1h":
            mark["ttl"] = "1h"
        self._mark = b',"cache_control":' + orjson.dumps(mark)

    def open_lane(self, name: str, system: str, tools: Sequence[Tool], nonce: str) -> Lane:
        head: Message = {"tools": self.tool_schemas(tools), "system": [{"type": "text", "text": system}]}
        noted = self.tool_schemas(with_nonce(tools, nonce))
        text_block = orjson.dumps({"type": "text", "text": f"[run {nonce}]\n{system}"})
        wire_head = b'"tools":' + orjson.dumps(noted) + b',"system":[' + text_block[:-1] + self._mark + b"}]"
        return Lane.open(name, head, wire_head)

    def tool_schemas(self, tools: Sequence[Tool]) -> list[Message]:
        return [{"name": t.name, "description": t.description, "input_schema": t.schema} for t in tools]

    def user(self, text: str) -> Message:
        return {"role": "user", "content": [{"type": "text", "text": wire_text(text)}]}

    def results(self, results: Sequence[ToolResult]) -> list[Message]:
        blocks = []
        for result in results:
            block: Message = {"type": "tool_result", "tool_use_id": result.call_id, "content": wire_text(result.text)}
            if result.failed:
                block["is_error"] = True
            blocks.append(block)
        return [{"role": "user", "content": blocks}]

    def render(self, lane: Lane) -> bytes:
        messages = lane.messages.copy()
        marks = 2
        for index in range(len(messages) - 1, -1, -1):
            if messages[index].startswith(_USER) and messages[index].endswith(_CLOSE):
                messages[index] = messages[index][: -len(_CLOSE)] + self._mark + _CLOSE
                marks -= 1
                if not marks:
                    break
        return b"".join((self._start, lane.wire_head, b',"messages":[', b",".join(messages), b"]}"))

    async def ask(self, lane: Lane, call: CurrentCall) -> Reply:
        answer = _Answer()
        token = CALL.set(call)
        try:
            stream = await self._sdk.post(
                self._url,
                content=self.render(lane),
                cast_to=object,
                stream=True,
                stream_cls=anthropic.AsyncStream[object],
                options={"headers": {"Content-Type": "application/json"}},
            )
            async with stream:
                async for event in stream:
                    answer.add(mapping(event))
            return answer.reply(call.tool_seconds)
        except (anthropic.AnthropicError, httpx2.HTTPError, TryFailed, *BAD_EVENTS) as error:
            raise failure(error, call, self._key) from error
        finally:
            CALL.reset(token)


class _Answer:
    """Puts content blocks together from a stream's events; events and blocks that it does not know are let pass."""

    def __init__(self) -> None:
        self._blocks: dict[int, dict[str, object]] = {}
        self._pieces = Fragments()
        self._stop_reason = ""
        self._stopped = False

    def add(self, event: Mapping[str, object]) -> None:
        kind, index = event.get("type"), event.get("index")
        if kind == "content_block_start" and isinstance(index, int):
            self._blocks[index] = dict(mapping(event.get("content_block")))
        elif kind == "content_block_delta" and isinstance(index, int):
            delta = mapping(event.get("delta"))
            for field in ("text", "partial_json", "thinking", "signature"):
                if field in delta:
                    self._pieces.add((index, field), text(delta[field]))
        elif kind == "message_delta":
            self._stop_reason = text(mapping(event.get("delta")).get("stop_reason")) or self._stop_reason
        elif kind == "message_stop":
            self._stopped = True

    def reply(self, tool_seconds: float) -> Reply:
        """Raises TryFailed when the stream ended before its terminal event."""
        if not self._stopped:
            raise TryFailed("the answer ended before its terminal event")
        content: list[Message] = []
        calls: list[ToolCall] = []
        words: list[str] = []
        for index, block in sorted(self._blocks.items()):
            kind = block.get("type")
            if kind == "text":
                said = wire_text(text(block.get("text")) + self._pieces.whole((index, "text")))
                words.append(said)
                # Blank text is refused when it comes back.
                if said.strip():
                    content.append({"type": "text", "text": said})
            elif kind == "tool_use":
                call = self._tool_call(index, block)
                calls.append(call)
                content.append({"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments or {}})
            else:
                for field in ("thinking", "signature"):
                    piece = self._pieces.whole((index, field))
                    if piece:
                        block[field] = text(block.get(field)) + piece
                if encodable(block):
                    content.append(block)
        return Reply(
            text="".join(words),
            tool_calls=tuple(calls),
            message={"role": "assistant", "content": content} if content else None,
            finish_reason=self._stop_reason,
            ending=_ENDINGS.get(self._stop_reason, "done"),
            tool_seconds=tool_seconds,
        )

    def _tool_call(self, index: int, block: Mapping[str, object]) -> ToolCall:
        raw = wire_text(self._pieces.whole((index, "partial_json")))
        given = block.get("input")
        arguments = json_object(raw) if raw else given if isinstance(given, dict) and encodable(given) else None
        return ToolCall(wire_text(text(block.get("id"))), wire_text(text(block.get("name"))), arguments, raw)
