"""What one usage object tells, whatever API it came from: tokens, what is billed beside them, modifiers and a bill."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Literal, Protocol

from cost_model.tokens import Tokens
from cost_model.usage.billed import Bill
from cost_model.usage.fields import UsageFields

Unit = Literal["token", "search", "token-hour"]


@dataclass(frozen=True, slots=True)
class Quantity:
    """So many units of a class that are billed beside the tokens of the call's own model.

    `model` is the one at whose price it is billed, None for the call's own. `token_class` is one of CLASSES, or of
    BESIDE: "web_search" (in searches) and "storage" (tokens held in an explicit cache, times hours). `prompt_tokens`:
    of the request that it was part of, which decides between the tiers of a price.
    """

    token_class: str
    quantity: Decimal
    unit: Unit
    model: str | None = None
    prompt_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Reading:
    """`tokens` are those of the call's own model. `untold`: the classes of them whose count is null and not known; they
    stand with the least that is certain (of an unknown `cache_read` that is 0, and `input` holds the whole prompt).

    `modifiers`: what alters the price (service_tier, speed, inference_geo), by field, ordinary values left out.
    `traits` may choose between prices but need not (cache_type). `written_told`: the usage says what was written.
    `steps` are the tokens of each request that the call was made of on the provider's side, with their sum in `tokens`.
    """

    api: str
    tokens: Tokens
    beside: tuple[Quantity, ...] = ()
    modifiers: Mapping[str, str] = field(default_factory=dict)
    traits: Mapping[str, str] = field(default_factory=dict)
    bill: Bill | None = None
    untold: frozenset[str] = frozenset()
    written_told: bool = True
    steps: tuple[Tokens, ...] = ()


@dataclass(frozen=True, slots=True)
class Counted:
    """What a shape makes of a usage: the part of a Reading that differs from API to API."""

    tokens: Tokens
    beside: tuple[Quantity, ...] = ()
    untold: frozenset[str] = frozenset()
    modifiers: Mapping[str, str] = field(default_factory=dict)
    written_told: bool = True
    steps: tuple[Tokens, ...] = ()


def searches(usage: UsageFields) -> tuple[Quantity, ...]:
    """The web searches that the provider made for the call, where it tells them; its fetches are free."""
    if usage.raw.get("server_tool_use") is None:
        return ()
    made = usage.inside("server_tool_use").count("web_search_requests")
    return (Quantity("web_search", Decimal(made), "search"),) if made else ()


class Shape(Protocol):
    """One API's usage object. A module of this package that has these three names is one."""

    NAME: str

    def fits(self, raw: Mapping[str, object]) -> bool:
        """Whether the fields are those of this API. Their names decide, never the provider's; never raises."""

    def count(self, usage: UsageFields) -> Counted:
        """Raises UsageError when the numbers contradict each other or a needed one is missing."""
