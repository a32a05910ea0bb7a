"""Reads an answer of the Responses API from the events of its stream.

The stream tells everything twice, in pieces and then whole: the whole items are read, and the pieces let pass.
"""

from collections.abc import Mapping

from agents.clients import Ending, Reply, ToolCall
from agents.clients.events import check_parts, encodable, json_object, mapping, mappings, text
from agents.clients.failure import refused_in_stream
from agents.lane import Message
from agents.registry import ModelEntry
from agents.wire_text import wire_text

_LAST = {"response.completed": "completed", "response.incomplete": "incomplete", "response.failed": "failed"}
_ENDINGS: Mapping[str, Ending] = {
    "max_output_tokens": "max_tokens",
    "max_tokens": "max_tokens",
    "content_filter": "refusal",
    "context_length_exceeded": "context_full",
    "model_context_window_exceeded": "context_full",
}
_POLICY = ("policy", "invalid_prompt")
"""In the code of a failure that is a model's refusal: the prompt or the answer was judged."""


class ResponsesAnswer:
    """`ended`: a terminal event has come. Items of unknown kinds are kept, and go back as they came."""

    def __init__(self, entry: ModelEntry, key: str) -> None:
        self._entry, self._key = entry, key
        self._items: dict[int, Message] = {}
        self._last = ""
        self._response: Mapping[str, object] = {}

    @property
    def ended(self) -> bool:
        return bool(self._last)

    def add(self, event: Mapping[str, object]) -> None:
        """Raises TryFailed when the event says that the answer failed, or it grows beyond all reason."""
        kind = event.get("type")
        if kind == "response.output_item.done":
            index, item = event.get("output_index"), event.get("item")
            if isinstance(item, dict):
                self._items[index if isinstance(index, int) else len(self._items)] = item
                check_parts(len(self._items))
        elif kind in _LAST:
            self._last = _LAST[str(kind)]
            self._response = mapping(event.get("response"))
        elif kind == "error":
            said = mapping(event.get("error")) or event
            code = text(said.get("code")) or text(said.get("type"))
            raise refused_in_stream(code, text(said.get("message")), self._entry, self._key)

    def reply(self, tool_seconds: float) -> Reply:
        """Raises TryFailed when the answer failed, unless what failed it is a refusal."""
        reason = self._last
        if self._last == "failed":
            error = mapping(self._response.get("error"))
            reason = text(error.get("code")) or "failed"
            if not any(word in reason for word in _POLICY):
                raise refused_in_stream(reason, text(error.get("message")), self._entry, self._key)
            return Reply("", (), None, reason, "refusal", tool_seconds)
        if self._last == "incomplete":
            reason = text(mapping(self._response.get("incomplete_details")).get("reason")) or reason
        calls: list[ToolCall] = []
        kept: list[Message] = []
        words: list[str] = []
        refused = False
        for item in self._output():
            kind = item.get("type")
            if kind == "function_call":
                calls.append(self._tool_call(item))
                if calls[-1].arguments is None:
                    # Past arguments are parsed, and the whole request refused over broken ones.
                    item = {**item, "arguments": "{}"}
            elif kind == "message":
                parts = mappings(item.get("content"))
                words.append("".join(wire_text(text(part.get("text"))) for part in parts))
                refused = refused or any(part.get("type") == "refusal" for part in parts)
            elif kind == "reasoning" and not (item.get("encrypted_content") or item.get("content")):
                # A mere reference to what the provider did not keep.
                continue
            if encodable(item):
                kept.append(item)
        while kept and kept[-1].get("type") == "reasoning":
            # Reasoning without what it led to is refused when it comes back.
            kept.pop()
        return Reply(
            # Whoever begins a new message begins a new line.
            text="\n".join(words),
            tool_calls=tuple(calls),
            message={"role": "assistant", "items": kept} if kept else None,
            finish_reason=reason,
            ending="refusal" if refused else _ENDINGS.get(reason, "done"),
            tool_seconds=tool_seconds,
        )

    def _output(self) -> list[Message]:
        """In order. What came item by item goes before the summary at the end, which may lack parts of it."""
        given = self._response.get("output")
        summed = {n: item for n, item in enumerate(given if isinstance(given, list) else ()) if isinstance(item, dict)}
        check_parts(len(summed))
        return [item for _, item in sorted({**summed, **self._items}.items())]

    def _tool_call(self, item: Mapping[str, object]) -> ToolCall:
        raw = wire_text(text(item.get("arguments")))
        call_id = wire_text(text(item.get("call_id")) or text(item.get("id")))
        return ToolCall(call_id, wire_text(text(item.get("name"))), json_object(raw or "{}"), raw)
