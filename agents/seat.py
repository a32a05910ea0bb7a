"""What a trial gives its roles."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agents.clock import Clock
from agents.errors import VisitEnded
from agents.guard import Guard
from agents.keep_alive import Background
from agents.limits import Limits
from agents.record import Record
from agents.shell.judge import Judge
from cost_model.calls import Book
from harbor_tasks.sandbox import Shell

if TYPE_CHECKING:
    import httpx2


@dataclass(frozen=True, slots=True)
class Seat:
    """One attempt's place to work. `nonce` is 16 hex digits that stand at the head of every prompt of this attempt, so
    that no other attempt can read its cache. `http` comes from `agents.transport.open_http`. `background` None: no role
    may ask for keep-alive pings; `judge` None: none may have a policy for its commands; `guard` None: nothing limits
    what is spent."""

    trial_id: str
    attempt: int
    nonce: str
    clock: Clock
    book: Book
    record: Record
    shell: Shell
    limits: Limits
    http: "httpx2.AsyncClient"
    background: Background | None = None
    judge: Judge | None = None
    guard: Guard | None = None

    @asynccontextmanager
    async def span(self, kind: str, lane: str, name: str) -> AsyncIterator[None]:
        """Records how long what is done inside took."""
        started = self.clock.now()
        try:
            yield
        finally:
            self.record.span(kind, lane, name, started, self.clock.now())

    def check_deadline(self) -> None:
        """Raises VisitEnded when the trial's time is up."""
        deadline = self.limits.deadline
        if deadline is not None and self.clock.past(deadline):
            raise VisitEnded("agent_timeout")

    def used_up(self, role: str) -> bool:
        """Whether the role may make no further call, because of what has been spent."""
        return self.guard is not None and self.guard.used_up(role)

    def check_spending(self, role: str) -> None:
        """Raises VisitEnded when the role may make no further call."""
        if self.used_up(role):
            raise VisitEnded("over_budget")
