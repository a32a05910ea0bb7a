"""Quantiles of Student's t, without a library that takes a second to import."""

from functools import lru_cache
from math import exp, lgamma, log, pi

_STEPS = 400


@lru_cache(maxsize=256)
def t_quantile(probability: float, freedom: float) -> float:
    """The value that a t of so many degrees of freedom stays below with this probability (0.5 to 0.9999), to 4 digits.

    Raises ValueError outside these, or for less than one degree.
    """
    if not 0.5 <= probability <= 0.9999 or freedom < 1:
        raise ValueError(f"no quantile {probability} of t with {freedom} degrees of freedom here")
    low, high = 0.0, 10_000.0
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if _below(middle, freedom) < probability else (low, middle)
    return (low + high) / 2


def _below(value: float, freedom: float) -> float:
    """Simpson's rule over s = value'/(1 + value'), which keeps heavy tails in reach of even steps."""
    scale = lgamma((freedom + 1) / 2) - lgamma(freedom / 2) - log(freedom * pi) / 2

    def height(share: float) -> float:
        at = share / (1 - share)
        return exp(scale - (freedom + 1) / 2 * log(1 + at * at / freedom)) / (1 - share) ** 2

    end = value / (1 + value)
    step = end / _STEPS
    inner = sum((4 if k % 2 else 2) * height(k * step) for k in range(1, _STEPS))
    return 0.5 + step / 3 * (height(0.0) + inner + height(end))
