"""Token classes: one disjoint split of everything that a call is billed for by the token."""

from dataclasses import dataclass, fields
from typing import Self

PROMPT_CLASSES = (
    "cache_read",
    "cache_write_12h",
    "cache_write_1h",
    "cache_write_30m",
    "cache_write_5m",
    "cache_write_unknown",
    "input",
)
"""The classes of the prompt, in the order in which they stand in it: what is read comes first, longer-lived
entries must precede shorter-lived ones, and what lies after the last cache boundary is plain input."""

CLASSES = (*PROMPT_CLASSES, "output")

BESIDE = ("web_search", "storage")
"""What a call may be billed for beside tokens: searches, and tokens held in an explicit cache times hours."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """Integer counts; the classes are disjoint and sum to what is billed.

    `input` is uncached input at the full rate and excludes everything cached. `reasoning` is informational: it is
    part of `output` already and is never added to anything.
    """

    input: int = 0
    cache_read: int = 0
    cache_write_5m: int = 0
    cache_write_30m: int = 0
    cache_write_1h: int = 0
    cache_write_12h: int = 0
    cache_write_unknown: int = 0
    output: int = 0
    reasoning: int = 0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                raise ValueError(f"{field.name} must be a whole number of tokens >= 0, not {value!r}")
        if self.reasoning > self.output:
            raise ValueError(f"reasoning ({self.reasoning}) is part of output ({self.output}) and cannot exceed it")

    @property
    def prompt(self) -> int:
        """Everything that was sent: the sum of all classes but output."""
        # Spelled out: this is asked for many times a call.
        return (
            self.cache_read
            + self.cache_write_12h
            + self.cache_write_1h
            + self.cache_write_30m
            + self.cache_write_5m
            + self.cache_write_unknown
            + self.input
        )

    def of(self, name: str) -> int:
        """The count of one class of `CLASSES`."""
        value: int = getattr(self, name)
        return value

    def __add__(self, other: Self) -> "Tokens":
        return Tokens(**{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)})
