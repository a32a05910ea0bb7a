"""Reads from an answer's bytes, as they pass, what the books need: the usage, names, the reason of its end.

Most events of a stream are fragments of text: they are searched for a few words and never parsed. Memory is bounded: a
line or event longer than `LINE_LIMIT` is not kept, a body longer than `BODY_LIMIT` is not kept.
"""

import re
from collections.abc import Mapping

import orjson

from cost_model.usage.stream import lay_over

LINE_LIMIT = 4 << 20
BODY_LIMIT = 8 << 20
_LAST = ("response.completed", "response.incomplete", "response.failed")

_DEFAULT_TIERS = (None, "auto", "default")

_TELLING = re.compile(
    rb'"usage"\s*:\s*\{|"timings"\s*:\s*\{|"(?:finish|stop)_reason"\s*:\s*"|"message_stop"|"error"\s*:\s*[{"]'
    rb'|"type"\s*:\s*"error"|"response\.(?:completed|incomplete|failed)"|\[DONE\]'
)
_WORDS = (b'"usage"', b'_reason"', b'"error"', b'"message_stop"', b"[DONE]", b'"response"', b'"timings"')
"""One of these is in whatever the expression finds."""

_WHOLE_EVENTS = (b"\n\n", b"\r\n\r\n")


class AnswerReader:
    """Fed with every chunk of one body, in any cut.

    `usage`: the raw usage object, every field's last non-null value (null when it was never more than that), with what
    stands beside it: llama.cpp's counts under `timings`, a `service_tier` other than the default one. None when none
    came. Where Anthropic's `message_start` alone told the output, that it had begun, and the stream ended well without
    more, that count stands under `message_start` and `output_tokens` is missing. `terminal`: the protocol's last event
    came, or the whole of a JSON body was read. `error`: the provider's words when it reported an error.
    """

    def __init__(self, *, streamed: bool) -> None:
        self._usage: dict[str, object] | None = None
        self._output_begun = False
        self._output_told = False
        self._tier: str | None = None
        self.response_id: str | None = None
        self.response_model: str | None = None
        self.finish_reason: str | None = None
        self.terminal = False
        self.error: str | None = None
        self._streamed = streamed
        self._kept = bytearray()
        self._skipping = False
        self._named = False
        self._data: list[bytes] = []
        self._data_size = 0
        self._after_cr = False

    def feed(self, chunk: bytes) -> None:
        if not self._streamed:
            self._keep(chunk, BODY_LIMIT)
            return
        between = not (self._kept or self._skipping or self._data_size or self._after_cr)
        whole = self._named and between and chunk.endswith(_WHOLE_EVENTS)
        if whole and not _telling(chunk):
            return
        # CR and CRLF end a line too.
        if b"\r" in chunk or self._after_cr:
            chunk = self._with_newlines(chunk)
        lines = chunk.split(b"\n")
        self._keep(lines[0], LINE_LIMIT)
        if len(lines) == 1:
            return
        self._take_kept()
        for line in lines[1:-1]:
            self._line(line)
        self._keep(lines[-1], LINE_LIMIT)

    def finish(self) -> None:
        """The body is over, and whole."""
        if self._streamed:
            self._take_kept()
            self._end_event()
        elif not self._skipping:
            body = _parse(self._kept)
            self.terminal = body is not None
            if body is not None:
                self._event(body)

    @property
    def usage(self) -> dict[str, object] | None:
        if self._usage is None:
            return None
        usage = dict(self._usage)
        if self._tier not in _DEFAULT_TIERS:
            usage["service_tier"] = self._tier
        if self.terminal and self._output_begun and not self._output_told:
            usage["message_start"] = {"output_tokens": usage.pop("output_tokens")}
        return usage

    @property
    def endless_line(self) -> bool:
        """A line of a stream has passed `LINE_LIMIT`."""
        return self._streamed and self._skipping

    def head_text(self, limit: int = 2000) -> str:
        """The beginning of a body that was no stream."""
        return bytes(self._kept[:limit]).decode(errors="replace")

    def _keep(self, part: bytes, limit: int) -> None:
        if self._skipping:
            return
        self._kept += part
        if len(self._kept) > limit:
            self._skipping = True
            del self._kept[2000:]

    def _with_newlines(self, chunk: bytes) -> bytes:
        """Every line ended by LF alone, though a chunk may end between CR and LF."""
        if self._after_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]
            self._after_cr = False
        if chunk:
            self._after_cr = chunk.endswith(b"\r")
        return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _take_kept(self) -> None:
        # A line that was skipped is none, and no end of an event either.
        if not self._skipping:
            self._line(bytes(self._kept))
        self._kept.clear()
        self._skipping = False

    def _line(self, line: bytes) -> None:
        if not line:
            if self._data_size:
                self._end_event()
            return
        if not line.startswith(b"data:"):
            return
        payload = line[5:].strip()
        if payload == b"[DONE]":
            self.terminal = True
            return
        self._data_size += len(payload)
        if self._data_size > LINE_LIMIT:
            self._data.clear()
            return
        self._data.append(payload)

    def _end_event(self) -> None:
        """An event's data may stand on several lines."""
        lines, self._data = self._data, []
        self._data_size = 0
        whole = b"\n".join(lines)
        if not whole or (self._named and not _telling(whole)):
            return
        event = _parse(whole)
        if event is not None:
            self._event(event)
        elif len(lines) > 1:
            # A server that leaves the empty lines between its events out.
            for line in lines:
                event = _parse(line)
                if event is not None:
                    self._event(event)

    def _event(self, event: Mapping[str, object]) -> None:
        """All protocols at once: their field names do not collide."""
        message, response = _mapping(event.get("message")), _mapping(event.get("response"))
        choices = event.get("choices")
        choice = _mapping(choices[0]) if isinstance(choices, list) and choices else {}
        for usage in (message.get("usage"), response.get("usage"), choice.get("usage"), event.get("usage")):
            if isinstance(usage, dict):
                self._lay(usage)
                if usage.get("output_tokens") is not None:
                    begun = usage is message.get("usage")
                    self._output_begun, self._output_told = self._output_begun or begun, self._output_told or not begun
        if isinstance(timings := event.get("timings"), dict):
            self._lay({"timings": timings})
        self._tier = _short(response.get("service_tier")) or _short(event.get("service_tier")) or self._tier
        named = message or response or event
        self.response_id = self.response_id or _short(named.get("id"))
        self.response_model = self.response_model or _short(named.get("model"))
        self._named = self._named or self.response_id is not None
        self.finish_reason = (
            _short(choice.get("finish_reason"))
            or _short(_mapping(event.get("delta")).get("stop_reason"))
            or _short(event.get("stop_reason"))
            or self.finish_reason
        )
        kind = event.get("type")
        if kind == "message_stop":
            self.terminal = True
        body = response if kind in _LAST else event if event.get("object") == "response" else None
        if body is not None:
            self._response_ended(body)
        error = event.get("error") or (event.get("message") or event.get("code") if kind == "error" else None)
        if error and self.error is None:
            self.error = str(_mapping(error).get("message") or error)[:2000]

    def _lay(self, usage: Mapping[str, object]) -> None:
        self._usage = {} if self._usage is None else self._usage
        lay_over(self._usage, usage)

    def _response_ended(self, response: Mapping[str, object]) -> None:
        """A Responses object with its status; the reason of its end is the status unless there is a closer one."""
        self.terminal = True
        status = _short(response.get("status"))
        error = _mapping(response.get("error"))
        self.finish_reason = (
            _short(_mapping(response.get("incomplete_details")).get("reason")) or _short(error.get("code")) or status
        )
        if status == "failed" and self.error is None:
            self.error = str(error.get("message") or error.get("code") or "the provider failed")[:2000]


def _telling(line: bytes) -> bool:
    # Looking for a few words is ten times as fast as the expression, and few fragments hold one that is not null.
    for word in _WORDS:
        at = line.find(word)
        while at >= 0:
            at += len(word)
            if not line.startswith(b":null", at):
                return _TELLING.search(line) is not None
            at = line.find(word, at)
    return False


def _parse(text: bytes | bytearray) -> dict[str, object] | None:
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    return value if isinstance(value, dict) else None


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


def _short(value: object) -> str | None:
    return value[:200] if isinstance(value, str) and value else None
