"""OpenAI's Chat Completions API, and all that are compatible with it, over the SDK: raw bytes out, plain dicts in.

Caching is the provider's own affair here: the prefix just stays the same, byte for byte.
"""

from collections.abc import Mapping, Sequence

import httpx2  # noqa: TID253  (loaded by `connect`, when a model of this protocol is hired)
import openai  # noqa: TID253
import orjson

from agents.clients import Ending, Reply, ToolCall, ToolResult
from agents.clients.events import Fragments, encodable, json_object, mapping, mappings, text
from agents.clients.failure import BAD_EVENTS, failure
from agents.errors import TryFailed
from agents.lane import Lane, Message
from agents.registry import ModelEntry
from agents.tools import Tool, with_nonce
from agents.transport.call import CALL, CurrentCall
from agents.transport.routes import TIMEOUT
from agents.wire_text import wire_text

_OF_A_CALL = frozenset(("index", "id", "type", "function"))
_ENDINGS: Mapping[str, Ending] = {"length": "max_tokens", "content_filter": "refusal"}


class OpenAIChat:
    flavour = "openai_chat"

    def __init__(self, entry: ModelEntry, key: str, max_output_tokens: int, http: httpx2.AsyncClient) -> None:
        self._key = key
        self._sdk = openai.AsyncOpenAI(
            api_key=key, base_url=entry.base_url, http_client=http, max_retries=0, timeout=TIMEOUT
        )
        if entry.provider != "openai":
            # The SDK takes these from the environment and would show them to every provider.
            self._sdk.organization = self._sdk.project = None
        # Absolute: the SDK would put a relative address together, and parse it, anew for every call.
        self._url = f"{entry.base_url}/chat/completions"
        settings = {
            "model": entry.model,
            entry.output_limit_parameter: max_output_tokens,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        self._start = orjson.dumps(settings)[:-1] + b","

    def open_lane(self, name: str, system: str, tools: Sequence[Tool], nonce: str) -> Lane:
        head: Message = {"tools": self.tool_schemas(tools), "system": system}
        noted = self.tool_schemas(with_nonce(tools, nonce))
        message = {"role": "system", "content": f"[run {nonce}]\n{system}"}
        wire_head = b'"tools":' + orjson.dumps(noted) + b',"messages":[' + orjson.dumps(message)
        return Lane.open(name, head, wire_head)

    def tool_schemas(self, tools: Sequence[Tool]) -> list[Message]:
        return [
            {"type": "function", "function": {"name": t.name, "description": t.description, "parameters": t.schema}}
            for t in tools
        ]

    def user(self, text: str) -> Message:
        return {"role": "user", "content": wire_text(text)}

    def results(self, results: Sequence[ToolResult]) -> list[Message]:
        return [{"role": "tool", "tool_call_id": r.call_id, "content": wire_text(r.text)} for r in results]

    def render(self, lane: Lane) -> bytes:
        return b"".join((self._start, b",".join((lane.wire_head, *lane.messages)), b"]}"))

    async def ask(self, lane: Lane, call: CurrentCall) -> Reply:
        answer = _Answer()
        token = CALL.set(call)
        try:
            stream = await self._sdk.post(
                self._url,
                content=self.render(lane),
                cast_to=object,
                stream=True,
                stream_cls=openai.AsyncStream[object],
                options={"headers": {"Content-Type": "application/json"}},
            )
            async with stream:
                async for event in stream:
                    answer.add(mapping(event))
            return answer.reply(call.tool_seconds)
        except (openai.OpenAIError, httpx2.HTTPError, TryFailed, *BAD_EVENTS) as error:
            raise failure(error, call, self._key) from error
        finally:
            CALL.reset(token)


class _Answer:
    """Puts the message together from a stream's chunks; what it does not know is let pass."""

    def __init__(self) -> None:
        self._pieces = Fragments()
        self._calls: list[dict[str, object]] = []
        self._by_index: dict[int, int] = {}
        self._finish_reason = ""

    def add(self, chunk: Mapping[str, object]) -> None:
        for choice in mappings(chunk.get("choices")):
            if choice.get("index", 0) != 0:
                continue
            delta = mapping(choice.get("delta"))
            for field in ("content", "reasoning_content", "refusal"):
                if field in delta:
                    self._pieces.add(field, text(delta[field]))
            for fragment in mappings(delta.get("tool_calls")):
                self._add_tool_call(fragment)
            self._finish_reason = text(choice.get("finish_reason")) or self._finish_reason

    def _add_tool_call(self, fragment: Mapping[str, object]) -> None:
        position = self._position(fragment)
        call, function = self._calls[position], mapping(fragment.get("function"))
        if not call["id"]:
            call["id"] = text(fragment.get("id"))
        for field in ("name", "arguments"):
            if field in function:
                self._pieces.add((position, field), text(function[field]))
        # Some providers want what they added to a call back with it.
        call.update({k: v for k, v in fragment.items() if k not in _OF_A_CALL})

    def _position(self, fragment: Mapping[str, object]) -> int:
        """By `index`; a server that leaves it out tells a new call by its id."""
        index, known = fragment.get("index"), len(self._calls)
        if isinstance(index, int):
            position = self._by_index.setdefault(index, known)
        else:
            position = known if fragment.get("id") or not known else known - 1
        if position == known:
            self._calls.append({"id": ""})
        return position

    def reply(self, tool_seconds: float) -> Reply:
        """Raises TryFailed when the stream ended before the reason of its end."""
        if not self._finish_reason:
            raise TryFailed("the answer ended before its terminal event")
        content, refusal = wire_text(self._pieces.whole("content")), self._pieces.whole("refusal")
        calls: list[ToolCall] = []
        sent_back: list[Message] = []
        for position, extra in enumerate(self._calls):
            raw = wire_text(self._pieces.whole((position, "arguments")))
            name = wire_text(self._pieces.whole((position, "name")))
            call_id = wire_text(str(extra.pop("id"))) or f"call_{position}"
            # A call without arguments comes as the empty string.
            arguments = json_object(raw or "{}")
            calls.append(ToolCall(call_id, name, arguments, raw))
            kept = {k: v for k, v in extra.items() if encodable(v)}
            # Some servers parse past arguments and refuse the whole request over broken ones.
            function = {"name": name, "arguments": raw if raw and arguments is not None else "{}"}
            sent_back.append({"id": call_id, "type": "function", "function": function, **kept})
        message: Message = {"role": "assistant", "content": content or None}
        if reasoning := wire_text(self._pieces.whole("reasoning_content")):
            message["reasoning_content"] = reasoning
        if sent_back:
            message["tool_calls"] = sent_back
        ending: Ending = "refusal" if refusal else _ENDINGS.get(self._finish_reason, "done")
        return Reply(
            text=content,
            tool_calls=tuple(calls),
            message=message if content or sent_back else None,
            finish_reason=self._finish_reason,
            ending=ending,
            tool_seconds=tool_seconds,
        )
