"""Charges computed anew from stored rows: raw usage, request order, block sizes and price cards say everything.

And expiries from what stands in the file once its charges do.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cost_model.causes import EXPIRY_REBUILD
from experiments.store.database import Columns, as_relation, bulk_insert, table_columns
from experiments.store.expiries import KINDS, expiry_rows
from experiments.store.handed import fill_handed_tokens
from experiments.store.ledger import COMPUTED, Facts, explain_calls
from experiments.store.rows import Row, Rows
from experiments.store.settlements import SETTLED, SETTLEMENT

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

BATCH = 200
"""Attempts that are held in memory at a time."""

_STORED = (
    "key", "trial_id", "attempt", "lane", "version", "blocks", "model", "flavour", "lifetime", "requested_at",
    "first_token_at", "outcome", "prompt_bytes", "max_output_tokens", "usage", "role", "turn",
)  # fmt: skip

_IN = "(trial_id, attempt) IN (SELECT unnest($trials), unnest($attempts))"

_EXPIRED = f"""
SELECT trial_id, attempt, call, cause, units, charges.excess_usd FROM charges JOIN calls ON calls.key = call
WHERE cause = '{EXPIRY_REBUILD}'
"""  # noqa: S608


def rebuild(connection: "DuckDBPyConnection", attempts: Sequence[tuple[str, int]], facts: Facts) -> None:
    """Replaces the charges and expiries of these attempts and the computed columns of their calls, in the caller's
    transaction."""
    chosen = _chosen(attempts)
    stored = f"SELECT {', '.join(_STORED)}, {SETTLEMENT} FROM calls {SETTLED} WHERE {_IN}"  # noqa: S608
    calls = _grouped(connection, stored, chosen)
    messages = _grouped(
        connection,
        f"SELECT trial_id, attempt, lane, version, idx, hash, size FROM messages WHERE {_IN}",  # noqa: S608
        chosen,
    )
    handovers = _grouped(
        connection,
        f"SELECT trial_id, attempt, seq, to_role, payload, handed_at FROM handovers WHERE {_IN}",  # noqa: S608
        chosen,
    )
    charges: list[Row] = []
    for name in attempts:
        charges += explain_calls(calls.get(name, []), messages.get(name, []), facts)
        fill_handed_tokens(handovers.get(name, []), calls.get(name, []), messages.get(name, []))
    columns = table_columns(connection)
    connection.execute(f"DELETE FROM charges WHERE call IN (SELECT key FROM calls WHERE {_IN})", chosen)  # noqa: S608
    bulk_insert(connection, "charges", charges, columns["charges"])
    computed = [{name: row[name] for name in ("key", *COMPUTED)} for rows in calls.values() for row in rows]
    types = {name: kind for name, kind in columns["calls"].items() if name == "key" or name in COMPUTED}
    with as_relation(computed, types) as relation:
        assignments = ", ".join(f"{name} = new.{name}" for name in COMPUTED)
        connection.execute(f"UPDATE calls SET {assignments} FROM {relation} AS new WHERE calls.key = new.key")  # noqa: S608
    _rewrite_handed(connection, [row for rows in handovers.values() for row in rows], columns["handovers"])
    _rebuild_expiries(connection, attempts)


def _rewrite_handed(connection: "DuckDBPyConnection", handovers: Sequence[Row], columns: Columns) -> None:
    names = ("trial_id", "attempt", "seq", "tokens")
    with as_relation(
        [{name: row[name] for name in names} for row in handovers], {name: columns[name] for name in names}
    ) as relation:
        connection.execute(
            f"UPDATE handovers SET tokens = new.tokens FROM {relation} AS new WHERE handovers.trial_id = new.trial_id "  # noqa: S608
            "AND handovers.attempt = new.attempt AND handovers.seq = new.seq"
        )


def fill_expiries(connection: "DuckDBPyConnection") -> None:
    """Gives a file whose charges are older than its table `expiries` the rows of it, in the caller's transaction."""
    attempts = connection.execute(
        f"SELECT DISTINCT trial_id, attempt FROM ({_EXPIRED}) ORDER BY ALL"  # noqa: S608
    ).fetchall()
    for start in range(0, len(attempts), BATCH):
        _rebuild_expiries(connection, attempts[start : start + BATCH])


def _rebuild_expiries(connection: "DuckDBPyConnection", attempts: Sequence[tuple[str, int]]) -> None:
    chosen = _chosen(attempts)
    of_these = f"IN (SELECT key FROM calls WHERE {_IN})"  # noqa: S608
    charges = _grouped(connection, f"{_EXPIRED} AND call {of_these}", chosen)
    expired = _chosen(list(charges))
    calls = _grouped(
        connection,
        "SELECT key, trial_id, attempt, role, lane, requested_at, first_token_at, ended_at, idle_s "  # noqa: S608
        f"FROM calls WHERE {_IN} ORDER BY key",
        expired,
    )
    spans = _grouped(
        connection,
        "SELECT trial_id, attempt, kind, lane, started_at, ended_at FROM spans "  # noqa: S608
        f"WHERE {_IN} AND kind IN (SELECT unnest($kinds)) ORDER BY seq",
        {**expired, "kinds": list(KINDS)},
    )
    rows: Rows = {"expiries": [], "expiry_holds": []}
    for name, rebuilt in charges.items():
        for table, lines in expiry_rows(calls[name], rebuilt, spans.get(name, [])).items():
            rows[table] += lines
    columns = table_columns(connection)
    for table, lines in rows.items():
        connection.execute(f"DELETE FROM {table} WHERE call {of_these}", chosen)  # noqa: S608
        bulk_insert(connection, table, lines, columns[table])


def _chosen(attempts: Sequence[tuple[str, int]]) -> dict[str, object]:
    return {"trials": [trial for trial, _ in attempts], "attempts": [number for _, number in attempts]}


def _grouped(
    connection: "DuckDBPyConnection", query: str, chosen: dict[str, object]
) -> dict[tuple[str, int], list[Row]]:
    relation = connection.execute(query, chosen)
    names = [column[0] for column in relation.description or ()]
    found: dict[tuple[str, int], list[Row]] = {}
    for line in relation.fetchall():
        row = dict(zip(names, line, strict=True))
        found.setdefault((row["trial_id"], row["attempt"]), []).append(row)
    return found
