"""The fold: all calls that share one cache, in the order in which they were requested, each explained by the earlier.

It is pure and repeatable: the same calls in any order give the same result, so it can be rerun from raw rows at any
time. It knows how a cache behaves only from the `CachePolicy` of each call. A call with blocks (`prompt`) is explained
by what was sent before, one without by its lane's counts and times.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal

from cost_model.call_fact import CallFact
from cost_model.ledger import (
    Basis,
    Charge,
    Stretch,
    beside_charges,
    charges,
    settled_charge,
    unfinished_output,
    unknown_charges,
    untold_reads,
)
from cost_model.prefixes import Path, Prefixes, Write, touch, written_depth
from cost_model.split import LaneState, split
from cost_model.tokens import Tokens
from cost_model.writes import settle_writes


@dataclass(frozen=True, slots=True)
class ExplainedCall:
    """A call with its dollars and their causes.

    `idle_s`: seconds since the start of the lane's last request that was not refused, the cache's clock; None for
    the first. `tokens`: as given, but writes of unknown lifetime are booked under the lifetime that was asked for.
    `list_usd`: at list price, exactly the sum of the charges; None when the usage is not known or not final. `cost_usd`
    is the bill, else the list price, else None with `cost_low_usd` and `cost_high_usd` around it. `basis` speaks of
    these dollars. `unexplained_read`: tokens read that no earlier call of the scope can have written (0: none), so that
    somebody outside the scope shares its cache.
    """

    key: str
    idle_s: float | None
    tokens: Tokens | None
    list_usd: Decimal | None
    billed_usd: Decimal | None
    cost_usd: Decimal | None
    cost_low_usd: Decimal
    cost_high_usd: Decimal
    excess_usd: Decimal
    basis: Basis
    charges: tuple[Charge, ...]
    unexplained_read: int = 0


@dataclass(slots=True)
class _Model:
    """The cache of one model. `untold`: a call may have written without our knowing."""

    prefixes: Prefixes = field(default_factory=Prefixes)
    used: bool = False
    untold: bool = False


def explain(calls: Sequence[CallFact]) -> list[ExplainedCall]:
    """Explains all calls of ONE cache scope, in order of (requested_at, key).

    Raises ValueError when a key comes twice.
    """
    if len({call.key for call in calls}) < len(calls):
        raise ValueError("a call's key comes twice in one cache scope")
    lanes: dict[tuple[str, str], LaneState] = {}
    models: dict[str, _Model] = {}
    explained = []
    for call in sorted(calls, key=lambda call: (call.requested_at, call.key)):
        lane = lanes.setdefault((call.model, call.lane), LaneState())
        model = models.setdefault(call.model, _Model())
        explained.append(_explain_call(call, lane, model))
    return explained


def _explain_call(call: CallFact, lane: LaneState, model: _Model) -> ExplainedCall:
    idle_s = None if lane.last_request is None else (call.requested_at - lane.last_request).total_seconds()
    if call.outcome == "refused" and call.tokens is None:
        return price_unknown(call, None, idle_s)
    path = model.prefixes.path(call.lane, call.prompt)
    if call.tokens is None:
        explained = price_unknown(call, lane.tokens_per_byte, idle_s)
        _touch_unknown(call, path, lane, model)
    else:
        explained = _explain_known(call, call.tokens, idle_s, lane, model, path)
    lane.last_request = call.requested_at
    if call.served:
        lane.served = True
        lane.prompt_bytes = call.prompt_bytes
        lane.prompt_tokens = None
        model.used = True
    if call.tokens is not None:
        lane.prompt_tokens = call.tokens.prompt
        if call.prompt_bytes:
            lane.tokens_per_byte = Decimal(call.tokens.prompt) / call.prompt_bytes
    return explained


def _explain_known(
    call: CallFact, reported: Tokens, idle_s: float | None, lane: LaneState, model: _Model, path: Path
) -> ExplainedCall:
    tokens = settle_writes(reported, policy=call.policy, lifetime=call.lifetime, card=call.card)
    stretches, kept = split(call, tokens, lane, path)
    foreign = tokens.cache_read if _foreign(call, tokens.cache_read, model, path) else 0
    touch(path, call.requested_at, kept=kept, write=_write(call), total=tokens.prompt)
    if not call.prompt:
        lane.stored.take(call, tokens)
    return replace(price_known(call, reported, stretches, idle_s), unexplained_read=foreign)


def price_known(
    call: CallFact, reported: Tokens, stretches: Sequence[Stretch], idle_s: float | None = None
) -> ExplainedCall:
    """The bill of one call of these tokens, the causes of its prompt being known by position."""
    tokens = settle_writes(reported, policy=call.policy, lifetime=call.lifetime, card=call.card)
    bill = charges(call.key, call.model, call.card, tokens, stretches)
    if call.read_untold:
        bill = untold_reads(bill, call.key, call.model, call.card, tokens)
    told = call.outcome == "complete" and not call.output_untold
    finished = told or call.settled or call.outcome == "refused"
    if not finished:
        bill = unfinished_output(bill, call.key, call.model, call.card, tokens, call.max_output_tokens)
    bill = (*bill, *beside_charges(call.key, len(bill), call.beside))
    basis: Basis = "reported" if tokens == reported else "arithmetic"
    exact = finished and all(charge.usd_low == charge.usd_high for charge in bill)
    return _result(call, idle_s, tokens, bill, exact=exact, basis=basis)


def _foreign(call: CallFact, read: int, model: _Model, path: Path) -> bool:
    """Whether nothing that was read can come from an earlier call of the scope.

    A cache that reads any prefix may match within a first block that differs further on: there only the first call of
    the model is beyond doubt. Less than a cache keeps comes from no trial: a local server counts the few tokens with
    which its chat template begins every prompt.
    """
    if model.untold or read < call.policy.minimum_tokens:
        return False
    if not call.prompt:
        return not model.used
    return not model.used or (call.policy.matching == "breakpoints" and written_depth(path) == 0)


def _write(call: CallFact) -> Write | None:
    if not call.served:
        return None
    return Write(call.requested_at, call.first_token_at, call.policy.lifetime(call.lifetime))


def _touch_unknown(call: CallFact, path: Path, lane: LaneState, model: _Model) -> None:
    """A call that nobody knows the usage of may have read, and so refreshed, what was there; and may have written.

    It counts as a writer once it had begun to answer: else a retry after a lost request, which finds nothing, would
    be blamed on the provider.
    """
    model.untold = True
    touch(path, call.requested_at, kept=written_depth(path), write=_write(call), total=None)
    lane.stored.touched_at = call.requested_at


def price_unknown(call: CallFact, tokens_per_byte: Decimal | None, idle_s: float | None = None) -> ExplainedCall:
    """The range of one call whose usage never came; nothing for one that was refused, and where a bill tells so its
    tokens are known to be none. `tokens_per_byte` is what the lane's latest known call had."""
    if call.outcome == "refused" and not call.billed_usd:
        return _result(call, idle_s, Tokens() if call.settled else None, (), exact=True)
    if call.settled and call.billed_usd is not None:
        return _result(call, idle_s, None, settled_charge(call.key, call.model, call.billed_usd), exact=False)
    if call.outcome == "refused":
        return _result(call, idle_s, None, (), exact=True)
    bill = unknown_charges(
        call.key,
        call.model,
        call.card,
        prompt_bytes=call.prompt_bytes,
        tokens_per_byte=tokens_per_byte,
        certainly_read=call.outcome == "cut" or call.served,
        max_output_tokens=call.max_output_tokens,
    )
    return _result(call, idle_s, None, bill, exact=False)


def _result(
    call: CallFact,
    idle_s: float | None,
    tokens: Tokens | None,
    bill: tuple[Charge, ...],
    *,
    exact: bool,
    basis: Basis = "arithmetic",
) -> ExplainedCall:
    """The totals of a bill. `exact`: the charges are the whole list price, not a range around it."""
    low = sum((charge.usd_low for charge in bill), Decimal(0))
    high = sum((charge.usd_high for charge in bill), Decimal(0))
    cost = call.billed_usd
    if cost is not None:
        basis = "reported"
    elif low == high:
        cost = low
    else:
        basis = "estimated"
    return ExplainedCall(
        key=call.key,
        idle_s=idle_s,
        tokens=tokens,
        list_usd=low if exact else None,
        billed_usd=call.billed_usd,
        cost_usd=cost,
        cost_low_usd=low if cost is None else cost,
        cost_high_usd=high if cost is None else cost,
        excess_usd=sum((charge.excess_usd for charge in bill), Decimal(0)),
        basis=basis,
        charges=bill,
    )
