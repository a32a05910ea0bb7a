"""The call that the current task is making: set by the client, read in the transport."""

from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime

from agents.clock import Clock
from cost_model.calls import Book, CallSent, call_key


@dataclass(frozen=True, slots=True)
class CallIdentity:
    """What is known of a call before it is sent, but for time, size and try; see `cost_model.calls.CallSent`."""

    trial_id: str
    attempt: int
    role: str
    lane: str
    version: int
    turn: str
    model: str
    wire_model: str
    provider: str
    flavour: str
    lifetime: str | None
    blocks: int
    max_output_tokens: int | None
    simulated: bool


@dataclass(slots=True)
class CurrentCall:
    """One turn's call and its tries.

    The transport counts `tries`, so that a retry hidden inside an SDK is booked under a key of its own too. `key` is
    the latest try's. `tool_seconds` is what a simulated provider says that one tool call of its answer takes. `failure`
    is an exception of our own (the book's, a bug) that an SDK would dress up as a connection error. `error` is what was
    booked as the reason why the latest try brought no answer, `usage` its raw usage, `requested_at` when it began.
    """

    identity: CallIdentity
    clock: Clock
    book: Book
    tries: int = 0
    key: str = ""
    tool_seconds: float = 0.0
    failure: Exception | None = None
    error: str | None = None
    usage: Mapping[str, object] | None = None
    requested_at: datetime | None = None

    def next_try(self, prompt_bytes: int, requested_at: datetime) -> CallSent:
        self.tries += 1
        self.tool_seconds = 0.0
        self.error = self.usage = None
        self.requested_at = requested_at
        i = self.identity
        self.key = call_key(i.trial_id, i.attempt, i.lane, i.turn, self.tries)
        return CallSent(
            key=self.key,
            trial_id=i.trial_id,
            attempt=i.attempt,
            role=i.role,
            lane=i.lane,
            version=i.version,
            turn=i.turn,
            try_number=self.tries,
            model=i.model,
            wire_model=i.wire_model,
            provider=i.provider,
            flavour=i.flavour,
            lifetime=i.lifetime,
            blocks=i.blocks,
            prompt_bytes=prompt_bytes,
            max_output_tokens=i.max_output_tokens,
            requested_at=requested_at,
            simulated=i.simulated,
        )


CALL: ContextVar[CurrentCall] = ContextVar("call")
