"""The simulator's own bill: one JSON line a request, from its own cache and its own multiplication.

It shares no code with the ledger, so that the two can prove each other. Prices are the persona's, per million tokens;
dollars are exact decimal text.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Context, Decimal
from pathlib import Path

import orjson

from agents.simulated.errors import SimulatorError

_EXACT = Context(prec=60)


@dataclass(frozen=True, slots=True)
class Item:
    """One request. `tokens` by class, empty when it was refused; `error` is the refusal's type and message."""

    call: str | None
    response: str | None
    model: str | None
    requested_at: datetime
    status: int
    tokens: Mapping[str, int] = field(default_factory=dict)
    usd: Decimal = Decimal(0)
    error: str | None = None


def dollars(tokens: Mapping[str, int], usd_per_mtok: Mapping[str, Decimal]) -> Decimal:
    """Exact. Raises KeyError when a class that has tokens has no price."""
    total = Decimal(0)
    for name, number in tokens.items():
        if number:
            total = _EXACT.add(total, _EXACT.multiply(Decimal(number), usd_per_mtok[name]))
    return total.scaleb(-6, _EXACT)


class Bill:
    """Appends to a file. Every line is complete on disk's cache before the answer to its request begins."""

    def __init__(self, path: Path) -> None:
        """Raises SimulatorError when the file cannot be written."""
        self._path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._append(b"")
        except OSError as error:
            raise SimulatorError(f"{path}: the bill cannot be written ({error.strerror}); name another file") from None

    def add(self, item: Item) -> None:
        line = {
            "call": item.call,
            "response": item.response,
            "model": item.model,
            "tokens": dict(item.tokens),
            "usd": f"{item.usd:f}",
            "requested_at": item.requested_at.isoformat(timespec="microseconds"),
            "status": item.status,
            "error": item.error,
        }
        self._append(orjson.dumps(line) + b"\n")

    def _append(self, data: bytes) -> None:
        # Opened anew for each line: nothing is held open that somebody would have to close.
        with self._path.open("ab", buffering=0) as file:
            file.write(data)
