"""OpenRouter's activity (GET /api/v1/activity): a row a day, model and endpoint.

`usage` is dollars spent as credits, `byok_usage_inference` dollars that an own key was charged outside; both together
are what the calls cost, as the ledger books them. `prompt_tokens` lump everything that was sent; `completion_tokens`
hold the reasoning. Fields and units as in the reference of the API; days are UTC, the last thirty whole ones.
"""

from collections.abc import Iterator, Sequence
from datetime import timedelta

from experiments.bills.bill_line import EVERYTHING, PROMPT, Bill, BillLine, one
from experiments.bills.reading import Document, Fields

NAME = "openrouter-activity"
PROVIDER = "openrouter"


def fits(document: Document) -> bool:
    return any(isinstance(item, dict) and "date" in item and "usage" in item for _, item in _items(document))


def read(documents: Sequence[Document]) -> Bill:
    """Raises BillError."""
    lines: list[BillLine] = []
    for document in documents:
        for where, item in _items(document):
            lines += _lines(Fields(item, where))
    days = [line.day for line in lines]
    whole = (min(days) + timedelta(days=n) for n in range((max(days) - min(days)).days + 1)) if days else ()
    return Bill(NAME, PROVIDER, tuple(document.name for document in documents), tuple(lines), days=frozenset(whole))


def _items(document: Document) -> Iterator[tuple[str, object]]:
    number = 0
    for value in document.values:
        data = value.get("data") if isinstance(value, dict) else value
        for item in data if isinstance(data, list) else [value]:
            number += 1
            yield f"{document.name}: entry {number}", item


def _lines(item: Fields) -> Iterator[BillLine]:
    day = item.day("date")
    models = tuple(name for field in ("model_permaslug", "model") if (name := item.text(field)) is not None)
    usd = item.needed_amount("usage") + (item.amount("byok_usage_inference") or 0)
    yield BillLine(day, models, EVERYTHING, item.where, usd=usd)
    yield BillLine(day, models, PROMPT, item.where, units=item.needed_units("prompt_tokens"))
    yield BillLine(day, models, one("output"), item.where, units=item.needed_units("completion_tokens"))
