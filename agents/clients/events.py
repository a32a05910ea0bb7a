"""Safe looks into stream events: what a server sends may have any shape."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

import orjson

from agents.errors import TryFailed

ANSWER_CHARACTERS = 8_000_000
"""No model writes so much; whoever sends more is not answering."""


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
    """Strings that arrive in pieces, bounded over the whole answer."""

    def __init__(self) -> None:
        self._parts: defaultdict[object, list[str]] = defaultdict(list)
        self._size = 0

    def add(self, key: object, piece: str) -> None:
        """Raises TryFailed when the answer grows beyond all reason."""
        self._size += len(piece)
        if self._size > ANSWER_CHARACTERS:
            raise TryFailed(f"the answer is longer than {ANSWER_CHARACTERS:,} characters", retryable=False)
        self._parts[key].append(piece)

    def whole(self, key: object) -> str:
        return "".join(self._parts.get(key, ()))
