"""Reads from an answer's bytes, as they pass, what the books need: the usage, names, the reason of its end.

Most lines of a stream are fragments of text: they are searched for a few words and never parsed. Memory
is bounded: a line longer than `LINE_LIMIT` is not kept, a body longer than `BODY_LIMIT` is not kept.
"""

import re
from collections.abc import Mapping

import orjson

LINE_LIMIT = 4 << 20
BODY_LIMIT = 8 << 20
_NESTING = 8

_TELLING = re.compile(rb'"usage"\s*:\s*\{|"(?:finish|stop)_reason"\s*:\s*"|"message_stop"|"error"\s*:\s*[{"]|\[DONE\]')


class AnswerReader:
    """Fed with every chunk of one body, in any cut.

    `usage`: the raw usage object, every field's last non-null value (null when it was never more than that); None when
    none came. `terminal`: the protocol's last event came, or the whole of a JSON body was read. `error`: the provider's
    words when it reported an error.
    """

    def __init__(self, *, streamed: bool) -> None:
        self.usage: dict[str, object] | None = None
        self.response_id: str | None = None
        self.response_model: str | None = None
        self.finish_reason: str | None = None
        self.terminal = False
        self.error: str | None = None
        self._streamed = streamed
        self._kept = bytearray()
        self._skipping = False
        self._named = False

    def feed(self, chunk: bytes) -> None:
        if not self._streamed:
            self._keep(chunk, BODY_LIMIT)
            return
        if self._named and not self._kept and not self._skipping and chunk.endswith(b"\n") and not _telling(chunk):
            return
        # CR and CRLF end a line too; the empty lines that this makes say nothing to us.
        lines = (chunk.replace(b"\r", b"\n") if b"\r" in chunk else chunk).split(b"\n")
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
        elif not self._skipping:
            body = _parse(self._kept)
            self.terminal = body is not None
            if body is not None:
                self._event(body)

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

    def _take_kept(self) -> None:
        if not self._skipping and self._kept:
            self._line(bytes(self._kept))
        self._kept.clear()
        self._skipping = False

    def _line(self, line: bytes) -> None:
        if not line.startswith(b"data:") or (self._named and not _telling(line)):
            return
        payload = line[5:].strip()
        if payload == b"[DONE]":
            self.terminal = True
            return
        event = _parse(payload)
        if event is not None:
            self._event(event)

    def _event(self, event: Mapping[str, object]) -> None:
        """Both protocols at once: their field names do not collide."""
        message = _mapping(event.get("message"))
        choices = event.get("choices")
        choice = _mapping(choices[0]) if isinstance(choices, list) and choices else {}
        for usage in (message.get("usage"), choice.get("usage"), event.get("usage")):
            if isinstance(usage, dict):
                self.usage = {} if self.usage is None else self.usage
                _lay_over(self.usage, usage)
        named = message or event
        self.response_id = self.response_id or _short(named.get("id"))
        self.response_model = self.response_model or _short(named.get("model"))
        self._named = self._named or self.response_id is not None
        self.finish_reason = (
            _short(choice.get("finish_reason"))
            or _short(_mapping(event.get("delta")).get("stop_reason"))
            or _short(event.get("stop_reason"))
            or self.finish_reason
        )
        if event.get("type") == "message_stop":
            self.terminal = True
        error = event.get("error")
        if error and self.error is None:
            self.error = str(_mapping(error).get("message") or error)[:2000]


def _telling(line: bytes) -> bool:
    # Looking for five words is ten times as fast as the expression, and few fragments hold one of them.
    hinted = (
        b'"usage"' in line
        or b'_reason"' in line
        or b'"error"' in line
        or b'"message_stop"' in line
        or b"[DONE]" in line
    )
    return hinted and _TELLING.search(line) is not None


def _parse(text: bytes | bytearray) -> dict[str, object] | None:
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    return value if isinstance(value, dict) else None


def _lay_over(under: dict[str, object], over: Mapping[str, object], depth: int = 0) -> None:
    for key, value in over.items():
        old = under.get(key)
        if isinstance(value, dict) and depth < _NESTING:
            deeper = old if isinstance(old, dict) else {}
            under[key] = deeper
            _lay_over(deeper, value, depth + 1)
        elif value is not None or key not in under:
            under[key] = value


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


def _short(value: object) -> str | None:
    return value[:200] if isinstance(value, str) and value else None
