"""Text from models and programs, made fit for JSON, for one line of an error, and for other eyes."""

import json
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any
from urllib.parse import quote, quote_plus

_SPACE = re.compile(r"\s+")
_KEY = re.compile(r"\b(sk|key|xai|gsk)-[A-Za-z0-9_-]{12,}")
_SHORTEST_SECRET = 6
_READ = 1 << 20
"""Characters beyond which no error is read: more than what a line shows, so that no secret is cut in two."""


def wire_text(text: str) -> str:
    """`text` without NUL and lone surrogates; a surrogate pair that came in two fragments becomes its character."""
    if text.isascii():
        return text.replace("\0", "\ufffd") if "\0" in text else text
    try:
        text.encode()
    except UnicodeEncodeError:
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text.replace("\0", "\ufffd")


def hidden(text: str, secrets: Iterable[str]) -> str:
    """`text` with every secret taken out, as it is and as Python, JSON or an address would write it."""
    for secret in secrets:
        for spelling in spellings(secret):
            text = text.replace(spelling, "[key]")
    return text


def without(value: Any, secrets: Iterable[str], *, levels: int = 200) -> Any:
    """A JSON value with the secrets taken out of every text in it, names included; what is nested deeper than `levels`
    is left out."""
    if isinstance(value, str):
        return hidden(value, secrets)
    if isinstance(value, list | dict) and not levels:
        return None
    if isinstance(value, list):
        return [without(item, secrets, levels=levels - 1) for item in value]
    if isinstance(value, dict):
        return {hidden(name, secrets): without(item, secrets, levels=levels - 1) for name, item in value.items()}
    return value


def holds(encoded: bytes, secrets: Iterable[str]) -> bool:
    """Whether a JSON text may hold a secret: much sooner told than taken out."""
    return any(spelling.encode(errors="surrogatepass") in encoded for each in secrets for spelling in spellings(each))


@lru_cache(maxsize=256)
def spellings(secret: str) -> tuple[str, ...]:
    """How a text may write `secret`; none when it is so short that it hides nothing but a word such as `none`."""
    if len(secret) < _SHORTEST_SECRET:
        return ()
    escaped = repr(secret)[1:-1]
    as_bytes = repr(secret.encode(errors="surrogateescape"))[2:-1]
    as_json = (json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1])
    addresses = tuple(
        written(secret, safe=safe, errors="surrogateescape") for written in (quote, quote_plus) for safe in ("", "/")
    )
    unquoted = (escaped.replace("\\'", "'"), as_bytes.replace("\\'", "'"))
    every = (secret, secret.replace("/", "\\/"), escaped, as_bytes, *unquoted, *as_json, *addresses)
    return tuple(sorted(dict.fromkeys(every), key=len, reverse=True))


def one_line(text: str, secrets: Iterable[str] = (), *, limit: int = 300) -> str:
    """At most `limit` characters on one line, with every secret, and whatever looks like a key, taken out."""
    text = _KEY.sub("[key]", hidden(text[:_READ], secrets)[: limit * 20])
    text = _SPACE.sub(" ", wire_text(text)).strip()
    return text if len(text) <= limit else text[: limit - 1] + "…"
