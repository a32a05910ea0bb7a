"""Reads an answer of the Messages API from the events of its stream."""

from collections.abc import Mapping

from agents.clients import Ending, Reply, ToolCall
from agents.clients.events import Fragments, encodable, json_object, mapping, text
from agents.lane import Message
from agents.wire_text import wire_text

_ENDINGS: Mapping[str, Ending] = {
    "max_tokens": "max_tokens",
    "refusal": "refusal",
    "model_context_window_exceeded": "context_full",
    "pause_turn": "paused",
}
_THINKING = ("thinking", "redacted_thinking")


class AnthropicAnswer:
    """Puts content blocks together; events, blocks and deltas that it does not know are kept as they came, so that
    they can go back. `ended`: the terminal event has come."""

    def __init__(self) -> None:
        self.ended = False
        self._blocks: dict[int, dict[str, object]] = {}
        self._whole: set[int] = set()
        self._fields: dict[int, dict[str, None]] = {}
        self._pieces = Fragments()
        self._stop_reason = ""

    def add(self, event: Mapping[str, object]) -> None:
        """Raises TryFailed when the answer grows beyond all reason."""
        kind, index = event.get("type"), event.get("index")
        if kind == "content_block_delta" and isinstance(index, int):
            self._add_delta(index, mapping(event.get("delta")))
        elif kind == "content_block_start" and isinstance(index, int):
            if index not in self._blocks:
                self._pieces.begin_part()
            self._blocks[index] = dict(mapping(event.get("content_block")))
        elif kind == "content_block_stop" and isinstance(index, int) and index in self._blocks:
            self._whole.add(index)
        elif kind == "message_delta":
            self._stop_reason = text(mapping(event.get("delta")).get("stop_reason")) or self._stop_reason
        elif kind == "message_stop":
            self.ended = True

    def _add_delta(self, index: int, delta: Mapping[str, object]) -> None:
        for field, piece in delta.items():
            if field == "type":
                continue
            if isinstance(piece, str):
                known = self._fields.setdefault(index, {})
                if field not in known:
                    self._pieces.begin_part()
                    known[field] = None
                self._pieces.add((index, field), piece)
            elif field == "citation" and index in self._blocks:
                self._pieces.begin_part()
                given = self._blocks[index].get("citations")
                if not isinstance(given, list):
                    given = self._blocks[index]["citations"] = []
                given.append(piece)

    def reply(self, tool_seconds: float) -> Reply:
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
                    self._keep(content, {**block, "text": said}, {"type": "text", "text": said})
            elif kind == "tool_use":
                call = self._tool_call(index, block)
                calls.append(call)
                bare: Message = {"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments or {}}
                self._keep(content, {**block, **bare}, bare)
            elif kind != "thinking" or index in self._whole:
                # Thinking that was cut has no signature, and nothing else may be made of it.
                self._keep(content, self._as_it_came(index, block))
        while content and content[-1].get("type") in _THINKING:
            # A message that ends in thinking is refused when it comes back.
            content.pop()
        return Reply(
            text="".join(words),
            tool_calls=tuple(calls),
            message={"role": "assistant", "content": content} if content else None,
            finish_reason=self._stop_reason,
            ending=_ENDINGS.get(self._stop_reason, "done"),
            tool_seconds=tool_seconds,
        )

    def _keep(self, content: list[Message], *shapes: Message) -> None:
        """The first of the shapes that can be sent back, without what is null in it."""
        for shape in shapes:
            kept = {name: value for name, value in shape.items() if value is not None}
            if encodable(kept):
                content.append(kept)
                return

    def _as_it_came(self, index: int, block: Message) -> Message:
        for field in self._fields.get(index, ()):
            piece = self._pieces.whole((index, field))
            if field == "partial_json":
                block["input"] = json_object(piece) or block.get("input") or {}
            else:
                block[field] = text(block.get(field)) + piece
        return block

    def _tool_call(self, index: int, block: Mapping[str, object]) -> ToolCall:
        raw = wire_text(self._pieces.whole((index, "partial_json")))
        given = block.get("input")
        arguments = json_object(raw) if raw else given if isinstance(given, dict) and encodable(given) else None
        return ToolCall(wire_text(text(block.get("id"))), wire_text(text(block.get("name"))), arguments, raw)
