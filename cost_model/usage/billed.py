"""The bill itself, where a provider sends it along with the usage. It beats any price list."""

from collections.abc import Mapping
from decimal import Decimal

from cost_model.errors import UsageError
from cost_model.usage.fields import shown

TICKS_PER_USD = 10**10


def billed_usd(raw: Mapping[str, object]) -> Decimal | None:
    """Dollars that the provider says it charged, None when it does not say.

    `cost_in_usd_ticks` is a count of 1e-10 dollars. `cost` is dollars; for a caller who brought an own key
    (`is_byok`) it is the fee alone and the upstream provider's charge comes on top. Raises UsageError on anything that
    is no amount of money.
    """
    ticks = _amount(raw, raw, "cost_in_usd_ticks")
    if ticks is not None:
        return ticks / TICKS_PER_USD
    cost = _amount(raw, raw, "cost")
    if cost is None or raw.get("is_byok") is not True:
        return cost
    details = raw.get("cost_details")
    upstream = _amount(raw, details, "upstream_inference_cost") if isinstance(details, Mapping) else None
    if upstream is None:
        raise UsageError("usage: is_byok without cost_details.upstream_inference_cost, so the bill is not known", raw)
    return cost + upstream


def _amount(raw: Mapping[str, object], place: Mapping[str, object], name: str) -> Decimal | None:
    value = place.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise UsageError(f"usage: {name} must be an amount of money, not {type(value).__name__}", raw)
    # Python writes out no number of thousands of digits.
    amount = Decimal("Infinity") if isinstance(value, int) and abs(value) >= 10**18 else Decimal(str(value))
    if not amount.is_finite() or not 0 <= amount < 10**18:
        raise UsageError(f"usage: {name} must be an amount of money >= 0, not {shown(value)}", raw)
    return amount
