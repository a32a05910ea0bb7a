"""Cache writes of a lifetime that the usage does not tell: the request knows what it asked for."""

from dataclasses import replace

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
