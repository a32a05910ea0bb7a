"""One model's prices during one window of time."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal

from cost_model.errors import PriceMissing
from cost_model.tokens import CLASSES, Tokens

PRICE_DECIMALS = 6
"""Prices per million tokens have at most so many decimals: then a token costs a whole number of 1e-12 dollars, and no
sum of charges is ever rounded."""


@dataclass(frozen=True, slots=True)
class PriceTier:
    """Prices of a call whose whole prompt is longer than `above` tokens: a cliff, every token of it is repriced."""

    above: int
    usd_per_mtok: Mapping[str, Decimal]


@dataclass(frozen=True, slots=True)
class PriceCard:
    """Prices in USD per million tokens by class of `CLASSES`, valid in [valid_from, valid_until); None is open.

    `tiers` ascend by `above`; a class that a tier does not name keeps the price of the tier below. `source` says where
    the prices come from. A class that the card does not name has no price: asking for it is an error, never $0.
    """

    ref: str
    source: str
    valid_from: datetime | None
    valid_until: datetime | None
    usd_per_mtok: Mapping[str, Decimal]
    tiers: tuple[PriceTier, ...] = ()

    def price(self, token_class: str, prompt_tokens: int) -> Decimal:
        """USD per million tokens of a class, in a call with so many prompt tokens. Raises PriceMissing."""
        for tier in reversed(self.tiers):
            if prompt_tokens > tier.above and token_class in tier.usd_per_mtok:
                return tier.usd_per_mtok[token_class]
        try:
            return self.usd_per_mtok[token_class]
        except KeyError:
            raise PriceMissing(
                f"the price of {self.ref} ({self.source}) does not cover {token_class} tokens: "
                f"add {token_class} to a [[price]] entry for {self.ref} in a price file"
            ) from None

    def usd(self, token_class: str, count: int, prompt_tokens: int) -> Decimal:
        """Dollars for `count` tokens of a class, exactly."""
        return (self.price(token_class, prompt_tokens) * count).scaleb(-6)

    def cost(self, tokens: Tokens) -> Decimal:
        """Dollars for one whole call. Raises PriceMissing when a class that occurs has no price."""
        prompt = tokens.prompt
        counts = ((name, tokens.of(name)) for name in CLASSES)
        return sum((self.usd(name, count, prompt) for name, count in counts if count), Decimal(0))

    def lacking(self, token_classes: Iterable[str]) -> tuple[str, ...]:
        """Those of the classes that have no price: to be asked before a run."""
        return tuple(name for name in token_classes if name not in self.usd_per_mtok)

    def times(self, factor: Decimal, why: str) -> "PriceCard":
        """The card with every price multiplied (peak hours, batch, a region); `why` is added to the source."""
        return replace(
            self,
            source=f"{self.source}, x{factor} {why}",
            usd_per_mtok={name: price * factor for name, price in self.usd_per_mtok.items()},
            tiers=tuple(
                PriceTier(tier.above, {name: price * factor for name, price in tier.usd_per_mtok.items()})
                for tier in self.tiers
            ),
        )


SELF_HOSTED = PriceCard(
    ref="self_hosted",
    source="declared self_hosted",
    valid_from=None,
    valid_until=None,
    usd_per_mtok=dict.fromkeys(CLASSES, Decimal(0)),
)
"""The card of models that are declared to cost nothing by the token."""
