"""A call as a replay starts from it: its facts, and who made it in which round."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from cost_model.call_fact import CallFact


@dataclass(frozen=True, slots=True)
class StoredCall:
    """`ended_at` None: not recorded, and the call is taken to have ended when its answer began.

    `round`: how many hand-overs to another role lie before it (0: none). `pinged`: a keep-alive that was sent, and no
    step of the work; `ping`: one that a replay adds.
    `asks_for_tools`: whether its answer does, None when that was not recorded.
    """

    fact: CallFact
    role: str
    ended_at: datetime | None = None
    round: int = 0
    ping: bool = False
    pinged: bool = False
    asks_for_tools: bool | None = None

    @property
    def end(self) -> datetime:
        return max(self.fact.requested_at, self.ended_at or self.fact.first_token_at or self.fact.requested_at)


def in_order(calls: Iterable[StoredCall]) -> list[StoredCall]:
    """In the order in which the ledger explains them."""
    return sorted(calls, key=lambda call: (call.fact.requested_at, call.fact.key))
