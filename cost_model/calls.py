"""What is known of a model call: before it is sent, after it ended; and the book it is written into.

A call is one HTTP request. Its key is the text trial/attempt/lane/turn/try, so that merging, resuming and replaying are
idempotent by it. A call is booked below the SDK, in the transport: no retry and no cut stream escapes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol

Outcome = Literal["complete", "cut", "refused", "cancelled", "lost"]
"""complete: the protocol's terminal event came. cut: the stream broke before it. refused: an HTTP error status or no
connection at all. cancelled: we gave up waiting. lost: the process died between sending and recording the answer."""


def call_key(trial: str, attempt: int, lane: str, turn: int | str, try_number: int) -> str:
    return f"{trial}/{attempt}/{lane}/{turn}/{try_number}"


@dataclass(frozen=True, slots=True)
class CallSent:
    """Written durably before the first byte leaves.

    `model` is the registry's name, `wire_model` what the provider is asked for. The prompt is the first `blocks` blocks
    of (lane, version): block 0 is the head (tools and system text), each message is one more. `lifetime` is the cache
    lifetime asked for ("5m", ...), None for the policy's default. `prompt_bytes` is the size of the request body.
    """

    key: str
    trial_id: str
    attempt: int
    role: str
    lane: str
    version: int
    turn: str
    try_number: int
    model: str
    wire_model: str
    provider: str
    flavour: str
    lifetime: str | None
    blocks: int
    prompt_bytes: int
    max_output_tokens: int | None
    requested_at: datetime
    simulated: bool


@dataclass(frozen=True, slots=True)
class CallEnded:
    """Written once, when the response is closed, whatever happened.

    `usage` is the provider's raw usage object as it came (for a stream: every field's last non-null value), with what
    stood beside it and bears on its price, None when none came. `status` is the HTTP status, None without a response.
    """

    key: str
    outcome: Outcome
    status: int | None
    first_token_at: datetime | None
    ended_at: datetime
    usage: Mapping[str, object] | None
    response_id: str | None
    response_model: str | None
    request_id: str | None
    finish_reason: str | None
    error: str | None


class SpendingStopped(Exception):
    """Control flow: the money that may be spent is used up. Raised before the call was recorded or sent."""


class Book(Protocol):
    """Where calls are booked. The runner's journal is one; the proxy's will be another."""

    async def sent(self, call: CallSent) -> None:
        """Returns once the record is on disk. Raises SpendingStopped when the call may not be sent: nothing of it is
        then recorded."""

    def ended(self, call: CallEnded) -> None:
        """Recorded in order; durable with the next durable record."""

    def judged(self, key: str, tool_calls_valid: bool) -> None:
        """Whether the answer's tool calls could be carried out as they came (known only above the transport)."""
