"""What a model thought, in the forms in which it can be sent back, and how each is checked without remembering it.

A signature is a keyed hash of the text, a seal hides the text and holds its signature. The ids of a thinking model's
calls carry a check over what was thought before them, so that a request from which it was taken away can be told.
"""

import base64
import binascii
import re
from collections.abc import Sequence
from hashlib import blake2b, shake_256
from typing import NamedTuple

# No secret: it proves that a text came from this simulator, against clumsiness and not against forgers.
_KEY = b"the simulated provider's key"
_TAG_BYTES = 24
_ISSUED = re.compile(r"(?:toolu_|call_|fc_|msg_)?([0-9a-f]{16})([0-9a-f]{8})")


class Thought(NamedTuple):
    """One piece of thinking; `redacted` pieces are sent sealed."""

    text: str
    redacted: bool = False


def signature(model: str, text: str) -> str:
    return base64.b64encode(_tag(model, text.encode())).decode()


def seal(model: str, text: str) -> str:
    """Opaque text from which this model's text can be got back, by the simulator alone."""
    data = text.encode()
    tag = _tag(model, data)
    return base64.b64encode(tag + _veil(tag, data)).decode()


def unseal(model: str, sealed: str) -> str | None:
    """None when it is no seal of this model, or was altered."""
    try:
        raw = base64.b64decode(sealed, validate=True)
    except (binascii.Error, ValueError):
        return None
    tag, data = raw[:_TAG_BYTES], _veil(raw[:_TAG_BYTES], raw[_TAG_BYTES:])
    return data.decode(errors="replace") if tag == _tag(model, data) else None


def call_id(model: str, thoughts: Sequence[Thought], fingerprint: str, number: int) -> str:
    """24 hex digits for call `number` (under 16) of an answer: 16 that name it and 8 that depend on the thoughts."""
    stem = f"{fingerprint[:15]}{number:x}"
    return stem + _check(model, thoughts, stem)


def reasoning_id(fingerprint: str) -> str:
    return f"rs_sim_{fingerprint[:15]}"


class Issued(NamedTuple):
    """An id that a thinking model may have given, read again."""

    stem: str
    check: str

    @property
    def reasoning(self) -> str:
        """The id of the reasoning item that stood before."""
        return reasoning_id(self.stem)

    def follows(self, model: str, thoughts: Sequence[Thought]) -> bool:
        """Whether exactly these thoughts came before it."""
        return self.check == _check(model, thoughts, self.stem)


def issued(identity: str) -> Issued | None:
    """None for an id that is of another make."""
    found = _ISSUED.fullmatch(identity)
    return Issued(found[1], found[2]) if found else None


def _check(model: str, thoughts: Sequence[Thought], stem: str) -> str:
    digest = blake2b(f"{model}\n{stem}".encode(), digest_size=4, key=_KEY)
    for thought in thoughts:
        digest.update(blake2b(f"{thought.redacted:d}{thought.text}".encode(), digest_size=16).digest())
    return digest.hexdigest()


def _tag(model: str, data: bytes) -> bytes:
    return blake2b(model.encode() + b"\n" + data, digest_size=_TAG_BYTES, key=_KEY).digest()


def _veil(tag: bytes, data: bytes) -> bytes:
    """The same again takes it off."""
    stream = shake_256(_KEY + tag).digest(len(data))
    return bytes(one ^ other for one, other in zip(data, stream, strict=True))
