"""The CSV export of usage from Anthropic's Console: a row a day (or hour), model and key.

Nobody documents its columns. Those read here are the ones that published importers of real exports name:
`usage_date_utc`, `model_version`, `usage_input_tokens_no_cache`, `usage_input_tokens_cache_write_5m` and `..._1h`
(older exports: `usage_input_tokens_cache_write`), `usage_input_tokens_cache_read`, `usage_output_tokens`,
`web_search_count`.
"""

from collections.abc import Iterator, Sequence

from experiments.bills.bill_line import WRITES, Bill, BillLine, one
from experiments.bills.reading import Document, Fields, has_columns, rows

NAME = "anthropic-console-usage"
PROVIDER = "anthropic"

_COLUMNS = {
    "usage_input_tokens_no_cache": one("input"),
    "usage_input_tokens_cache_write_5m": one("cache_write_5m"),
    "usage_input_tokens_cache_write_1h": one("cache_write_1h"),
    "usage_input_tokens_cache_write": WRITES,
    "usage_input_tokens_cache_read": one("cache_read"),
    "usage_output_tokens": one("output"),
    "web_search_count": one("web_search"),
}


def fits(document: Document) -> bool:
    return has_columns(document, "usage_date_utc", "model_version", "usage_output_tokens")


def read(documents: Sequence[Document]) -> Bill:
    """Raises BillError."""
    lines = [line for document in documents for row in rows(document) for line in _lines(row)]
    days = frozenset(line.day for line in lines)
    return Bill(NAME, PROVIDER, tuple(document.name for document in documents), tuple(lines), days=days)


def _lines(row: Fields) -> Iterator[BillLine]:
    day, model = row.day("usage_date_utc"), row.needed_text("model_version")
    row.needed_units("usage_output_tokens", of_text=True)
    for column, classes in _COLUMNS.items():
        count = row.units(column, of_text=True)
        if count is not None:
            yield BillLine(day, (model,), classes, row.where, units=count)
