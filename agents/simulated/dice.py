"""Randomness without state: each draw is a hash of who draws, and of what for."""

from collections.abc import Sequence
from typing import TypeVar

import xxhash

T = TypeVar("T")


class Dice:
    """The same key gives the same draws, on every machine and in any order."""

    def __init__(self, *key: str | int) -> None:
        self._key = "\x1f".join(str(part) for part in key)

    def number(self, what: str) -> int:
        """64 bits."""
        return xxhash.xxh3_64_intdigest(f"{self._key}\x1e{what}".encode())

    def unit(self, what: str) -> float:
        """In [0, 1)."""
        return (self.number(what) >> 11) / (1 << 53)

    def pick(self, what: str, items: Sequence[T]) -> T:
        return items[self.number(what) % len(items)]

    def about(self, what: str, mean: int, spread: float = 0.3) -> int:
        """Uniform within `spread` (a fraction) on either side of `mean`."""
        return round(mean * (1 + spread * (2 * self.unit(what) - 1)))
