"""Charges computed anew from stored rows: raw usage, request order, block sizes and price cards say everything."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from experiments.store.database import as_relation, bulk_insert, table_columns
from experiments.store.ledger import COMPUTED, Facts, explain_calls
from experiments.store.rows import Row

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_STORED = (
    "key", "trial_id", "attempt", "lane", "version", "blocks", "model", "flavour", "lifetime", "requested_at",
    "first_token_at", "outcome", "prompt_bytes", "max_output_tokens", "usage",
)  # fmt: skip

_IN = "(trial_id, attempt) IN (SELECT unnest($trials), unnest($attempts))"


def rebuild(connection: "DuckDBPyConnection", attempts: Sequence[tuple[str, int]], facts: Facts) -> None:
    """Replaces the charges of these attempts and the computed columns of their calls, in the caller's transaction."""
    chosen: dict[str, object] = {
        "trials": [trial for trial, _ in attempts],
        "attempts": [number for _, number in attempts],
    }
    calls = _grouped(connection, f"SELECT {', '.join(_STORED)} FROM calls WHERE {_IN}", chosen)  # noqa: S608
    messages = _grouped(
        connection,
        f"SELECT trial_id, attempt, lane, version, idx, hash, size FROM messages WHERE {_IN}",  # noqa: S608
        chosen,
    )
    charges: list[Row] = []
    for name in attempts:
        charges += explain_calls(calls.get(name, []), messages.get(name, []), facts)
    columns = table_columns(connection)
    connection.execute(f"DELETE FROM charges WHERE call IN (SELECT key FROM calls WHERE {_IN})", chosen)  # noqa: S608
    bulk_insert(connection, "charges", charges, columns["charges"])
    computed = [{name: row[name] for name in ("key", *COMPUTED)} for rows in calls.values() for row in rows]
    types = {name: kind for name, kind in columns["calls"].items() if name == "key" or name in COMPUTED}
    with as_relation(computed, types) as relation:
        assignments = ", ".join(f"{name} = new.{name}" for name in COMPUTED)
        connection.execute(f"UPDATE calls SET {assignments} FROM {relation} AS new WHERE calls.key = new.key")  # noqa: S608


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
