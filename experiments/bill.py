"""The simulated provider keeps a bill of its own, from its own cache and code; the ledger must come to the same.

The simulator bills at its own fixed prices. Where a spec sets others (a price file, another date or hour) dollars
cannot agree, and the tokens of each class must.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

if TYPE_CHECKING:
    from cost_model.price_card import PriceCard


@dataclass(frozen=True, slots=True)
class Billed:
    """One line of the bill. `tokens` by class, without those that are 0."""

    usd: Decimal
    tokens: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Booked:
    """What the ledger says of one call; `tokens` None when the usage never came: then only a range of dollars is known.

    `priced_alike`: at the prices that the simulator bills at.
    """

    low: Decimal
    high: Decimal
    tokens: Mapping[str, int] | None
    priced_alike: bool = True


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """`calls` on the bill and its dollars; the ledger's dollars over its own calls, which are `low` to `high` where
    `ranges` calls are known as a range; `findings` a line each difference."""

    calls: int
    billed: Decimal
    low: Decimal
    high: Decimal
    ranges: int
    priced_alike: bool
    findings: tuple[str, ...]

    @property
    def equal(self) -> bool:
        return not self.findings

    @property
    def sentence(self) -> str:
        ledger = f"${self.low:f}" if self.low == self.high else f"${self.low:f} to ${self.high:f}"
        if self.findings:
            more = f" (and {len(self.findings) - 3} more)" if len(self.findings) > 3 else ""
            return (
                f"BILL MISMATCH: ${self.billed:f} from the simulator, {ledger} in the ledger ({self.calls} calls): "
                f"{'; '.join(self.findings[:3])}{more}"
            )
        known = f"{self.calls} calls" + (f", {self.ranges} of them known as a range" if self.ranges else "")
        if not self.priced_alike:
            return (
                f"bill: the simulator and the ledger count the same tokens of each class ({known}); "
                f"the spec's prices are not the simulator's: ${self.billed:f} there, {ledger} in the ledger"
            )
        relation = "=" if self.low == self.high else "lies within"
        return f"bill: ${self.billed:f} from the simulator {relation} {ledger} in the ledger ({known})"


def reconcile(bill: Mapping[str, Billed], ledger: Mapping[str, Booked]) -> Reconciliation:
    """Call by call, by key. Where the ledger has a range, the bill must lie in it."""
    findings = [finding for key, billed in bill.items() if (finding := _difference(key, billed, ledger.get(key)))]
    findings += [
        f"call {key} is booked ({_usd(booked)}) and not on the bill"
        for key, booked in ledger.items()
        if key not in bill and booked.low > 0
    ]
    return Reconciliation(
        calls=len(bill),
        billed=_total(billed.usd for billed in bill.values()),
        low=_total(booked.low for booked in ledger.values()),
        high=_total(booked.high for booked in ledger.values()),
        ranges=sum(booked.low != booked.high for booked in ledger.values()),
        priced_alike=all(booked.priced_alike for booked in ledger.values()),
        findings=tuple(findings),
    )


def _difference(key: str, billed: Billed, booked: Booked | None) -> str | None:
    if booked is None:
        return f"call {key} is billed (${billed.usd}) and not in the ledger"
    if booked.tokens is not None and booked.tokens != billed.tokens:
        return f"call {key}: billed {_told(billed.tokens)}, booked {_told(booked.tokens)}"
    if booked.priced_alike and not booked.low <= billed.usd <= booked.high:
        return f"call {key}: billed ${billed.usd}, booked {_usd(booked)}"
    return None


def _usd(booked: Booked) -> str:
    return f"${booked.low}" if booked.low == booked.high else f"between ${booked.low} and ${booked.high}"


def _told(tokens: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(tokens.items())) or "no tokens"


def _total(amounts: Iterator[Decimal]) -> Decimal:
    return sum(amounts, Decimal(0)).normalize()


class PricedAlike:
    """Whether a price card holds the simulator's own prices of a model: then dollars can be compared."""

    def __init__(self) -> None:
        from agents.simulated.persona import load_personas

        self._personas = load_personas(None)
        self._seen: dict[object, bool] = {}

    def __call__(self, wire_model: str, card: "PriceCard") -> bool:
        """`wire_model` is what the simulator was asked for; one that it does not ship has prices that nobody knows."""
        key = (wire_model, card.ref, card.valid_from, tuple(card.usd_per_mtok.items()))
        if key not in self._seen:
            persona = self._personas.get(wire_model)
            self._seen[key] = (
                persona is not None
                and not card.tiers
                and all(card.usd_per_mtok.get(name) == usd for name, usd in persona.usd_per_mtok.items())
            )
        return self._seen[key]


def bill_folder(database: Path) -> Path:
    """Where the bills of the runs of a database lie, one file a run."""
    return database.with_name(database.name + ".bill")


def read_bill(path: Path) -> dict[str, Billed]:
    """The lines of a bill by call key."""
    entries = [orjson.loads(line) for line in path.read_bytes().splitlines()]
    return {
        str(entry["call"]): Billed(
            Decimal(entry["usd"]), {name: count for name, count in entry["tokens"].items() if count}
        )
        for entry in entries
    }
