"""Reads an answer of a Chat Completions API from the chunks of its stream."""

from collections.abc import Mapping

from agents.clients import Ending, Reply, ToolCall
from agents.clients.events import Fragments, encodable, json_object, mapping, mappings, text
from agents.errors import TryFailed
from agents.lane import Message
from agents.registry import ModelEntry
from agents.wire_text import wire_text

_OF_A_CALL = frozenset(("index", "id", "type", "function"))
_THOUGHTS = ("reasoning_content", "reasoning", "reasoning_details")
_NOT_SENT_BACK = frozenset(
    ("role", "content", "refusal", "tool_calls", "function_call", "audio", "images", "annotations", "citations")
)
"""What a delta may hold that is read above all, or that only ever goes from the provider to us."""

_ENDINGS: Mapping[str, Ending] = {
    "length": "max_tokens",
    "content_filter": "refusal",
    "sensitive": "refusal",
    "refusal": "refusal",
    "model_length": "context_full",
    "model_context_window_exceeded": "context_full",
}
_BROKEN = frozenset(("error", "abort", "network_error", "insufficient_system_resource"))
"""Reasons that say that the provider failed midway."""


_IN_PIECES = ("text", "summary", "thinking")


class _Items:
    """A field whose items come in fragments, as `reasoning_details` do: the fragments of one item have one type and one
    index, and without an index they follow each other."""

    def __init__(self, pieces: Fragments, field: str) -> None:
        self._pieces, self._field = pieces, field
        self._items: list[dict[str, object]] = []
        self._latest: dict[tuple[str, str], int] = {}

    def add(self, item: Mapping[str, object]) -> None:
        """Raises TryFailed when the answer grows beyond all reason."""
        name = (repr(item.get("type")), repr(item.get("index")))
        last = len(self._items) - 1
        position = self._latest.get(name, -1)
        if position < 0 or "data" in item or (item.get("index") is None and position != last):
            self._pieces.begin_part()
            position = self._latest[name] = last + 1
            self._items.append(dict(item))
        kept = self._items[position]
        for field, value in item.items():
            if field in _IN_PIECES and isinstance(value, str):
                self._pieces.add((self._field, position, field), value)
                kept[field] = ""
            elif value is not None:
                kept[field] = value

    def whole(self) -> list[dict[str, object]]:
        return [
            {
                field: wire_text(self._pieces.whole((self._field, position, field)))
                if field in _IN_PIECES and value == ""
                else value
                for field, value in item.items()
            }
            for position, item in enumerate(self._items)
        ]


class ChatAnswer:
    """Puts the message together. What a provider adds to a message or to a call is kept, and goes back with it: some
    refuse a request without their signatures. `entry.reasoning` decides over what the model thought."""

    def __init__(self, entry: ModelEntry) -> None:
        self._dropped = frozenset(_THOUGHTS) if entry.reasoning == "drop" else frozenset[str]()
        self._pieces = Fragments()
        self._calls: list[dict[str, object]] = []
        self._by_index: dict[int, int] = {}
        self._added: dict[str, object] = {}
        self._finish_reason = ""

    @property
    def ended(self) -> bool:
        return bool(self._finish_reason)

    def add(self, chunk: Mapping[str, object]) -> None:
        """Raises TryFailed when the answer grows beyond all reason."""
        for choice in mappings(chunk.get("choices")):
            if choice.get("index", 0) != 0:
                continue
            for field, value in mapping(choice.get("delta")).items():
                if field == "content":
                    self._add_content(value)
                elif field == "tool_calls":
                    for fragment in mappings(value):
                        self._add_tool_call(fragment)
                elif field == "refusal":
                    self._pieces.add(field, text(value))
                elif value is not None and field not in _NOT_SENT_BACK and field not in self._dropped:
                    self._add_field(field, value)
            self._finish_reason = text(choice.get("finish_reason")) or self._finish_reason

    def _add_content(self, value: object) -> None:
        if isinstance(value, str):
            self._pieces.add("content", value)
        for part in mappings(value):
            # Mistral's reasoning models speak in parts.
            if part.get("type") == "text":
                self._pieces.add("content", text(part.get("text")))
            elif part.get("type") == "thinking":
                for thought in mappings(part.get("thinking")):
                    self._pieces.add("thinking", text(thought.get("text")))

    def _add_field(self, field: str, value: object) -> None:
        if field not in self._added:
            self._pieces.begin_part()
        if isinstance(value, str):
            self._added.setdefault(field, "")
            self._pieces.add(("added", field), value)
        elif isinstance(value, list):
            items = self._added.setdefault(field, _Items(self._pieces, field))
            for item in mappings(value):
                if isinstance(items, _Items):
                    items.add(item)
        else:
            self._added[field] = value

    def _add_tool_call(self, fragment: Mapping[str, object]) -> None:
        position = self._position(fragment)
        call, function = self._calls[position], mapping(fragment.get("function"))
        if not call["id"]:
            call["id"] = text(fragment.get("id"))
        for field, value in function.items():
            if field == "arguments" or field == "name":
                self._pieces.add((position, field), text(value))
        if not _OF_A_CALL.issuperset(fragment):
            call.update({k: v for k, v in fragment.items() if v is not None and k not in _OF_A_CALL})

    def _position(self, fragment: Mapping[str, object]) -> int:
        """By `index`; a server that leaves it out, or gives all calls the same, tells a new call by its id."""
        index, known, call_id = fragment.get("index"), len(self._calls), fragment.get("id")
        if isinstance(index, int):
            position = self._by_index.get(index, known)
            if position < known and not call_id:
                return position
            named = mapping(fragment.get("function")).get("name")
            if position < known and named and self._calls[position]["id"] not in ("", call_id):
                position = known
            self._by_index[index] = position
        else:
            position = known if call_id or not known else known - 1
        if position == known:
            self._pieces.begin_part()
            self._calls.append({"id": ""})
        return position

    def reply(self, tool_seconds: float) -> Reply:
        """Raises TryFailed when the provider says that it failed midway."""
        if self._finish_reason in _BROKEN:
            raise TryFailed(f"the provider broke its answer off: {self._finish_reason}")
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
        return Reply(
            text=content,
            tool_calls=tuple(calls),
            message=self._message(content, sent_back) if content or sent_back else None,
            finish_reason=self._finish_reason,
            ending="refusal" if refusal else _ENDINGS.get(self._finish_reason, "done"),
            tool_seconds=tool_seconds,
        )

    def _message(self, content: str, calls: list[Message]) -> Message:
        said: object = content or None
        thinking = wire_text(self._pieces.whole("thinking"))
        if thinking and not self._dropped:
            thought = {"type": "thinking", "thinking": [{"type": "text", "text": thinking}]}
            said = [thought, *([{"type": "text", "text": content}] if content else [])]
        message: Message = {"role": "assistant", "content": said}
        for field, value in self._added.items():
            if field == "reasoning" and "reasoning_details" in self._added:
                # They say the same, and more.
                continue
            whole = value.whole() if isinstance(value, _Items) else value
            if isinstance(value, str):
                whole = wire_text(self._pieces.whole(("added", field)))
            if whole and encodable(whole):
                message[field] = whole
        if calls:
            message["tool_calls"] = calls
        return message
