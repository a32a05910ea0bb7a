"""The events of one stream, laid over each other: they are cumulative, so every field's last non-null value counts."""

from collections.abc import Iterator, Mapping
from typing import Literal

Kind = Literal["anthropic", "responses", "chat", "gemini", "converse", "llama_cpp"]

_ANTHROPICS = frozenset(
    {"message_start", "content_block_start", "content_block_delta", "content_block_stop", "message_delta"}
    | {"message_stop", "ping"}
)
_CONVERSES = frozenset(
    {"messageStart", "contentBlockStart", "contentBlockDelta", "contentBlockStop", "messageStop", "metadata"}
)
NESTING = 8
"""Objects inside objects of a usage that are laid over each other; deeper ones replace each other whole."""

BESIDE_USAGE = ("timings", "service_tier")
"""What stands beside a usage and bears on it."""


def kind_of(event: Mapping[str, object]) -> Kind | None:
    """The API whose stream the object is an event of, None when it is none."""
    kind = event.get("type")
    if isinstance(kind, str):
        if kind in _ANTHROPICS:
            return "anthropic"
        if kind.startswith("response."):
            return "responses"
    choices = event.get("choices")
    chunk = event.get("object") == "chat.completion.chunk"
    if chunk or (isinstance(choices, list) and any(isinstance(c, Mapping) and "delta" in c for c in choices[:8])):
        return "chat"
    if "usageMetadata" in event or "candidates" in event:
        return "gemini"
    if len(event) <= 2 and _CONVERSES & set(event):
        return "converse"
    return "llama_cpp" if isinstance(event.get("stop"), bool) and "content" in event else None


class Stream:
    """One stream, fed event by event. `usage` is None when none came: then what it cost is not known.

    `output_untold`: it broke off, or ended, before the whole of its output was counted. `heard_bytes`: the size of the
    answer's text in its events, from which an output that nobody counted may be estimated.
    `outgrown`: how many tokens were written to the cache beyond those that the start of the stream told by lifetime;
    later events tell the sum alone.
    """

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.usage: dict[str, object] | None = None
        self.model: str | None = None
        self.id: str | None = None
        self.created: object = None
        self.ended = False
        self._tier: str | None = None
        self._begun = False
        self._split_at_start = False
        self._told = False
        self._candidates = False
        self.heard_bytes = 0

    def follows(self, kind: Kind, event: Mapping[str, object]) -> bool:
        """Whether the event can belong to this stream."""
        if kind != self.kind or event.get("type") in ("message_start", "response.created") or "messageStart" in event:
            return False
        own = _text(event.get("id")) or _text(event.get("responseId"))
        if kind in ("chat", "gemini") and own is not None and self.id is not None:
            return own == self.id
        if kind == "gemini":
            # The last event of a stream may bring the counts alone.
            return self._candidates and not (self.ended and "candidates" in event)
        return not (self.ended and kind in ("llama_cpp", "converse"))

    def add(self, event: Mapping[str, object]) -> None:
        message, response = _mapping(event.get("message")), _mapping(event.get("response"))
        choices = event.get("choices")
        choice = _mapping(choices[0]) if isinstance(choices, list) and choices else {}
        metadata = _mapping(event.get("metadata"))
        for place in (message, response, choice, metadata, event):
            usage = place.get("usage", place.get("usageMetadata"))
            if isinstance(usage, Mapping):
                self._lay(usage)
                if usage.get("cache_creation") is not None:
                    self._split_at_start = place is message
                if usage.get("output_tokens") is not None:
                    self._begun = self._begun or place is message
                    self._told = self._told or place is not message
        self.heard_bytes += sum(len(text.encode(errors="replace")) for text in _texts(event, choice))
        if isinstance(timings := event.get("timings"), Mapping):
            self._lay({"timings": timings})
        self._tier = _text(response.get("service_tier")) or _text(event.get("service_tier")) or self._tier
        named = message or response or event
        self.id = self.id or _text(named.get("id")) or _text(named.get("responseId"))
        self.model = self.model or _text(named.get("model")) or _text(named.get("modelVersion"))
        self.created = named.get("created", named.get("created_at", self.created))
        candidates = event.get("candidates")
        self._candidates = self._candidates or candidates is not None
        finished = isinstance(candidates, list) and any(_mapping(c).get("finishReason") for c in candidates[:8])
        self.ended = self.ended or finished or event.get("stop") is True or bool(metadata)

    def whole_usage(self) -> dict[str, object] | None:
        """The usage as the readers of this package take it."""
        if self.usage is None:
            return None
        usage = dict(self.usage)
        if self._tier is not None:
            usage.setdefault("service_tier", self._tier)
        if self._begun and not self._told:
            usage["message_start"] = {"output_tokens": usage.pop("output_tokens")}
        if self.outgrown:
            start = _mapping(usage.get("message_start"))
            usage["message_start"] = {**start, "cache_creation": usage.pop("cache_creation")}
        return usage

    @property
    def outgrown(self) -> int:
        split = _mapping((self.usage or {}).get("cache_creation"))
        told = [count for count in split.values() if type(count) is int]
        written = (self.usage or {}).get("cache_creation_input_tokens")
        if not self._split_at_start or not told or type(written) is not int:
            return 0
        return max(written - sum(told), 0)

    @property
    def output_untold(self) -> bool:
        """Gemini counts as it goes: a stream without its reason to finish was cut, and its last count is too low."""
        return self._candidates and self.usage is not None and not self.ended

    def _lay(self, usage: Mapping[str, object]) -> None:
        self.usage = {} if self.usage is None else self.usage
        lay_over(self.usage, usage)


def _texts(event: Mapping[str, object], choice: Mapping[str, object]) -> Iterator[str]:
    """The pieces of the answer in one event: text, thinking, and the arguments of tool calls."""
    delta = event.get("delta")
    if isinstance(delta, str):
        yield delta
    candidates = event.get("candidates")
    candidate = _mapping(candidates[0]) if isinstance(candidates, list) and candidates else {}
    parts = _mapping(candidate.get("content")).get("parts")
    calls = _mapping(choice.get("delta")).get("tool_calls")
    holders: list[object] = [delta, choice.get("delta"), _mapping(event.get("contentBlockDelta")).get("delta")]
    holders += parts if isinstance(parts, list) else []
    holders += [_mapping(call).get("function") for call in calls] if isinstance(calls, list) else []
    for holder in holders:
        for name in ("text", "thinking", "partial_json", "content", "reasoning_content", "arguments"):
            text = _mapping(holder).get(name)
            if isinstance(text, str):
                yield text


def lay_over(under: dict[str, object], over: Mapping[str, object], depth: int = 0) -> None:
    """Puts the non-null values of `over` into `under`, objects field by field."""
    for key, value in over.items():
        old = under.get(key)
        if isinstance(value, Mapping) and depth < NESTING:
            deeper = old if isinstance(old, dict) else {}
            under[key] = deeper
            lay_over(deeper, value, depth + 1)
        elif value is not None or key not in under:
            under[key] = value


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and 0 < len(value) <= 200 else None
