"""The CSV export of costs from Anthropic's Console: a row a day, model, key and token type.

Nobody documents its columns. Those read here are the ones that published importers of real exports name:
`usage_date_utc`, `model` (a name for people, "Claude Haiku 4.5"), `token_type`, `cost_type` and `cost_usd`. By its name
`cost_usd` is taken to be whole dollars, and not cents as in the cost report; how many decimals it keeps is not known.
"""

from collections.abc import Sequence

from experiments.bills.bill_line import EVERYTHING, Bill, BillLine, Classes, one
from experiments.bills.reading import Document, Fields, has_columns, rows

NAME = "anthropic-console-cost"
PROVIDER = "anthropic"

_TOKEN_TYPES = {
    "input_no_cache": "input",
    "input_cache_read": "cache_read",
    "input_cache_write_5m": "cache_write_5m",
    "input_cache_write_1h": "cache_write_1h",
    "output": "output",
}


def fits(document: Document) -> bool:
    return has_columns(document, "usage_date_utc", "model", "cost_usd")


def read(documents: Sequence[Document]) -> Bill:
    """Raises BillError."""
    lines = [_line(row) for document in documents for row in rows(document)]
    days = frozenset(line.day for line in lines)
    return Bill(NAME, PROVIDER, tuple(document.name for document in documents), tuple(lines), days=days)


def _line(row: Fields) -> BillLine:
    row.dollars_only("currency")
    model, usd = row.text("model"), row.needed_amount("cost_usd")
    return BillLine(row.day("usage_date_utc"), () if model is None else (model,), _classes(row), row.where, usd=usd)


def _classes(row: Fields) -> Classes:
    if row.text("cost_type") == "web_search":
        return one("web_search")
    name = _TOKEN_TYPES.get(row.text("token_type") or "")
    return EVERYTHING if name is None else one(name)
