"""Splits one house's charge over its flats."""


def split(total, weights):
    """flat -> cents, in proportion to `weights` (flat -> whole number, none negative, not all zero)."""
    whole = sum(weights.values())
    if whole <= 0 or min(weights.values()) < 0:
        raise ValueError("weights must not be negative, and one must be above zero")
    return {flat: round(total * weight / whole) for flat, weight in weights.items()}
