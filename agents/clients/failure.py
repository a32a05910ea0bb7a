"""What an SDK raised, in our own terms. Both SDKs name things alike, so neither needs to be loaded for it."""

import re
from datetime import datetime
from email.utils import parsedate_to_datetime
from math import isfinite

from agents.clients.events import mapping
from agents.clients.faults import advice, fault_of_connection, fault_of_status, is_page
from agents.errors import AgentError, DeadlinePassed, Fault, TryFailed
from agents.registry import ModelEntry
from agents.transport.call import CurrentCall
from agents.wire_text import one_line

_CONTEXT_FULL = re.compile(
    r"prompt is too long|context[ _]length|context[ _]window|context limit|maximum context|context size"
    r"|too many (input )?tokens|exceed_context",
    re.IGNORECASE,
)
BAD_EVENTS = (ValueError, RecursionError)
"""What the SDKs' own decoding of a stream raises when a server sends no valid events: no JSON, no UTF-8, a number of
thousands of digits, nesting without end."""

_PASSING = ("overloaded", "api_error", "rate_limit", "timeout", "server_error", "unavailable")
_NEVER_PASS: frozenset[Fault | None] = frozenset(("key", "credit", "model", "region", "address", "tls"))


def failure(error: Exception, call: CurrentCall, entry: ModelEntry, key: str) -> Exception:
    """What to raise instead of `error`: a TryFailed, or the exception of our own that the SDK wrapped."""
    if call.failure is not None:
        return call.failure
    if isinstance(error, AgentError | DeadlinePassed):
        return error
    status = getattr(error, "status_code", None)
    body = getattr(error, "body", None)
    detail = mapping(mapping(body).get("error")) or mapping(body)
    page = is_page(body)
    message = _message(error, status, body, detail, page=page)
    kind = f"{detail.get('type')} {detail.get('code')}"
    told = one_line(message, [key])
    full = (status is None or status in (200, 400, 413)) and bool(_CONTEXT_FULL.search(f"{message[:2000]} {kind}"))
    fault: Fault | None = None
    if status is not None and status >= 300:
        fault = None if full else fault_of_status(status, f"{kind} {message[:2000]}", page=page)
        retryable = status in (408, 409, 429) or status >= 500
    else:
        # Without an error status: no connection, a cut, or an error event inside a stream.
        if status is None:
            fault = fault_of_connection(error)
        retryable = not detail or any(word in f"{kind} {message[:200]}".lower() for word in _PASSING)
        if detail and not full:
            fault = fault_of_status(200, f"{kind} {message[:2000]}", page=False)
    return TryFailed(
        told if status is None else f"HTTP {status}: {told}",
        status=status,
        retryable=retryable and not full and fault not in _NEVER_PASS,
        retry_after_s=_retry_after(error, call.clock.now()),
        context_full=full,
        fault=fault,
        advice=advice(fault, entry),
    )


def refused_in_stream(code: str, message: str, entry: ModelEntry, key: str) -> TryFailed:
    """An error that a provider reports by an event of its answer, after it had begun well."""
    said = f"{code} {message[:2000]}"
    full = bool(_CONTEXT_FULL.search(said))
    fault = None if full else fault_of_status(200, said, page=False)
    return TryFailed(
        one_line(message or code, [key]),
        retryable=not full and fault not in _NEVER_PASS and any(word in said.lower() for word in _PASSING),
        context_full=full,
        fault=fault,
        advice=advice(fault, entry),
    )


def unended(call: CurrentCall, entry: ModelEntry, key: str) -> TryFailed:
    """An answer without its terminal event: what was booked as the reason says more than that it is not there."""
    message = call.error or "the answer ended before its terminal event"
    full = bool(_CONTEXT_FULL.search(message))
    fault = None if full else fault_of_status(200, message, page=False)
    return TryFailed(
        one_line(message, [key]),
        retryable=not full and fault not in _NEVER_PASS,
        context_full=full,
        fault=fault,
        advice=advice(fault, entry),
    )


def not_an_answer(content_type: str, entry: ModelEntry, key: str) -> TryFailed:
    """A success that is a web page: something else than the API stands at the address."""
    return TryFailed(
        f"an answer of type {one_line(content_type, [key], limit=60)}, which no API sends",
        retryable=False,
        fault="address",
        advice=advice("address", entry),
    )


def _message(error: Exception, status: int | None, body: object, detail: object, *, page: bool) -> str:
    said = mapping(detail).get("message")
    if isinstance(said, str) and said:
        return said
    if page:
        return "a web page instead of an answer"
    if isinstance(body, str) and body:
        return body[:2000]
    cause = error.__cause__
    if status is None and cause is not None:
        return f"{type(cause).__name__}: {cause}"
    return f"{type(error).__name__}: {error}"


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
