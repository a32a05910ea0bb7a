"""The exceptions of this room.

CostError
├── DocumentError   what was given holds no usage: no JSON, no call, or too much of it
├── UsageError      a provider's usage object contradicts itself; the raw object is kept in `raw`
│   └── OutputUntold    its prompt is known and its output is not; `told` holds what is
├── PriceMissing    no price is known for a model: an error before the run, never $0
├── PriceFileError  a price file that a person wrote is wrong; the message names file, field and mend
└── ChangeImpossible  stored calls cannot be replayed so; the message says what could be asked instead
"""

from collections.abc import Mapping

from cost_model.tokens import Tokens


class CostError(Exception):
    """Base of everything this room raises on purpose."""


class DocumentError(CostError):
    """What a person gave to be read holds no usage; the message says what was found and what is understood."""


class UsageError(CostError):
    def __init__(self, message: str, raw: Mapping[str, object] | None = None) -> None:
        super().__init__(message)
        self.raw = raw


class OutputUntold(UsageError):
    """`told`: the whole prompt, and of the output what is certain: there were at least so many tokens. `modifiers`:
    what alters the price and this API tells under names of its own."""

    def __init__(
        self,
        message: str,
        raw: Mapping[str, object] | None,
        told: Tokens,
        modifiers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message, raw)
        self.told = told
        self.modifiers = modifiers or {}


class PriceMissing(CostError):
    """No card covers this model at this time."""


class PriceFileError(CostError):
    """A price file does not say what it must; the message names file, field and how to mend it."""


class ChangeImpossible(CostError):
    """Stored calls cannot be replayed under this change."""
