"""What makes a call dearer or cheaper than the list: a tier, a speed, a region, a kind of cache, a contract."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal

ALWAYS = "always"
"""The name of a modifier without a condition: a contract's discount, a price that the list lacks."""


@dataclass(frozen=True, slots=True)
class PriceModifier:
    """Where the usage's `name` is `value`: first `usd_per_mtok` replaces prices (USD per million units by class), then
    `times` multiplies the price of every token."""

    name: str
    value: str
    times: Decimal | None = None
    usd_per_mtok: Mapping[str, Decimal] = field(default_factory=dict)

    def applies(self, name: str, value: str) -> bool:
        return self.name == name and self.value.lower() == value.lower()

    @property
    def why(self) -> str:
        if self.name == ALWAYS:
            return "by contract" if self.times is not None else "with prices of a file"
        return f"{self.name} {self.value}"
