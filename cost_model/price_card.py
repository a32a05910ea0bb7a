"""One model's prices during one window of time."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal

from cost_model.errors import PriceMissing
from cost_model.price_modifier import PriceModifier
from cost_model.tokens import BESIDE, CLASSES, Tokens

PRICE_DECIMALS = 6
"""Prices per million tokens have at most so many decimals: then a token costs a whole number of 1e-12 dollars, and no
sum of charges is ever rounded."""


_OTHER_UNITS = {
    "web_search": ("web_search_per_1k", "web searches"),
    "storage": ("storage_mtok_hour", "the storage of a cache"),
}
"""What is billed by something else than tokens: its field in a price file, and in words."""


@dataclass(frozen=True, slots=True)
class PriceTier:
    """Prices of a call whose whole prompt is longer than `above` tokens: a cliff, every token of it is repriced."""

    above: int
    usd_per_mtok: Mapping[str, Decimal]


@dataclass(frozen=True, slots=True)
class PriceCard:
    """Prices in USD per million units by class of `CLASSES` (tokens) and `BESIDE`, valid in [valid_from, valid_until);
    None is open.

    `tiers` ascend by `above`; a class that a tier does not name keeps the price of the tier below. `source` says where
    the prices come from. A class that the card does not name has no price: asking for it is an error, never $0.
    `modifiers` say what other tiers, speeds and regions cost, those of later files last.
    """

    ref: str
    source: str
    valid_from: datetime | None
    valid_until: datetime | None
    usd_per_mtok: Mapping[str, Decimal]
    tiers: tuple[PriceTier, ...] = ()
    modifiers: tuple[PriceModifier, ...] = ()

    def price(self, token_class: str, prompt_tokens: int) -> Decimal:
        """USD per million tokens of a class, in a call with so many prompt tokens. Raises PriceMissing."""
        for tier in reversed(self.tiers):
            if prompt_tokens > tier.above and token_class in tier.usd_per_mtok:
                return tier.usd_per_mtok[token_class]
        try:
            return self.usd_per_mtok[token_class]
        except KeyError:
            field, units = _OTHER_UNITS.get(token_class, (token_class, f"{token_class} tokens"))
            raise PriceMissing(
                f"the price of {self.ref} ({self.source}) does not cover {units}: "
                f"add {field} to a [[price]] entry for {self.ref} in a price file"
            ) from None

    def usd(self, token_class: str, count: int | Decimal, prompt_tokens: int) -> Decimal:
        """Dollars for `count` units of a class, exactly."""
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
        """The card with the price of every token multiplied (peak hours, batch, a region); `why` is added to the
        source. What is billed beside tokens keeps its price."""

        def multiplied(prices: Mapping[str, Decimal]) -> dict[str, Decimal]:
            return {name: price if name in BESIDE else price * factor for name, price in prices.items()}

        return replace(
            self,
            source=f"{self.source}, x{factor} {why}",
            usd_per_mtok=multiplied(self.usd_per_mtok),
            tiers=tuple(PriceTier(tier.above, multiplied(tier.usd_per_mtok)) for tier in self.tiers),
        )

    def under(self, told: Mapping[str, str], traits: Mapping[str, str] | None = None) -> "PriceCard":
        """The card as it holds for a call with these modifiers (field to value, ordinary ones left out). They multiply.

        `traits` may choose other prices but need not. Raises PriceMissing where nothing says what a modifier costs.
        """
        found = []
        for name, value in {**(traits or {}), **told}.items():
            modifier = next((each for each in reversed(self.modifiers) if each.applies(name, value)), None)
            if modifier is not None:
                found.append(modifier)
            elif name in told and not self.free:
                raise PriceMissing(
                    f"{name} is {value!r}, and no price of {self.ref} is known for it: add a [[modifier]] for "
                    f'{name} = "{value}" to a price file'
                )
        return self.modified(found)

    def modified(self, modifiers: Sequence[PriceModifier]) -> "PriceCard":
        """The card with all of the modifiers: those that replace prices first, then those that multiply."""
        card = self
        for modifier in modifiers:
            if modifier.usd_per_mtok:
                card = card._with_prices(modifier.usd_per_mtok, modifier.why)
        for modifier in modifiers:
            if modifier.times is not None:
                card = card.times(modifier.times, modifier.why)
        return card

    @property
    def free(self) -> bool:
        """Whether nothing costs anything: declared self-hosted."""
        return not any(self.usd_per_mtok.values())

    def _with_prices(self, new: Mapping[str, Decimal], why: str) -> "PriceCard":
        # A price that is set holds at every length of the prompt.
        tiers = (
            PriceTier(t.above, {name: usd for name, usd in t.usd_per_mtok.items() if name not in new})
            for t in self.tiers
        )
        return replace(
            self,
            source=f"{self.source}, {why}",
            usd_per_mtok={**self.usd_per_mtok, **new},
            tiers=tuple(tier for tier in tiers if tier.usd_per_mtok),
        )

    def step(self, prompt_tokens: int) -> int:
        """Which of its prices a prompt of this length has: 0 below the first tier."""
        return sum(1 for tier in self.tiers if prompt_tokens > tier.above)

    def for_prompt(self, prompt_tokens: int) -> "PriceCard":
        """The card with the prices that a prompt of this length has, whatever is asked."""
        prices = {name: self.price(name, prompt_tokens) for name in self.usd_per_mtok}
        return replace(self, usd_per_mtok=prices, tiers=())

    def to_the_smallest_unit(self) -> "PriceCard":
        """The card with prices that multiplying made finer than PRICE_DECIMALS rounded to them, as a ledger needs."""

        def rounded(prices: Mapping[str, Decimal]) -> dict[str, Decimal]:
            return {name: round(price, PRICE_DECIMALS) for name, price in prices.items()}

        tiers = tuple(PriceTier(tier.above, rounded(tier.usd_per_mtok)) for tier in self.tiers)
        return replace(self, usd_per_mtok=rounded(self.usd_per_mtok), tiers=tiers)


SELF_HOSTED = PriceCard(
    ref="self_hosted",
    source="declared self_hosted",
    valid_from=None,
    valid_until=None,
    usd_per_mtok=dict.fromkeys((*CLASSES, *BESIDE), Decimal(0)),
)
"""The card of models that are declared to cost nothing by the token."""
