"""Cache writes of a lifetime that the usage does not tell: the request knows what it asked for."""

from dataclasses import replace

from cost_model.errors import PriceMissing
from cost_model.policy import CachePolicy
from cost_model.price_card import PriceCard
from cost_model.tokens import Tokens


def settle_writes(tokens: Tokens, *, policy: CachePolicy, lifetime: str | None, card: PriceCard) -> Tokens:
    """Books writes of a lifetime that the usage does not tell under the lifetime that the request asked for.

    `lifetime` None: the policy's default. Where that was asked for and the card only knows a general price of a write,
    they stay as they are.
    """
    asked = lifetime or policy.default_lifetime
    known_as = None if asked is None else policy.write_class.get(asked)
    if not tokens.cache_write_unknown or known_as is None:
        return tokens
    if card.lacking([known_as]) and asked == policy.default_lifetime:
        return tokens
    told: dict[str, int] = {known_as: tokens.of(known_as) + tokens.cache_write_unknown}
    return replace(tokens, cache_write_unknown=0, **told)


LIFETIMES = ("5m", "30m", "1h", "12h")
"""Of cache entries, by the names that providers give them, the shortest first."""


def settle_untold(tokens: Tokens, *, lifetime: str | None, card: PriceCard) -> Tokens:
    """As `settle_writes`, where no policy is known: the default lifetime is the shortest that the card prices.

    Every provider that bills writes by lifetime has the shortest as its default. A card that knows a general price of a
    write alone leaves them as they are. Raises PriceMissing where the card prices no write of the lifetime asked for.
    """
    if not tokens.cache_write_unknown:
        return tokens
    general = "cache_write_unknown" in card.usd_per_mtok
    priced = [each for each in LIFETIMES if f"cache_write_{each}" in card.usd_per_mtok]
    if lifetime is None:
        lifetime = None if card.free else next(iter(priced), None)
    elif priced and lifetime not in priced:
        missing = f"for {lifetime} (cache_write_{lifetime}), but for {', '.join(priced)}"
        raise PriceMissing(f"{card.ref} has no price of a cache write {missing}")
    if lifetime is None or (general and not priced):
        return tokens
    name = f"cache_write_{lifetime}"
    card.price(name, 0)
    told: dict[str, int] = {name: tokens.of(name) + tokens.cache_write_unknown}
    return replace(tokens, cache_write_unknown=0, **told)
