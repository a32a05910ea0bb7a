"""Text from models and programs, made fit for JSON, for one line of an error, and for other eyes."""

import re
from collections.abc import Iterable

_SPACE = re.compile(r"\s+")
_KEY = re.compile(r"\b(sk|key|xai|gsk)-[A-Za-z0-9_-]{12,}")


def wire_text(text: str) -> str:
    """`text` without NUL and lone surrogates; a surrogate pair that came in two fragments becomes its character."""
    if text.isascii():
        return text.replace("\0", "\ufffd") if "\0" in text else text
    try:
        text.encode()
    except UnicodeEncodeError:
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text.replace("\0", "\ufffd")


def one_line(text: str, secrets: Iterable[str] = (), *, limit: int = 300) -> str:
    """At most `limit` characters on one line, with every secret, and whatever looks like a key, taken out."""
    text = text[: limit * 20]
    for secret in secrets:
        if secret:
            text = text.replace(secret, "[key]")
    text = _SPACE.sub(" ", wire_text(_KEY.sub("[key]", text))).strip()
    return text if len(text) <= limit else text[: limit - 1] + "…"
