"""The bill itself, where a provider sends it along with the usage. It beats any price list."""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

from cost_model.errors import UsageError
from cost_model.usage.fields import shown

TICKS_PER_USD = 10**10


@dataclass(frozen=True, slots=True)
class Bill:
    """Dollars that the provider says it charged, and the parts that it tells: what the output cost, and by how much
    the cache made the call cheaper (dearer when negative, where writes cost more than reads save)."""

    usd: Decimal
    output_usd: Decimal | None = None
    cache_saving_usd: Decimal | None = None


def billed_usd(raw: Mapping[str, object]) -> Decimal | None:
    """Dollars that the provider says it charged, None when it does not say. Raises UsageError as `bill` does."""
    told = bill(raw)
    return None if told is None else told.usd


def bill(raw: Mapping[str, object]) -> Bill | None:
    """The provider's own bill, None when it sends none.

    `cost_in_usd_ticks` is a count of 1e-10 dollars. `cost` is dollars; for a caller who brought an own key
    (`is_byok`) it is the fee alone and the upstream provider's charge comes on top. OpenRouter's record of a generation
    keeps dollars in `total_cost` and `usage`, and in `usage_cache` the (negative) difference that the cache made.
    Raises UsageError on anything that is no amount of money.
    """
    ticks = _amount(raw, raw, "cost_in_usd_ticks")
    if ticks is not None:
        return Bill(ticks / TICKS_PER_USD)
    if "native_tokens_prompt" in raw:
        return _generation(raw)
    cost = _amount(raw, raw, "cost")
    if cost is None:
        return None
    details = raw.get("cost_details")
    if not isinstance(details, Mapping):
        details = {}
    output = _amount(raw, details, "upstream_inference_completions_cost")
    if not _own_key(raw):
        return Bill(cost, output_usd=output)
    upstream = _amount(raw, details, "upstream_inference_cost")
    if upstream is None:
        raise UsageError("usage: is_byok without cost_details.upstream_inference_cost, so the bill is not known", raw)
    return Bill(cost + upstream, output_usd=output)


def _generation(raw: Mapping[str, object]) -> Bill | None:
    costs = {name: _amount(raw, raw, name) for name in ("total_cost", "usage")}
    told = [cost for cost in costs.values() if cost is not None]
    if not told:
        return None
    if len(set(told)) > 1:
        raise UsageError(f"usage: total_cost ({told[0]}) and usage ({told[1]}) disagree", raw)
    own_key = _own_key(raw)
    upstream = _amount(raw, raw, "upstream_inference_cost") if own_key else None
    if own_key and upstream is None:
        raise UsageError("usage: is_byok without upstream_inference_cost, so the bill is not known", raw)
    difference = _amount(raw, raw, "usage_cache", signed=True)
    saving = None if difference is None else -difference
    return Bill(told[0] + (upstream or 0), cache_saving_usd=saving)


def _own_key(raw: Mapping[str, object]) -> bool:
    """Whether the caller's own key was used. What is neither yes nor no must not pass for no: half the bill hangs on
    it."""
    told = raw.get("is_byok")
    if told is not None and not isinstance(told, bool):
        raise UsageError(f"usage: is_byok must be true or false, not {shown(told)}", raw)
    return told is True


def _amount(
    raw: Mapping[str, object], place: Mapping[str, object], name: str, *, signed: bool = False
) -> Decimal | None:
    value = place.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise UsageError(f"usage: {name} must be an amount of money, not {type(value).__name__}", raw)
    # Python writes out no number of thousands of digits.
    amount = Decimal("Infinity") if isinstance(value, int) and abs(value) >= 10**18 else Decimal(str(value))
    if not amount.is_finite() or not (-(10**18) if signed else 0) <= amount < 10**18:
        bound = "" if signed else " >= 0"
        raise UsageError(f"usage: {name} must be an amount of money{bound}, not {shown(value)}", raw)
    return amount
