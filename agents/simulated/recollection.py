"""Remembers how the beginning of a conversation read, so that a long one need not be read from its start each turn.

Recognition is by bytes: the request's head must be the same, and then message after message as it was sent. Whatever
cannot be recognised with certainty is read in full; recognition saves time and can change no answer.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

import orjson
import xxhash

from agents.simulated.prompt import Prompt

_BEYOND = 2048
"""Bytes after the opening that also name a conversation, so that conversations with equal heads do not displace each
other."""

MAX_CONVERSATIONS = 512
MAX_BYTES = 128 << 20

_FOLD = 32
"""So many messages are recognised at once."""

_COMMA, _CLOSE = ord(","), ord("]")


@dataclass(frozen=True, slots=True)
class Remembered:
    """A prompt as it was read, and its messages as bytes: `raws[i]` is message i as it was sent,
    `folds[i]` the i-th `_FOLD` messages with a comma after each."""

    head: bytes
    model: str
    raws: Sequence[bytes]
    folds: Sequence[bytes]
    prompt: Prompt
    size: int


@dataclass(frozen=True, slots=True)
class Recalled:
    """`document` is the request with only those messages in it that come after the first `messages`."""

    remembered: Remembered
    messages: int
    document: object


class Recollection:
    """Conversations in order of use, bounded in number and bytes. `name` is what the protocol calls its messages."""

    def __init__(self, name: str) -> None:
        self._name = b'"' + name.encode() + b'"'
        self._opening = self._name + b":["
        self._known: OrderedDict[bytes, Remembered] = OrderedDict()
        self._bytes = 0

    def recall(self, body: bytes) -> Recalled | None:
        """None when nothing of `body` is known. Raises orjson.JSONDecodeError when what is new in it is no JSON."""
        opening = body.find(self._opening)
        if opening < 0:
            return None
        key = self._key(body, opening)
        known = self._known.get(key)
        start = opening + len(self._opening)
        if known is None or not body.startswith(known.head):
            return None
        self._known.move_to_end(key)
        position, messages = start, 0
        for fold in known.folds:
            if not body.startswith(fold, position):
                break
            position += len(fold)
            messages += _FOLD
        for raw in islice(known.raws, messages, None):
            after = position + len(raw)
            if not body.startswith(raw, position) or after == len(body) or body[after] not in (_COMMA, _CLOSE):
                break
            messages += 1
            position = after
            if body[after] == _CLOSE:
                break
            position += 1
        if messages == 0 or (body[position - 1] == _COMMA and body[position : position + 1] != b"{"):
            return None
        rest = body[position:]
        if self._name in rest:
            return None
        return Recalled(known, messages, orjson.loads(body[:start] + rest))

    def remember(self, body: bytes, model: str, prompt: Prompt, messages: Sequence[object], recalled: int = 0) -> None:
        """Keeps a prompt that was read without fault. `messages` are those read anew, after the first `recalled`."""
        opening = body.find(self._opening)
        if opening < 0:
            return
        key = self._key(body, opening)
        head = body[: opening + len(self._opening)]
        old = self._known.get(key)
        if recalled and old is not None:
            raws, folds = list(old.raws[:recalled]), list(old.folds[: recalled // _FOLD])
        elif not recalled and body.count(self._name) == 1 and _opens_the_messages(head):
            raws, folds = [], []
        else:
            return
        position = len(head) + sum(map(len, raws)) + len(raws)
        for message in messages:
            raw = orjson.dumps(message)
            if not body.startswith(raw, position):
                return
            raws.append(raw)
            position += len(raw) + 1
        if body[position - 1 : position] != b"]":
            return
        while len(raws) >= _FOLD * (len(folds) + 1):
            folds.append(b",".join([*raws[_FOLD * len(folds) : _FOLD * (len(folds) + 1)], b""]))
        if old is not None:
            self._bytes -= old.size
        # As bytes, as folds, and about as much again as what was read from them.
        self._known[key] = Remembered(head, model, raws, folds, prompt, 3 * len(body))
        self._known.move_to_end(key)
        self._bytes += 3 * len(body)
        while len(self._known) > MAX_CONVERSATIONS or (self._bytes > MAX_BYTES and len(self._known) > 1):
            _, dropped = self._known.popitem(last=False)
            self._bytes -= dropped.size

    def _key(self, body: bytes, opening: int) -> bytes:
        return xxhash.xxh3_128_digest(body[: opening + len(self._opening) + _BEYOND])


def _opens_the_messages(head: bytes) -> bool:
    """Whether the array that `head` ends with is the request's own, not one inside a tool's description."""
    try:
        return isinstance(orjson.loads(head + b"]}"), dict)
    except orjson.JSONDecodeError:
        return False
