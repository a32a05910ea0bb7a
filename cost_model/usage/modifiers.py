"""What a usage tells beside its tokens that alters what they cost: a tier, a speed, a region.

Price cards hold standard prices. Usage that was billed at others is refused, so that it is never priced in silence.
"""

from cost_model.usage.fields import UsageFields, shown

MODIFIERS = ("service_tier", "speed", "inference_geo")

ORDINARY = frozenset({"standard", "default", "auto", "on_demand", "not_available", "global"})
"""The names under which APIs tell that a call was served in the ordinary way, at the ordinary price."""


def refuse_modified(usage: UsageFields) -> None:
    """Raises UsageError where the usage was not billed at standard prices."""
    for name in MODIFIERS:
        value = usage.raw.get(name)
        if value is not None and (not isinstance(value, str) or value not in ORDINARY):
            raise usage.error(
                f"{name} is {shown(value)}: such a call is not billed at standard prices, and no others are known"
            )
