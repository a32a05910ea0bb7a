"""What a price file says of other tiers, speeds and regions, and of contracts: a factor or other prices."""

from datetime import datetime
from decimal import Decimal
from fnmatch import fnmatchcase
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from cost_model.price_fields import DatedTable, Factor, Prices
from cost_model.price_modifier import ALWAYS, PriceModifier

Text = Annotated[str, Field(min_length=1, max_length=40)]


class ModifierEntry(DatedTable):
    """A modifier of all models whose reference one of `models` matches (`*` stands for any characters).

    A model of the public list also goes by "provider:id". Exactly one of the conditions, or none: then it holds for
    every call. `usd_per_mtok` and the prices beside tokens replace those of the model, `times` multiplies tokens.
    """

    models: Annotated[list[Annotated[str, Field(min_length=1)]], Field(min_length=1)]
    source: Annotated[str, Field(min_length=1)]
    service_tier: Text | None = None
    speed: Text | None = None
    inference_geo: Text | None = None
    cache_type: Text | None = None
    times: Factor | None = None
    usd_per_mtok: Prices = Field(default_factory=dict)

    @model_validator(mode="after")
    def _whole(self) -> Self:
        self.in_order()
        if len(self._conditions()) > 1:
            raise ValueError(
                f"names several conditions ({', '.join(self._conditions())}); each takes an entry of its own"
            )
        if self.times is None and not self.usd_per_mtok and not self.beside():
            raise ValueError("says neither `times` nor a price")
        for name, usd in self.usd_per_mtok.items():
            if name in ("input", "output") and usd == 0:
                raise ValueError(f"usd_per_mtok.{name} must be above 0")
        return self

    def concerns(self, names: tuple[str, ...]) -> bool:
        return any(fnmatchcase(name, pattern) for name in names for pattern in self.models)

    def boundaries(self) -> set[datetime]:
        return {moment for moment in (self.valid_from, self.valid_until) if moment}

    def modifier(self) -> PriceModifier:
        name, value = next(iter(self._conditions().items()), (ALWAYS, ALWAYS))
        prices: dict[str, Decimal] = {**self.usd_per_mtok, **self.beside()}
        return PriceModifier(name, value, self.times, prices)

    def _conditions(self) -> dict[Literal["service_tier", "speed", "inference_geo", "cache_type"], str]:
        told: dict[Literal["service_tier", "speed", "inference_geo", "cache_type"], str | None] = {
            "service_tier": self.service_tier,
            "speed": self.speed,
            "inference_geo": self.inference_geo,
            "cache_type": self.cache_type,
        }
        return {name: value for name, value in told.items() if value is not None}
