"""How a provider's prompt cache behaves, as data. The ledger and the simulated provider share this and nothing else."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal


@dataclass(frozen=True, slots=True)
class CachePolicy:
    """Declared behaviour of one model's prompt cache.

    `lifetimes` maps a lifetime's name ("5m", "1h", ...) to how long an entry lives. The clock starts at the START of
    the request that wrote or, when `sliding`, last read the entry. `write_class` maps a lifetime to the token class
    that its writes are billed as; an empty mapping means that writes are free and a miss is plain input.
    No lifetimes at all: nobody states one, and entries live until they are evicted.
    `minimum_tokens`: a shorter prompt is never cached. `multiple`: reads come in steps of so many tokens (1: exact).
    `look_back_blocks`: a breakpoint finds no entry that ends more content blocks before it; None: no limit is stated.
    """

    name: str
    matching: Literal["breakpoints", "prefix", "none"]
    lifetimes: Mapping[str, timedelta]
    default_lifetime: str | None
    sliding: bool = True
    minimum_tokens: int = 0
    multiple: int = 1
    look_back_blocks: int | None = None
    write_class: Mapping[str, str] = field(default_factory=dict)

    def lifetime(self, name: str | None) -> timedelta | None:
        """How long an entry of this lifetime lives; None: no end is stated. Raises KeyError on an unknown name."""
        chosen = name or self.default_lifetime
        return None if chosen is None else self.lifetimes[chosen]
