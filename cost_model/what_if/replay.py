"""A replay: the calls of one scope as they were, and as they would have been, both explained by the same ledger."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import NamedTuple

from cost_model.call_fact import CallFact
from cost_model.errors import PriceMissing
from cost_model.scope import ExplainedCall, explain
from cost_model.tokens import Tokens
from cost_model.what_if.change import Change, changed
from cost_model.what_if.expected import ExpectedCache
from cost_model.what_if.prediction import predicted_read, predicted_tokens
from cost_model.what_if.stored_call import StoredCall, in_order
from cost_model.what_if.truncation import Cut, cut_prompts, without_blocks
from cost_model.writes import settle_writes


class Told(NamedTuple):
    """A call with what the ledger says of it."""

    call: StoredCall
    explained: ExplainedCall


class Dollars(NamedTuple):
    """USD; `low` = `high` when exact. A call whose usage never came has a range."""

    low: Decimal
    high: Decimal

    def plus(self, low: Decimal, high: Decimal) -> "Dollars":
        return Dollars(self.low + low, self.high + high)


NOTHING = Dollars(Decimal(0), Decimal(0))


@dataclass(frozen=True, slots=True)
class Replay:
    """`measured` and `predicted` in order of request. `as_expected`: of the `known` calls with a known usage, those
    that read what the policy of their cache lets them expect; the others' deviations are held fixed."""

    measured: tuple[Told, ...]
    predicted: tuple[Told, ...]
    as_expected: int
    known: int


@dataclass(frozen=True, slots=True)
class Measured:
    """The calls of one scope as they were, ready to be replayed under many changes. `expected`: by key, what each call
    of a known usage should have read by its cache's policy."""

    told: tuple[Told, ...]
    expected: Mapping[str, int]


def measure(calls: Sequence[StoredCall]) -> Measured:
    """Raises ValueError when a key comes twice."""
    ordered = in_order(calls)
    return Measured(_told(ordered), _expected(call.fact for call in ordered))


def replay(calls: Sequence[StoredCall], change: Change) -> Replay:
    """Replays ONE cache scope. With a change that changes nothing the predicted calls are the measured ones.

    Raises ChangeImpossible for what cannot be asked of these calls, PriceMissing for token classes that only occur now
    and have no price, ValueError when a key comes twice.
    """
    return replay_measured(measure(calls), change)


def replay_measured(measured: Measured, change: Change) -> Replay:
    """As `replay`."""
    calls = [told.call for told in measured.told]
    expected = measured.expected
    if change.truncating:
        calls = without_blocks(calls, change.truncating)
        expected = _expected(call.fact for call in calls)
    by_key = {call.fact.key: call.fact for call in calls}
    predicted = _predicted(changed(calls, change), by_key, expected, change)
    known = [told.call.fact for told in measured.told if told.call.fact.tokens is not None]
    return Replay(
        measured=measured.told,
        predicted=_told(predicted),
        as_expected=sum(1 for fact in known if _as_expected(fact, measured.expected[fact.key])),
        known=len(known),
    )


def by_role_and_class(told: Iterable[Told]) -> dict[tuple[str, str], Dollars]:
    """List prices of every (role, token class). A class "unknown" holds prompts whose usage never came."""
    sums: dict[tuple[str, str], Dollars] = {}
    for call, explained in told:
        for charge in explained.charges:
            key = (call.role, charge.token_class)
            sums[key] = sums.get(key, NOTHING).plus(charge.usd_low, charge.usd_high)
    return sums


def total(told: Iterable[Told]) -> Dollars:
    """What the calls cost: the provider's bill where there is one, else the list price."""
    whole = NOTHING
    for _, explained in told:
        whole = whole.plus(explained.cost_low_usd, explained.cost_high_usd)
    return whole


def _told(calls: Sequence[StoredCall]) -> tuple[Told, ...]:
    explained = explain([call.fact for call in calls])
    return tuple(Told(call, one) for call, one in zip(calls, explained, strict=True))


def _expected(facts: Iterable[CallFact]) -> dict[str, int]:
    """By key, what each call should have read as it was measured."""
    cache, expected = ExpectedCache(), {}
    for fact in facts:
        if fact.tokens is not None:
            altered = fact.tokens.cache_read if _shrank(cache, fact, fact.tokens.prompt) else None
            expected[fact.key] = cache.readable(fact, fact.tokens.prompt, altered)
        cache.take(fact, fact.tokens)
    return expected


def _as_expected(fact: CallFact, expected: int) -> bool:
    return fact.tokens is not None and 0 <= expected - fact.tokens.cache_read < max(fact.policy.multiple, 1)


def _shrank(cache: ExpectedCache, fact: CallFact, prompt: int) -> bool:
    return not fact.prompt and prompt < cache.last_prompt(fact)


def _predicted(
    calls: Sequence[StoredCall], measured: Mapping[str, CallFact], expected: Mapping[str, int], change: Change
) -> list[StoredCall]:
    cuts = cut_prompts([call for call in calls if not call.ping], change.truncating)
    cache = ExpectedCache()
    sent: dict[tuple[str, str], Tokens] = {}
    made: list[StoredCall] = []
    for call in calls:
        fact, lane = call.fact, (call.fact.model, call.fact.lane)
        if call.ping:
            tokens = _pinged(fact, sent.get(lane), cache)
            if tokens is None:
                continue
            fact = replace(fact, tokens=tokens)
        elif fact.tokens is not None:
            told = fact.tokens
            tokens = _again(told, fact, measured[fact.key], expected[fact.key], cache, cuts.get(fact.key))
            fact = replace(fact, tokens=tokens, billed_usd=bill_in_proportion(told, measured[fact.key], tokens, fact))
            sent[lane] = tokens
        cache.take(fact, fact.tokens)
        made.append(replace(call, fact=fact))
    return made


def _pinged(ping: CallFact, last: Tokens | None, cache: ExpectedCache) -> Tokens | None:
    """What a ping reads of the lane's last prompt; None where nothing of it is cached, and no ping would go on."""
    if last is None or ping.tokens is None:
        return None
    behind = last.input if ping.policy.write_class else 0
    read = min(cache.readable(ping, last.prompt), last.prompt - behind)
    if read == 0:
        return None
    return Tokens(cache_read=read, input=last.prompt - read, output=ping.tokens.output)


def _again(
    told: Tokens, fact: CallFact, measured: CallFact, expected: int, cache: ExpectedCache, cut: Cut | None
) -> Tokens:
    """The usage that the call would have, `told` being the measured one."""
    prompt = told.prompt if cut is None else cut.total
    altered = None if cut is None else cut.unaltered
    if altered is None and _shrank(cache, fact, prompt):
        altered = told.cache_read
    read = predicted_read(told.cache_read, expected, cache.readable(fact, prompt, altered), measured.policy.multiple)
    return predicted_tokens(told, measured, fact, prompt, min(read, prompt))


def bill_in_proportion(told: Tokens, measured: CallFact, tokens: Tokens, now: CallFact) -> Decimal | None:
    """The provider's bill, in proportion to the list price: a discount then would be one now. None: the list price."""
    if now.billed_usd is None or (tokens == told and now.card == measured.card):
        return now.billed_usd
    try:
        before, after = (
            one.card.cost(settle_writes(usage, policy=one.policy, lifetime=one.lifetime, card=one.card))
            for one, usage in ((measured, told), (now, tokens))
        )
    except PriceMissing:
        return None
    return round(now.billed_usd * after / before, 12) if before else None
