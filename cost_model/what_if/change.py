"""What a replay changes, by role and for the whole chain, and the facts of calls under it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from fractions import Fraction

from cost_model.call_fact import CallFact
from cost_model.errors import ChangeImpossible
from cost_model.policies import POLICIES
from cost_model.policy import CachePolicy
from cost_model.price_card import PriceCard
from cost_model.usage.lines import Line
from cost_model.what_if.keep_alive import KeepAlive, missed, with_pings
from cost_model.what_if.rounds import fewer_rounds
from cost_model.what_if.speed import at_other_speeds
from cost_model.what_if.stored_call import StoredCall, in_order
from cost_model.what_if.truncation import Truncation, without_blocks

NO_CACHE = "none"
"""The lifetime of a role that asks for no cache at all."""


@dataclass(frozen=True, slots=True)
class OtherModel:
    """A model whose prices and cache a role's calls get. Their tokens stay as the measured model counted them."""

    name: str
    policy: CachePolicy
    card: Callable[[datetime], PriceCard]


@dataclass(frozen=True, slots=True)
class RoleChange:
    """What would be different about one role; as built here, nothing.

    `lifetime`: a name of its policy's lifetimes, or NO_CACHE; None as it was. `times_faster` scales all of the time in
    which it holds the floor: 2 halves it. `keep_alive` takes the place of the pings that were sent.
    """

    lifetime: str | None = None
    keep_alive: KeepAlive | None = None
    times_faster: Fraction = Fraction(1)
    model: OtherModel | None = None
    truncation: Truncation | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """`fewer_rounds`: so many of the last hand-overs did not happen. `card`: other prices for a call, None its own;
    `beside`: what is billed beside its tokens, at these."""

    roles: Mapping[str, RoleChange] = field(default_factory=dict)
    fewer_rounds: int = 0
    card: Callable[[CallFact], PriceCard] | None = None
    beside: Callable[[CallFact], Sequence[Line]] | None = None

    @property
    def truncating(self) -> Mapping[str, Truncation]:
        return {role: change.truncation for role, change in self.roles.items() if change.truncation is not None}


def changed(calls: Sequence[StoredCall], change: Change) -> list[StoredCall]:
    """The calls of one scope as they would be made: when, by whom, under which cache and prices. Their tokens are still
    the measured ones. Raises ChangeImpossible, PriceMissing."""
    if change.fewer_rounds < 0 or any(role.times_faster <= 0 for role in change.roles.values()):
        raise ChangeImpossible("hand-overs cannot become more, and no role can be infinitely slow")
    pinging = {role: one.keep_alive for role, one in change.roles.items() if one.keep_alive is not None}
    _check_misses(calls, pinging)
    left = [call for call in calls if not (call.pinged and call.role in pinging)]
    if any(one.times_faster != 1 for one in change.roles.values()):
        _check_pings(left)
    left = fewer_rounds(left, change.fewer_rounds) if change.fewer_rounds else left
    left = at_other_speeds(left, {role: one.times_faster for role, one in change.roles.items()})
    left = [replace(call, fact=_on_terms(call, change)) for call in left]
    left = without_blocks(left, change.truncating)
    for call in left:
        if call.role in pinging and pinging[call.role].most != 0:
            _check_interval(call, pinging[call.role])
    return with_pings(left, pinging) if pinging else in_order(left)


def _on_terms(call: StoredCall, change: Change) -> CallFact:
    fact, role = call.fact, change.roles.get(call.role, RoleChange())
    if role.model is not None:
        fact = replace(
            fact,
            model=role.model.name,
            policy=role.model.policy,
            lifetime=None,
            card=role.model.card(fact.requested_at),
            billed_usd=None,
        )
    if change.card is not None:
        fact = replace(fact, card=change.card(fact))
    if change.beside is not None:
        fact = replace(fact, beside=change.beside(fact))
    if role.lifetime is None or role.lifetime == _asked(fact):
        return fact
    if role.lifetime == NO_CACHE:
        if not fact.policy.write_class:
            raise ChangeImpossible(
                f"{call.role}: the cache of {fact.model} ({fact.policy.name}) costs nothing to write and is not asked "
                "for, so it cannot be left out; choose another role, or a model whose writes are charged"
            )
        return replace(fact, policy=POLICIES["none"], lifetime=None)
    if role.lifetime not in fact.policy.lifetimes:
        known = ", ".join([*fact.policy.lifetimes, *([NO_CACHE] if fact.policy.write_class else [])])
        raise ChangeImpossible(
            f"{call.role}: the cache of {fact.model} ({fact.policy.name}) knows no lifetime {role.lifetime!r}; "
            + (f"it knows {known}" if known else "none is stated for it")
        )
    return replace(fact, lifetime=role.lifetime)


def _asked(fact: CallFact) -> str | None:
    """The lifetime that a call asked for; None where its usage tells of another than its request does (a log may have
    no request)."""
    asked = fact.lifetime or fact.policy.default_lifetime
    if fact.lifetime is None and fact.tokens is not None:
        written = {name for name, token_class in fact.policy.write_class.items() if fact.tokens.of(token_class)}
        return asked if written <= {asked} else None
    return asked


def _check_misses(calls: Sequence[StoredCall], pinging: Mapping[str, KeepAlive]) -> None:
    """What a missed ping met would have been met by others too, at a time that nobody knows."""
    vain = [
        call
        for call in calls
        if call.pinged and call.role in pinging and (call.fact.tokens is None or missed(call.fact.tokens))
    ]
    if vain:
        raise ChangeImpossible(
            f"{vain[0].role}: {len(vain)} of the pings that were sent missed or were not answered, and what other "
            "pings would have met is not known; leave them as they are"
        )


def _check_pings(calls: Sequence[StoredCall]) -> None:
    pinged = next((call for call in calls if call.pinged), None)
    if pinged is not None:
        raise ChangeImpossible(
            f"{pinged.role}: keep-alive pings were sent here at their own interval, and when they would be sent at "
            "another speed is not told; say how that role is kept alive as well"
        )


def _check_interval(call: StoredCall, plan: KeepAlive) -> None:
    policy = call.fact.policy
    lifetime = None if policy.matching == "none" else policy.lifetime(call.fact.lifetime)
    if lifetime is None:
        raise ChangeImpossible(
            f"{call.role}: no lifetime is stated for the cache of {call.fact.model} ({policy.name}), so there is "
            "nothing that pings could keep alive; choose another role"
        )
    if plan.interval > lifetime:
        raise ChangeImpossible(
            f"{call.role}: pings every {plan.interval.total_seconds():g} s come too late for entries that live "
            f"{lifetime.total_seconds():g} s; choose an interval below that"
        )
