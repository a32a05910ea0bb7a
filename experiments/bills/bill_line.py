"""What every kind of bill is brought to: figures a model, day and set of token classes, or lines call by call."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal

from cost_model.tokens import BESIDE, CLASSES, PROMPT_CLASSES, Tokens

Classes = frozenset[str]

WRITES: Classes = frozenset(name for name in PROMPT_CLASSES if name.startswith("cache_write"))
PROMPT: Classes = frozenset(PROMPT_CLASSES)
UNCACHED: Classes = WRITES | {"input"}
"""What a provider calls uncached input that does not tell writes apart."""
EVERYTHING: Classes = frozenset((*CLASSES, *BESIDE))


def one(name: str) -> Classes:
    return frozenset((name,))


@dataclass(frozen=True, slots=True)
class BillLine:
    """So many tokens (searches, for web_search), or so many dollars, that a bill tells of a model on a day (UTC).

    `classes` are the ledger's token classes that the bill lumps in this figure. `models` are the names that the bill
    gives the model, the most exact first; empty where it names none. `where` is the place in the file. `call`: the
    ledger's call that it was matched to, None in a bill that does not go call by call. `foreign`: certainly of a call
    that is not the ledger's. Exactly one of `units` and `usd` is set.
    """

    day: date
    models: tuple[str, ...]
    classes: Classes
    where: str
    units: int | None = None
    usd: Decimal | None = None
    call: str | None = None
    foreign: bool = False


@dataclass(frozen=True, slots=True)
class CallLine:
    """What a bill says of one call. `reference` is its key, or the provider's id of it.

    `units` are counts by the classes that the bill lumps. `tokens` None: the bill does not tell them in a form that a
    call can be booked with. `arrived` False: the provider refused it.
    """

    reference: str
    models: tuple[str, ...]
    at: datetime
    units: Mapping[Classes, int]
    usd: Decimal
    where: str
    told: Mapping[str, object]
    tokens: Tokens | None = None
    arrived: bool = True


@dataclass(frozen=True, slots=True)
class Bill:
    """One kind of bill, of one or more files. `days` are those that it speaks of, also where it has nothing to say.

    `settles`: its call lines settle calls. `complete` : a call of a run that it covers and does not list never arrived.
    `warnings` say why it may be incomplete.
    """

    format: str
    provider: str
    files: tuple[str, ...]
    lines: tuple[BillLine, ...] = ()
    calls: tuple[CallLine, ...] = ()
    days: frozenset[date] = frozenset()
    complete: bool = False
    warnings: tuple[str, ...] = ()
