"""Closed forms of what an idle prompt cache costs, and of when a lever pays. No calls are needed: prices say it all.

w, r, o: what writing a token, reading it and an output token cost; C: tokens of the context that waits.
The clock of a cache starts with a request; see `CachePolicy`.
"""

from dataclasses import dataclass
from datetime import timedelta
from decimal import ROUND_CEILING, Decimal

from cost_model.policy import CachePolicy
from cost_model.price_card import PriceCard

PING_AHEAD = timedelta(seconds=20)
"""How long before the end of a lifetime a ping is sent."""


@dataclass(frozen=True, slots=True)
class Rates:
    """USD per million tokens at one length of the prompt. `write`: what a token that was not read costs, as a write of
    `lifetime`, or as plain input where writes are free."""

    lifetime: str | None
    write: Decimal
    read: Decimal
    output: Decimal


def rates(card: PriceCard, policy: CachePolicy, lifetime: str | None, context: int) -> Rates:
    """`lifetime` None: the policy's default. Without a cache a token is never read: reading it costs what sending does.

    Raises PriceMissing, KeyError for a lifetime that the policy does not know.
    """
    name = lifetime or policy.default_lifetime
    policy.lifetime(name)
    written = policy.write_class.get(name or "", "input")
    if card.lacking([written]) and name == policy.default_lifetime and "cache_write_unknown" in card.usd_per_mtok:
        written = "cache_write_unknown"
    read = "input" if policy.matching == "none" else "cache_read"
    return Rates(name, *(card.price(each, context) for each in (written, read, "output")))


def expired_handover_usd(at: Rates, context: int) -> Decimal:
    """C (w - r): what a hand-over costs more when the waiting context has expired meanwhile."""
    return ((at.write - at.read) * context).scaleb(-6)


def output_to_save(at: Rates, context: int, later_turns: int) -> int | None:
    """C (w - r) / (o + w + r R): output tokens of the waiting model that an expired hand-over must save to pay.

    Each would have been written, put into the cache and read again in each of R later turns. None: they cost nothing.
    """
    saved = at.output + at.write + at.read * later_turns
    if saved == 0:
        return None
    return int((expired_handover_usd(at, context).scaleb(6) / saved).to_integral_value(ROUND_CEILING))


def ping_usd(at: Rates, context: int, output_tokens: int = 0) -> Decimal:
    """r C, and the ping's answer: what it costs to read the waiting context once."""
    return (at.read * context + at.output * output_tokens).scaleb(-6)


def pings_worth(at: Rates, context: int, output_tokens: int = 0) -> int | None:
    """How many pings at most cost no more than the rebuild that they spare, C (w - r). None: any number."""
    one = ping_usd(at, context, output_tokens)
    return None if one == 0 else int(expired_handover_usd(at, context) // one)


def longest_wait_worth(at: Rates, policy: CachePolicy, context: int, output_tokens: int = 0) -> timedelta | None:
    """Up to how long a wait pings are cheaper than the rebuild: each puts the end off by its interval.

    None where no lifetime is stated, or where pings are free: for ever.
    """
    lifetime = policy.lifetime(at.lifetime)
    pings = pings_worth(at, context, output_tokens)
    if lifetime is None or pings is None:
        return None
    return lifetime + pings * (lifetime - PING_AHEAD)


def rebuilt_share_for_longer(short: Rates, long: Rates) -> Decimal | None:
    """(w' - w) / (w' - r): the longer lifetime (w') is cheaper when the rebuilds that it would have spared are more
    than this share of all tokens written. None: it never costs less.
    """
    if long.write <= short.read:
        return None
    share = (long.write - short.write) / (long.write - short.read)
    return max(share, Decimal(0)) if share < 1 else None


def calls_until_truncation_pays(at: Rates, dropped: int, tail: int) -> Decimal | None:
    """(w T - r (T + D)) / (r D): after how many further calls it has paid to drop D tokens, which writes the T behind
    them anew. 0: at once. None: never, where reading costs nothing."""
    if at.read == 0 or dropped == 0:
        return None
    extra = at.write * tail - at.read * (tail + dropped)
    return max(extra / (at.read * dropped), Decimal(0))
