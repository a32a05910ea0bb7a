"""Whole shares of a whole."""

from collections.abc import Sequence


def apportion(total: int, weights: Sequence[int]) -> list[int]:
    """Whole shares of `total` in proportion to the weights, summing to it exactly, by largest remainder.

    Equal remainders go to the earlier weight; without any weight the first takes all.
    """
    whole = sum(weights)
    if whole == 0:
        return [total, *(0 for _ in weights[1:])]
    shares = [total * weight // whole for weight in weights]
    by_remainder = sorted(range(len(weights)), key=lambda index: -(total * weights[index] % whole))
    for index in by_remainder[: total - sum(shares)]:
        shares[index] += 1
    return shares
