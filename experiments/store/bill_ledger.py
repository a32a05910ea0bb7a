"""The stored calls of an experiment as bills are compared with them."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from decimal import Decimal
from math import ceil

from cost_model.ledger import DENSE_TOKENS_PER_BYTE, MOST_OUTPUT_TOKENS
from cost_model.prices import PriceBook
from cost_model.tokens import CLASSES
from experiments.bills.bill_line import EVERYTHING, PROMPT, Classes, one
from experiments.bills.ledger_call import LedgerCall, Piece
from experiments.store.facts import load_facts
from experiments.store.ledger import Facts
from experiments.store.reader import Reader

_CALLS = f"""
SELECT key, trial_id, attempt, model, wire_model, response_model, provider, requested_at, ended_at, outcome, turn,
    try, cost_usd, cost_low_usd, cost_high_usd, billed_usd, response_id, request_id, prompt_bytes, max_output_tokens,
    prompt_tokens, {", ".join(f"{name}_tokens" for name in CLASSES)}, settled_by,
    settled_by IS NOT NULL AND NOT arrived AS never_arrived
FROM calls JOIN (SELECT id, experiment FROM trials) AS trials ON trials.id = calls.trial_id
LEFT JOIN (SELECT call, bill AS settled_by, arrived FROM settlements) AS settlements ON settlements.call = calls.key
WHERE experiment = ? ORDER BY requested_at, key
"""  # noqa: S608

_CHARGES = """
SELECT call, charges.model, token_class, units, usd_low, usd_high
FROM charges JOIN calls ON calls.key = charges.call JOIN trials ON trials.id = calls.trial_id
WHERE trials.experiment = ? ORDER BY call, line
"""

_UNTOLD: Classes = frozenset(("input", "cache_read"))


@dataclass(frozen=True, slots=True)
class Counted:
    """A call with the tokens that are booked by class, without those that are 0; None where they are not known."""

    call: LedgerCall
    tokens: dict[str, int] | None


@dataclass(frozen=True, slots=True)
class BillLedger:
    """All calls of an experiment by key. `trials` are the ids of its trials, also of those without a call.

    `warnings` name journals that could not be read: their calls are missing.
    """

    calls: dict[str, Counted]
    trials: frozenset[str]
    facts: Facts
    simulated: bool
    warnings: tuple[str, ...]

    @property
    def low(self) -> Decimal:
        return sum((each.call.low for each in self.calls.values()), Decimal(0))

    @property
    def high(self) -> Decimal:
        return sum((each.call.high for each in self.calls.values()), Decimal(0))


def bill_ledger(reader: Reader, experiment: str, book: PriceBook) -> BillLedger:
    """Raises UnknownExperiment."""
    facts = load_facts(reader.connection, experiment, lambda: book)
    trials = reader.query("SELECT id, simulated FROM trials WHERE experiment = ?", [experiment]).rows
    names, lines = reader.query(_CALLS, [experiment])
    rows = {str(row["key"]): row for row in (dict(zip(names, line, strict=True)) for line in lines)}
    pieces: dict[str, list[Piece]] = {}
    for key, *charge in reader.query(_CHARGES, [experiment]).rows:
        if not rows[key]["never_arrived"]:
            pieces.setdefault(key, []).append(_piece(rows[key], *charge))
    calls = {key: Counted(_call(row, tuple(pieces.get(key, ()))), _tokens(row)) for key, row in rows.items()}
    return BillLedger(
        calls, frozenset(trial for trial, _ in trials), facts, any(each for _, each in trials), reader.warnings
    )


def attempt_of(key: str) -> str:
    """The trial and the attempt that a key names: "trial/number"."""
    return "/".join(key.split("/")[:2])


def over(calls: dict[str, Counted], attempts: set[str]) -> Iterator[Counted]:
    """The calls of these attempts."""
    return (each for each in calls.values() if each.call.attempt in attempts)


def _call(row: dict[str, object], pieces: tuple[Piece, ...]) -> LedgerCall:
    def text(name: str) -> str | None:
        return None if row[name] is None else str(row[name])

    return LedgerCall(
        key=str(row["key"]),
        attempt=f"{row['trial_id']}/{row['attempt']}",
        model=str(row["model"]),
        wire_model=str(row["wire_model"]),
        response_model=text("response_model"),
        provider=str(row["provider"]),
        requested_at=row["requested_at"],  # type: ignore[arg-type]  # the column's type
        ended_at=row["ended_at"],  # type: ignore[arg-type]  # the column's type
        outcome=text("outcome"),
        turn=str(row["turn"]),
        try_number=int(str(row["try"])),
        cost_usd=row["cost_usd"],  # type: ignore[arg-type]  # the column's type
        low=row["cost_low_usd"] or Decimal(0),  # type: ignore[arg-type]  # the column's type
        high=row["cost_high_usd"] or Decimal(0),  # type: ignore[arg-type]  # the column's type
        billed=row["billed_usd"] is not None,
        ids=tuple(str(row[name]) for name in ("response_id", "request_id") if row[name]),
        settled_by=text("settled_by"),
        pieces=pieces,
    )


def _tokens(row: dict[str, object]) -> dict[str, int] | None:
    """Where the dollars are a range, the tokens are not whole: an answer broke off, or a read is not told."""
    if row["never_arrived"]:
        return {}
    if row["prompt_tokens"] is None or row["cost_usd"] is None:
        return None
    return {name: count for name in CLASSES if (count := int(str(row[f"{name}_tokens"] or 0)))}


def _piece(
    row: dict[str, object], model: str, of: str, units: int | None, usd_low: Decimal, usd_high: Decimal
) -> Piece:
    piece = Piece(one(of), units or 0, units or 0, usd_low, usd_high, None if model == row["model"] else model)
    prompt = ceil(int(str(row["prompt_bytes"])) * DENSE_TOKENS_PER_BYTE) + 1
    limit, told = row["max_output_tokens"], int(str(row["output_tokens"] or 0))
    output = max(told, MOST_OUTPUT_TOKENS if limit is None else int(str(limit)))
    if of == "output" and units is None:
        return replace(piece, low=told, high=output)
    if of != "unknown":
        return piece
    if units is not None:
        return replace(piece, classes=_UNTOLD)
    if row["settled_by"] is not None:
        return replace(piece, classes=EVERYTHING, low=0, high=prompt + output)
    return replace(piece, classes=PROMPT, low=0, high=prompt)
