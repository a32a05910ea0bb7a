"""The simulated provider keeps a bill of its own, from its own cache and code; the ledger must come to the same."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import orjson


@dataclass(frozen=True, slots=True)
class Booked:
    """What the ledger says of one call; `usd` None when only a range is known (a cut or cancelled call)."""

    usd: Decimal | None
    low: Decimal
    high: Decimal


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """`calls` on the bill, `billed` and `booked` dollars over them, `findings` a line each difference."""

    calls: int
    billed: Decimal
    booked: Decimal
    findings: tuple[str, ...]

    @property
    def equal(self) -> bool:
        return not self.findings

    @property
    def sentence(self) -> str:
        if self.equal:
            return f"bill: ${self.billed} from the simulator = ${self.booked} in the ledger ({self.calls} calls)"
        more = f" (and {len(self.findings) - 3} more)" if len(self.findings) > 3 else ""
        return (
            f"BILL MISMATCH: ${self.billed} from the simulator, ${self.booked} in the ledger ({self.calls} calls): "
            f"{'; '.join(self.findings[:3])}{more}"
        )


def reconcile(bill: Mapping[str, Decimal], ledger: Mapping[str, Booked]) -> Reconciliation:
    """Call by call, by key. Where the ledger has a range, the bill must lie in it."""
    findings = []
    for key, usd in bill.items():
        booked = ledger.get(key)
        if booked is None:
            findings.append(f"call {key} is billed (${usd}) and not in the ledger")
        elif not booked.low <= usd <= booked.high:
            said = f"${booked.low}" if booked.low == booked.high else f"between ${booked.low} and ${booked.high}"
            findings.append(f"call {key}: billed ${usd}, booked {said}")
    findings += [
        f"call {key} is booked (${booked.usd}) and not on the bill"
        for key, booked in ledger.items()
        if key not in bill and booked.low > 0
    ]
    billed = sum(bill.values(), Decimal(0))
    total = sum(
        (
            bill[key] if booked.usd is None and key in bill else booked.usd or Decimal(0)
            for key, booked in ledger.items()
        ),
        Decimal(0),
    )
    return Reconciliation(len(bill), billed.normalize(), total.normalize(), tuple(findings))


def bill_folder(database: Path) -> Path:
    """Where the bills of the runs of a database lie, one file a run."""
    return database.with_name(database.name + ".bill")


def read_bill(path: Path) -> dict[str, Decimal]:
    """Dollars by call key."""
    return dict(_lines(path.read_bytes().splitlines()))


def _lines(lines: Iterable[bytes]) -> Iterable[tuple[str, Decimal]]:
    for line in lines:
        entry = orjson.loads(line)
        yield str(entry["call"]), Decimal(entry["usd"])
