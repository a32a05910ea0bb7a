"""What a trial gives its roles."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from agents.clock import Clock
from agents.keep_alive import Background
from agents.limits import Limits
from agents.record import Record
from cost_model.calls import Book
from harbor_tasks.sandbox import Shell

if TYPE_CHECKING:
    import httpx2


@dataclass(frozen=True, slots=True)
class Seat:
    """One attempt's place to work. `nonce` is 16 hex digits that stand at the head of every prompt of this attempt, so
    that no other attempt can read its cache. `http` comes from `agents.transport.open_http`. `background` None: no role
    may ask for keep-alive pings."""

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
