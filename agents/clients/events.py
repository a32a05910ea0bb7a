"""Safe looks into stream events: what a server sends may have any shape."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

import orjson

from agents.errors import TryFailed

ANSWER_CHARACTERS = 8_000_000
"""No model writes so much; whoever sends more is not answering."""

ANSWER_PARTS = 4_096
"""Likewise: blocks, tool calls, items, citations and fields of one answer, however small."""


def mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


def mappings(value: object) -> Sequence[Mapping[str, object]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else ()


def text(value: object) -> str:
    return value if isinstance(value, str) else ""


def encodable(value: object) -> bool:
    """Whether it can be sent back: lone surrogates and deep nesting cannot."""
    try:
        orjson.dumps(value)
    except orjson.JSONEncodeError:
        return False
    return True


def json_object(raw: str) -> dict[str, object] | None:
    """A tool call's arguments; None unless they are a JSON object that can be sent back."""
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return None
    return value if isinstance(value, dict) and encodable(value) else None


class Fragments:
    """Strings that arrive in pieces, bounded over the whole answer, as is the number of its parts."""

    def __init__(self) -> None:
        self._pieces: defaultdict[object, list[str]] = defaultdict(list)
        self._size = self._parts = 0

    def add(self, key: object, piece: str) -> None:
        """Raises TryFailed when the answer grows beyond all reason."""
        self._size += len(piece)
        if self._size > ANSWER_CHARACTERS:
            raise TryFailed(f"the answer is longer than {ANSWER_CHARACTERS:,} characters", retryable=False)
        if piece:
            self._pieces[key].append(piece)

    def begin_part(self) -> None:
        """One more block, call, item or field. Raises TryFailed when there are more than any model makes."""
        self._parts += 1
        check_parts(self._parts)

    def whole(self, key: object) -> str:
        return "".join(self._pieces.get(key, ()))


def check_parts(count: int) -> None:
    """Raises TryFailed when an answer has more parts than any model makes."""
    if count > ANSWER_PARTS:
        raise TryFailed(f"the answer has more than {ANSWER_PARTS:,} parts", retryable=False)
