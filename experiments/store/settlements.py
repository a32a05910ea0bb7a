"""What bills told afterwards of calls whose usage never came, as it is stored and as the booking reads it."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from decimal import Decimal
from typing import TYPE_CHECKING

from cost_model.tokens import Tokens
from experiments.errors import SettlementRefused
from experiments.store.rows import Row

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


@dataclass(frozen=True, slots=True)
class Settlement:
    """What a bill says of one call. `source` names the kind of bill ("simulator", "openrouter"), `bill` its file.

    `tokens` None: it tells dollars only. `usd_counts` False: it is made at other prices than the experiment's, so that
    its tokens are priced instead. `arrived` False: the bill is whole and does not have the call, or has it as refused.
    `usd` has at most the 12 decimals of the column. `told` is the line of the bill as it came.
    """

    call: str
    source: str
    bill: str
    tokens: Tokens | None
    usd: Decimal
    usd_counts: bool = True
    arrived: bool = True
    told: Mapping[str, object] | None = None

    def agrees(self, other: "Settlement") -> bool:
        """Whether both say the same of the call, whichever file and prices they come from."""
        return (self.call, self.source, self.tokens, self.usd, self.arrived) == (
            other.call, other.source, other.tokens, other.usd, other.arrived,
        )  # fmt: skip


_COLUMNS = ("call", "source", "bill", "tokens", "usd", "usd_counts", "arrived", "told")

SETTLEMENT = ", ".join(f"settlements.{name} AS settlement_{name}" for name in _COLUMNS if name != "told")
"""SQL: the columns that `settlement_of` reads, where `SETTLED` stands in the FROM clause."""

SETTLED = "LEFT JOIN settlements ON settlements.call = calls.key"


def settlement_of(row: Row) -> Settlement | None:
    """The settlement of a call's row that was selected with `SETTLEMENT`; None without one, as for fresh calls."""
    if row.get("settlement_call") is None:
        return None
    told = row["settlement_tokens"]
    return Settlement(
        call=str(row["settlement_call"]),
        source=str(row["settlement_source"]),
        bill=str(row["settlement_bill"]),
        tokens=None if told is None else Tokens(**json.loads(str(told))),
        usd=Decimal(str(row["settlement_usd"])),
        usd_counts=bool(row["settlement_usd_counts"]),
        arrived=bool(row["settlement_arrived"]),
    )


def stored_settlements(connection: "DuckDBPyConnection", calls: Iterable[str]) -> dict[str, Settlement]:
    """Those of the calls that are settled, by key."""
    relation = connection.execute(
        f"SELECT {SETTLEMENT} FROM settlements WHERE call IN (SELECT unnest(?))",  # noqa: S608
        [sorted(set(calls))],
    )
    names = [column[0] for column in relation.description or ()]
    found = [settlement_of(dict(zip(names, line, strict=True))) for line in relation.fetchall()]
    return {settled.call: settled for settled in found if settled is not None}


def new_ones(told: Sequence[Settlement], stored: Mapping[str, Settlement]) -> list[Settlement]:
    """Those that are not stored yet. Raises SettlementRefused for one that contradicts a stored one."""
    for settlement in told:
        before = stored.get(settlement.call)
        if before is not None and not before.agrees(settlement):
            raise SettlementRefused(
                f"{settlement.bill}: the call {settlement.call} is settled already by {before.bill}, at "
                f"{_shown(before)}, and this bill says {_shown(settlement)}; nothing was settled: find out which is "
                "right, and leave the other out"
            )
    return [settlement for settlement in told if settlement.call not in stored]


def settlement_rows(settlements: Iterable[Settlement], settled_at: str) -> list[Row]:
    return [
        {
            "call": each.call,
            "source": each.source,
            "bill": _text(each.bill),
            "arrived": each.arrived,
            "tokens": None if each.tokens is None else asdict(each.tokens),
            "usd": format(each.usd, "f"),
            "usd_counts": each.usd_counts,
            "told": None if each.told is None else _plain(each.told),
            "settled_at": settled_at,
        }
        for each in settlements
    ]


def _plain(told: Mapping[str, object], depth: int = 2) -> dict[str, object]:
    """A stranger's line in bounds: its first fields, two levels of them, and of texts and numbers their beginnings."""
    plain: dict[str, object] = {}
    for name, value in list(told.items())[:MOST_FIELDS]:
        if isinstance(value, Mapping) and depth > 1:
            plain[_text(name)] = _plain(value, depth - 1)
        elif value is None or isinstance(value, bool) or (isinstance(value, int) and abs(value) < 2**53):
            plain[_text(name)] = value
        else:
            plain[_text(name)] = _text(str(value)) if isinstance(value, str | Decimal) else "..."
    return plain


def _text(value: str) -> str:
    """Without what no column can hold."""
    return value[:MOST_TEXT].encode(errors="replace").decode().replace("\0", "?")


MOST_FIELDS = 100
MOST_TEXT = 1_000


def _shown(settlement: Settlement) -> str:
    if not settlement.arrived:
        return "nothing, for it never arrived"
    counts = {} if settlement.tokens is None else {name: n for name, n in asdict(settlement.tokens).items() if n}
    tokens = ", ".join(f"{name} {n}" for name, n in counts.items())
    return f"${settlement.usd:f}{f' ({tokens})' if tokens else ''}"
