"""OpenAI's costs: the API's pages (GET /v1/organization/costs) and the dashboard's CSV.

Buckets of a day. A result has `amount` {value, currency}; the reference shows the value as a number, real answers send
a decimal text of many digits; both are read, as whole dollars. `line_item` is null unless grouped by it; observed ones
read "gpt-4o-mini-2024-07-18, cached input": a model, a comma, what was billed. The wording is not documented: what it
does not tell is compared on the sum. "evals | model, input" is traffic of another product. The CSV flattens the amount
to `amount_value` and `amount_currency`.
"""

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal

from experiments.bills.bill_line import EVERYTHING, UNCACHED, WRITES, Bill, BillLine, Classes, one
from experiments.bills.openai_usage import bounds
from experiments.bills.pages import read_buckets, tells
from experiments.bills.reading import Document, Fields, has_columns, rows

NAME = "openai-costs"
PROVIDER = "openai"


def fits(document: Document) -> bool:
    return has_columns(document, "start_time", "amount_value") or tells(document, "start_time") == "costs"


def read(documents: Sequence[Document]) -> Bill:
    """Raises BillError, also for another currency than US dollars."""
    found = read_buckets([document for document in documents if document.table is None], bounds)
    lines, days = [], set(found.days)
    for bucket in found.buckets:
        for result in bucket.results:
            amount = Fields(result.get("amount"), f"{result.where}, amount")
            amount.dollars_only("currency")
            lines.append(_line(result, bucket.start, amount.needed_amount("value")))
    for document in documents:
        for row in rows(document):
            start = row.seconds("start_time", of_text=True)
            days.add(start.date())
            if "amount_value" in row:
                row.dollars_only("amount_currency")
                lines.append(_line(row, start, row.needed_amount("amount_value")))
    files = tuple(document.name for document in documents)
    return Bill(NAME, PROVIDER, files, tuple(lines), days=frozenset(days), warnings=found.warnings)


def _line(result: Fields, start: datetime, usd: Decimal) -> BillLine:
    models, classes = _of_item(result.text("line_item"))
    return BillLine(start.date(), models, classes, result.where, usd=usd)


def _of_item(item: str | None) -> tuple[tuple[str, ...], Classes]:
    if item is None or "|" in item or "," not in item:
        return (), EVERYTHING
    model, _, billed = item.rpartition(",")
    return (model.strip(),), next((classes for word, classes in _WORDS if word in billed.lower()), EVERYTHING)


_WORDS: tuple[tuple[str, Classes], ...] = (
    ("write", WRITES),
    ("cached input", one("cache_read")),
    ("input", UNCACHED),
    ("output", one("output")),
    ("search", one("web_search")),
)
"""The first word that stands in what was billed says its class."""
