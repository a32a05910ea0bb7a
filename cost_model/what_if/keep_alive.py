"""Keep-alive pings: a request now and then that reads a waiting lane's prompt, so that its cache entry lives on."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from cost_model.tokens import Tokens
from cost_model.what_if.stored_call import StoredCall, in_order


@dataclass(frozen=True, slots=True)
class KeepAlive:
    """`interval` counts from the start of the lane's last request. `most`: pings in one wait, None for as many as it
    takes, 0 for none at all. `output_tokens`: what the provider bills of a ping's answer (none where it may be asked
    for none)."""

    interval: timedelta
    most: int | None = None
    output_tokens: int = 0

    def __post_init__(self) -> None:
        if self.interval <= timedelta() or (self.most is not None and self.most < 0) or self.output_tokens < 0:
            raise ValueError("pings need an interval above 0 and no negative numbers")


def missed(tokens: Tokens) -> bool:
    """Whether a ping with this usage kept nothing alive: it read less than half of its prompt from the cache. Then no
    further ones are sent."""
    return 2 * tokens.cache_read < tokens.prompt


def with_pings(calls: Sequence[StoredCall], pinging: Mapping[str, KeepAlive]) -> list[StoredCall]:
    """The calls of one scope with the pings of each role. Their tokens are the prompt that they repeat, as a read.

    A lane is pinged until its next call, until its role opens another lane, or until the chain has ended: who pings
    cannot know that nobody will return. What was sent without a known usage is not pinged.
    """
    ordered = in_order(calls)
    over = max((call.end for call in ordered), default=None)
    next_of_lane: dict[tuple[str, str], datetime] = {}
    next_of_role: dict[str, datetime] = {}
    pings: list[StoredCall] = []
    for call in reversed(ordered):
        plan, lane = pinging.get(call.role), (call.fact.model, call.fact.lane)
        if plan is not None and over is not None and call.fact.tokens is not None:
            until = next_of_lane.get(lane) or next_of_role.get(call.role) or over
            pings.extend(_pings(call, call.fact.tokens.prompt, plan, until))
        next_of_lane[lane] = next_of_role[call.role] = call.fact.requested_at
    return in_order([*ordered, *pings])


def _pings(call: StoredCall, prompt_tokens: int, plan: KeepAlive, until: datetime) -> Iterator[StoredCall]:
    number, at = 1, call.fact.requested_at + plan.interval
    while at < until and (plan.most is None or number <= plan.most):
        fact = replace(
            call.fact,
            key=f"{call.fact.key}/k{number}",
            requested_at=at,
            first_token_at=at,
            outcome="complete",
            tokens=Tokens(cache_read=prompt_tokens, output=plan.output_tokens),
            billed_usd=None,
            output_untold=False,
        )
        yield StoredCall(fact, call.role, at, call.round, ping=True)
        number, at = number + 1, at + plan.interval
