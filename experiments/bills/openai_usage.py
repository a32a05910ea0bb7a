"""OpenAI's usage of completions: the API's pages (GET /v1/organization/usage/completions) and the dashboard's CSV.

Buckets with `start_time` and `end_time` in seconds since 1970; a result has `input_tokens`, which hold the cached ones
and those written to a cache, `input_cached_tokens`, `input_cache_write_tokens` and `output_tokens`. The first two are
documented in the API reference; where writes are not told they are inside the uncached rest. `model` is null unless
grouped by model. The CSV has the same names as columns and writes whole numbers with a decimal point.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime

from experiments.bills.bill_line import PROMPT, UNCACHED, WRITES, Bill, BillLine, Classes, one
from experiments.bills.pages import read_buckets, tells
from experiments.bills.reading import Document, Fields, has_columns, rows
from experiments.errors import BillError

NAME = "openai-usage"
PROVIDER = "openai"


def fits(document: Document) -> bool:
    return has_columns(document, "start_time", "input_tokens", "model") or tells(document, "start_time") == "usage"


def read(documents: Sequence[Document]) -> Bill:
    """Raises BillError."""
    found = read_buckets([document for document in documents if document.table is None], bounds)
    lines = [line for bucket in found.buckets for each in bucket.results for line in _lines(each, bucket.start)]
    days = set(found.days)
    for document in documents:
        for row in rows(document):
            start = row.seconds("start_time", of_text=True)
            days.add(start.date())
            lines += _lines(row, start, of_text=True)
    files = tuple(document.name for document in documents)
    return Bill(NAME, PROVIDER, files, tuple(lines), days=frozenset(days), warnings=found.warnings)


def bounds(bucket: Fields) -> tuple[datetime, datetime]:
    return bucket.seconds("start_time"), bucket.seconds("end_time")


def _lines(result: Fields, start: datetime, *, of_text: bool = False) -> Iterator[BillLine]:
    if "input_tokens" not in result and "output_tokens" not in result:
        # A day without use, or a result of another kind (images, seconds of speech).
        return
    model = result.text("model")
    for classes, count in _counts(result, of_text):
        yield BillLine(start.date(), () if model is None else (model,), classes, result.where, units=count)


def _counts(result: Fields, of_text: bool) -> Iterator[tuple[Classes, int]]:
    total = result.needed_units("input_tokens", of_text=of_text)
    cached = result.units("input_cached_tokens", of_text=of_text)
    written = result.units("input_cache_write_tokens", of_text=of_text)
    if (cached or 0) + (written or 0) > total:
        raise BillError(
            f"{result.where}: input_cached_tokens ({cached or 0}) and input_cache_write_tokens ({written or 0}) exceed "
            f"input_tokens ({total}); give the export as it was downloaded"
        )
    if cached is None:
        yield PROMPT, total
    else:
        yield one("cache_read"), cached
        if written is None:
            yield UNCACHED, total - cached
        else:
            yield WRITES, written
            yield one("input"), total - cached - written
    output = result.units("output_tokens", of_text=of_text)
    if output is not None:
        yield one("output"), output
