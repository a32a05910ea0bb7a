"""OpenRouter call by call: the CSV export of the activity page's log, and records of single generations.

The CSV has `generation_id`, `created_at` (UTC, by the look of it), `cost_total` and `byok_usage_inference` in dollars,
`tokens_prompt`, `tokens_completion`, `model_permaslug`; published importers of real exports name these columns, no
reference does. A record (GET /api/v1/generation) has `id`, `total_cost`, `upstream_inference_cost`, `native_tokens_*`.
Whose tokenizer counted the CSV's tokens is not told, and no row tells what was written to a cache. So a row settles a
call's dollars and its tokens stay unknown.
"""

from collections.abc import Iterator, Sequence

from experiments.bills.bill_line import Bill, CallLine
from experiments.bills.reading import MOST_CALL_USD, Document, Fields, has_columns, rows

NAME = "openrouter-generations"
PROVIDER = "openrouter"


def fits(document: Document) -> bool:
    return has_columns(document, "generation_id", "created_at", "cost_total") or any(
        isinstance(item, dict) and "total_cost" in item and "id" in item for _, item in _records(document)
    )


def read(documents: Sequence[Document]) -> Bill:
    """Raises BillError."""
    calls: list[CallLine] = []
    for document in documents:
        calls += [_row(row) for row in rows(document)]
        calls += [_record(Fields(item, where)) for where, item in _records(document)]
    files = tuple(document.name for document in documents)
    return Bill(NAME, PROVIDER, files, calls=tuple(calls), days=frozenset(call.at.date() for call in calls))


def _records(document: Document) -> Iterator[tuple[str, object]]:
    number = 0
    for value in document.values:
        data = value.get("data", value) if isinstance(value, dict) else value
        for item in data if isinstance(data, list) else [data]:
            number += 1
            inner = item.get("data", item) if isinstance(item, dict) else item
            yield f"{document.name}: record {number}", inner


def _row(row: Fields) -> CallLine:
    model = row.text("model_permaslug")
    return CallLine(
        reference=row.needed_text("generation_id"),
        models=() if model is None else (model,),
        at=row.moment("created_at"),
        units={},
        usd=row.needed_amount("cost_total", most=MOST_CALL_USD)
        + (row.amount("byok_usage_inference", most=MOST_CALL_USD) or 0),
        where=row.where,
        told=row.raw(),
    )


def _record(record: Fields) -> CallLine:
    model = record.text("model")
    upstream = record.amount("upstream_inference_cost", most=MOST_CALL_USD) or 0
    own_key = upstream if record.get("is_byok") is True else 0
    return CallLine(
        reference=record.needed_text("id"),
        models=() if model is None else (model,),
        at=record.moment("created_at"),
        units={},
        usd=record.needed_amount("total_cost", most=MOST_CALL_USD) + own_key,
        where=record.where,
        told=record.raw(),
    )
