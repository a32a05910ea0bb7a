"""What a usage tells beside its tokens that alters what they cost: a tier, a speed, a region."""

from collections.abc import Mapping

from cost_model.usage.fields import UsageFields, shown

MODIFIERS = ("service_tier", "speed", "inference_geo")

ORDINARY = frozenset({"standard", "default", "auto", "on_demand", "not_available", "global"})
"""The names under which APIs tell that a call was served in the ordinary way, at the ordinary price."""

TRAITS = ("cache_type",)
"""Told by some, and of weight only where a price says so."""


def told_modifiers(usage: UsageFields) -> dict[str, str]:
    """The modifiers by field, ordinary values left out. Raises UsageError where one is no short text."""
    told = {}
    for name in MODIFIERS:
        value = usage.raw.get(name)
        if value is None or (isinstance(value, str) and value.lower() in ORDINARY):
            continue
        if not isinstance(value, str) or not 0 < len(value) <= 40:
            raise usage.error(f"{name} must be a short text, not {shown(value)}")
        told[name] = value
    return told


def told_traits(usage: UsageFields) -> dict[str, str]:
    """The kind of cache that was used, where the details of the prompt tell it."""
    details = usage.raw.get("prompt_tokens_details")
    if type(details) is not dict and not isinstance(details, Mapping):
        return {}
    told = {name: details.get(name) for name in TRAITS}
    return {name: value for name, value in told.items() if isinstance(value, str) and 0 < len(value) <= 40}


def refuse_modified(usage: UsageFields) -> None:
    """Raises UsageError where the usage was not billed at standard prices: for those who can price no others."""
    for name in MODIFIERS:
        value = usage.raw.get(name)
        if value is not None and (not isinstance(value, str) or value not in ORDINARY):
            raise usage.error(
                f"{name} is {shown(value)}: such a call is not billed at standard prices, and no others are known"
            )
