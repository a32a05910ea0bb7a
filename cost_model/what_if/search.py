"""The cheapest cache for each role: every lifetime that its policy knows, no cache, and pings, replayed in turn."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from decimal import Decimal

from cost_model.break_even import PING_AHEAD
from cost_model.errors import ChangeImpossible, PriceMissing
from cost_model.what_if.change import NO_CACHE, Change, RoleChange
from cost_model.what_if.keep_alive import KeepAlive
from cost_model.what_if.replay import Measured, measure, replay_measured, total
from cost_model.what_if.stored_call import StoredCall

MOST_PINGS = (1, 2, 4, 8, 16, None)
"""How many pings a wait are tried; None: as many as it takes."""


@dataclass(frozen=True, slots=True)
class Option:
    """One way to cache a role. `usd`: what all scopes would cost with it, the least that they can (None: a class of
    tokens has no price)."""

    change: RoleChange
    usd: Decimal | None


@dataclass(frozen=True, slots=True)
class Best:
    """`measured`: usd. `options`: all that were tried, by role, cheapest first. `together`: all cheapest at once.
    `untold`: by role, why some could not be tried."""

    measured: Decimal
    options: dict[str, tuple[Option, ...]]
    together: Change
    untold: dict[str, str]


def best(scopes: Sequence[Sequence[StoredCall]]) -> Best:
    """Tries every option of every role alone, the others as they were. As it was comes first among equals.

    Raises ValueError when there are no calls.
    """
    roles = dict.fromkeys(call.role for scope in scopes for call in scope)
    if not roles:
        raise ValueError("no calls to replay")
    known = [measure(scope) for scope in scopes]
    measured = sum((total(scope.told).low for scope in known), Decimal(0))
    found: dict[str, tuple[Option, ...]] = {}
    untold: dict[str, str] = {}
    for role in roles:
        tried = [Option(RoleChange(), measured)]
        for change in options([call for scope in scopes for call in scope if call.role == role]):
            try:
                tried.append(Option(change, _usd(known, Change({role: change}))))
            except PriceMissing:
                tried.append(Option(change, None))
            except ChangeImpossible as impossible:
                untold[role] = str(impossible)
        found[role] = tuple(sorted(tried, key=lambda option: (option.usd is None, option.usd)))
    return Best(measured, found, Change({role: tried[0].change for role, tried in found.items()}), untold)


def options(calls: Sequence[StoredCall]) -> Iterator[RoleChange]:
    """What can be asked for one role, beside what was: only what the cache of every model of it knows. Where pings were
    sent, none are with it unless it says so."""
    facts = [call.fact for call in calls]
    unpinged = KeepAlive(PING_AHEAD, most=0) if any(call.pinged for call in calls) else None
    if unpinged is not None:
        yield RoleChange(keep_alive=unpinged)
    policies = {fact.policy.name: fact.policy for fact in facts}
    first = next(iter(policies.values()))
    asked = {fact.lifetime or fact.policy.default_lifetime for fact in facts}
    for name in first.lifetimes:
        if not all(name in policy.lifetimes for policy in policies.values()):
            continue
        change = RoleChange(lifetime=name, keep_alive=unpinged)
        if asked != {name}:
            yield change
        longest = max(policy.lifetimes[name] for policy in policies.values())
        shortest = min(policy.lifetimes[name] for policy in policies.values())
        if shortest > PING_AHEAD and longest <= timedelta(hours=1):
            for most in MOST_PINGS:
                yield replace(change, keep_alive=KeepAlive(shortest - PING_AHEAD, most))
    if all(policy.write_class for policy in policies.values()):
        yield RoleChange(lifetime=NO_CACHE, keep_alive=unpinged)


def _usd(scopes: Sequence[Measured], change: Change) -> Decimal:
    return sum((total(replay_measured(scope, change).predicted).low for scope in scopes), Decimal(0))
