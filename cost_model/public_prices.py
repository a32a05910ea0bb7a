"""The public price list that comes with the genai-prices package, as price cards. It is read offline."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from decimal import Decimal
from importlib.metadata import version
from typing import TYPE_CHECKING

from cost_model.errors import PriceMissing
from cost_model.price_card import PRICE_DECIMALS, PriceCard, PriceTier

if TYPE_CHECKING:
    from genai_prices import types

_CLASS_OF_KEY = {
    "input_mtok": ("input",),
    "output_mtok": ("output",),
    "cache_read_mtok": ("cache_read",),
    "cache_write_5m_mtok": ("cache_write_5m",),
    "cache_write_1h_mtok": ("cache_write_1h",),
}
_BILLED_BESIDE_TOKENS = {"requests_kcount", "output_reasoning_mtok", "output_citation_mtok"}
"""Charges that such a model's every answer may carry and that a card cannot hold."""

_OPENAI = {"openai", "azure"}


@dataclass(frozen=True, slots=True)
class PublicModel:
    """A model of the public list."""

    ref: str
    provider: str
    info: "types.ModelInfo"

    @property
    def name(self) -> str:
        return f"{self.provider}:{self.info.id}"

    def boundaries(self, at: datetime) -> set[datetime]:
        """The moments near `at` at which the listed prices change."""
        return set(self._boundaries(at))

    def _boundaries(self, at: datetime) -> Iterator[datetime]:
        from genai_prices.types import StartDateConstraint, TimeOfDateConstraint

        for listed in self.info.prices if isinstance(self.info.prices, list) else []:
            match listed.constraint:
                case StartDateConstraint(start_date=day):
                    yield datetime.combine(day, time(), UTC)
                case TimeOfDateConstraint(start_time=start, end_time=end):
                    for moment in (start, end):
                        for shift in (-2, -1, 0, 1, 2):
                            day = at.date() + timedelta(days=shift)
                            yield datetime.combine(day, moment, moment.tzinfo or UTC).astimezone(UTC)

    def card(self, at: datetime, valid_from: datetime | None, valid_until: datetime | None) -> PriceCard:
        """The card at a moment, good for the given window. Raises PriceMissing when the list has nothing to say.

        The list's general write price is what a write of the provider's default lifetime costs: 30 minutes at OpenAI,
        5 minutes elsewhere. It also stands for a write whose lifetime nobody told.
        """
        listed = {k: v for k, v in vars(self.info.get_prices(at)).items() if v is not None}
        source = f"genai-prices {version('genai-prices')}: {self.provider}/{self.info.id}"
        beside = sorted(_BILLED_BESIDE_TOKENS & set(listed))
        if beside:
            raise PriceMissing(
                f"{source} also bills {self.ref} by {beside[0]}, which a price by the token cannot hold: {HOW_TO_MEND}"
            )
        class_of_key = {
            **_CLASS_OF_KEY,
            "cache_write_mtok": (
                "cache_write_30m" if self.provider in _OPENAI else "cache_write_5m",
                "cache_write_unknown",
            ),
        }
        base: dict[str, Decimal] = {}
        tiers: dict[int, dict[str, Decimal]] = {}
        for key, token_classes in class_of_key.items():
            price = listed.get(key)
            if price is None:
                continue
            for token_class in token_classes:
                if isinstance(price, Decimal):
                    base[token_class] = _rounded(price)
                    continue
                base[token_class] = _rounded(price.base)
                for tier in price.tiers:
                    tiers.setdefault(tier.start, {})[token_class] = _rounded(tier.price)
        searches = listed.get("web_searches_kcount")
        if isinstance(searches, Decimal):
            base["web_search"] = _rounded(searches * 1000)
        if not base.get("input") or not base.get("output"):
            raise PriceMissing(f"{source} lists no price by the token for {self.ref}: {HOW_TO_MEND}")
        return PriceCard(
            ref=self.ref,
            source=source,
            valid_from=valid_from,
            valid_until=valid_until,
            usd_per_mtok=base,
            tiers=tuple(PriceTier(above, prices) for above, prices in sorted(tiers.items())),
        )


HOW_TO_MEND = (
    "add a [[price]] entry to a price file; a model that costs nothing is declared self-hosted (`self_hosted: true` in "
    "its registry entry, `--model self-hosted` for `fullchain usage`)"
)


_OF_BEDROCK = re.compile(r"(?:[a-z-]{2,12}\.)?(?:anthropic|amazon|meta|mistral|cohere|ai21|deepseek|openai|qwen)\.")
"""How the ids of Amazon Bedrock begin: a region or none, and the maker."""


def find_public(ref: str) -> PublicModel | None:
    """The listed model that a reference means: a model id, or provider:id where several providers list one.

    The ids of Bedrock (`eu.anthropic.claude-...`) and OpenRouter (`anthropic/claude-...`) tell their provider.
    """
    from genai_prices.data_snapshot import get_snapshot

    known = {provider.id for provider in get_snapshot().providers}
    provider, separator, model = ref.partition(":")
    if separator and provider in known:
        return _listed(ref, model, provider)
    found = _listed(ref, ref, None)
    if found is None and _OF_BEDROCK.match(ref):
        found = _listed(ref, ref, "aws")
    maker, slash, model = ref.partition("/")
    if found is None and slash:
        found = _listed(ref, ref, "openrouter") or (_listed(ref, model, maker) if maker in known else None)
    return found


def _listed(ref: str, model: str, provider: str | None) -> PublicModel | None:
    from genai_prices.data_snapshot import get_snapshot

    try:
        found, info = get_snapshot().find_provider_model(model, None, provider, None)
    except LookupError:
        return None
    return PublicModel(ref, found.id, info)


def _rounded(price: Decimal) -> Decimal:
    """A few listed prices are quotients with endless decimals."""
    return round(price, PRICE_DECIMALS) if -int(price.as_tuple().exponent) > PRICE_DECIMALS else price
