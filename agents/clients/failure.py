"""What an SDK raised, in our own terms. Both SDKs name things alike, so neither needs to be loaded for it."""

import json
import re
from datetime import datetime
from email.utils import parsedate_to_datetime
from math import isfinite

from agents.clients.events import mapping
from agents.errors import AgentError, DeadlinePassed, TryFailed
from agents.transport.call import CurrentCall
from agents.wire_text import one_line

_CONTEXT_FULL = re.compile(
    r"prompt is too long|context[ _]length|context[ _]window|context limit|maximum context|context size"
    r"|too many (input )?tokens|exceed_context",
    re.IGNORECASE,
)
BAD_EVENTS = (json.JSONDecodeError, UnicodeDecodeError, RecursionError)
"""What the SDKs' own decoding of a stream raises when a server sends no valid events."""

_PASSING = ("overloaded", "api_error", "rate_limit", "timeout", "server_error", "unavailable")


def failure(error: Exception, call: CurrentCall, key: str) -> Exception:
    """What to raise instead of `error`: a TryFailed, or the exception of our own that the SDK wrapped."""
    if call.failure is not None:
        return call.failure
    if isinstance(error, AgentError | DeadlinePassed):
        return error
    status = getattr(error, "status_code", None)
    body = getattr(error, "body", None)
    detail = mapping(mapping(body).get("error")) or mapping(body)
    said = detail.get("message")
    cause = error.__cause__
    if isinstance(said, str) and said:
        message = said
    elif status is None and cause is not None:
        message = f"{type(cause).__name__}: {cause}"
    else:
        message = f"{type(error).__name__}: {error}"
    told = one_line(message, [key])
    kind = f"{detail.get('type')} {detail.get('code')}"
    full = (status is None or status in (200, 400, 413)) and bool(_CONTEXT_FULL.search(f"{message[:2000]} {kind}"))
    if status is not None and status >= 300:
        retryable = (status in (408, 409, 429) or status >= 500) and "insufficient_quota" not in kind
    else:
        # Without an error status: no connection, a cut, or an error event inside a stream.
        retryable = not detail or any(word in f"{kind} {message[:200]}".lower() for word in _PASSING)
    return TryFailed(
        told if status is None else f"HTTP {status}: {told}",
        status=status,
        retryable=retryable and not full,
        retry_after_s=_retry_after(error, call.clock.now()),
        context_full=full,
    )


def _retry_after(error: Exception, now: datetime) -> float | None:
    headers = getattr(getattr(error, "response", None), "headers", None)
    if headers is None:
        return None
    for name, scale in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        value = headers.get(name)
        if value is None:
            continue
        try:
            seconds = float(value) * scale
        except ValueError:
            try:
                at = parsedate_to_datetime(value)
                seconds = (at - now).total_seconds()
            except (TypeError, ValueError):
                continue
        if isfinite(seconds):
            return max(0.0, seconds)
    return None
