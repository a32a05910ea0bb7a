"""Anthropic's usage report of the Messages API (Admin API, GET /v1/organizations/usage_report/messages).

Buckets of a minute, an hour or a day with `starting_at` and `ending_at` (RFC 3339, UTC); a result has tokens by class:
uncached_input_tokens, cache_creation by lifetime, cache_read_input_tokens, output_tokens, and searches under
server_tool_use. `model` is null unless the report is grouped by model. Fields as in the API reference of the Admin API.
"""

from collections.abc import Sequence
from datetime import datetime

from experiments.bills.bill_line import Bill, BillLine, one
from experiments.bills.pages import read_buckets, tells
from experiments.bills.reading import Document, Fields

NAME = "anthropic-usage"
PROVIDER = "anthropic"

_CREATION = {"ephemeral_5m_input_tokens": "cache_write_5m", "ephemeral_1h_input_tokens": "cache_write_1h"}
_FLAT = {
    "uncached_input_tokens": "input",
    "cache_read_input_tokens": "cache_read",
    "cache_creation_5m_input_tokens": "cache_write_5m",
    "cache_creation_1h_input_tokens": "cache_write_1h",
    "output_tokens": "output",
}
"""Of a result. The two flat names for writes stand in some descriptions of the report in place of cache_creation."""


def fits(document: Document) -> bool:
    return tells(document, "starting_at") == "usage"


def read(documents: Sequence[Document]) -> Bill:
    """Raises BillError."""
    found = read_buckets(documents, bounds)
    lines = []
    for bucket in found.buckets:
        for result in bucket.results:
            model = result.text("model")
            for name, count in _counts(result):
                models = () if model is None else (model,)
                lines.append(BillLine(bucket.day, models, one(name), result.where, units=count))
    files = tuple(document.name for document in documents)
    return Bill(NAME, PROVIDER, files, tuple(lines), days=found.days, warnings=found.warnings)


def bounds(bucket: Fields) -> tuple[datetime, datetime]:
    return bucket.moment("starting_at"), bucket.moment("ending_at")


def _counts(result: Fields) -> list[tuple[str, int]]:
    result.needed_units("uncached_input_tokens")
    result.needed_units("output_tokens")
    counts = [(name, result.units(field)) for field, name in _FLAT.items()]
    if "cache_creation" in result:
        creation = Fields(result.get("cache_creation"), f"{result.where}, cache_creation")
        counts += [(name, creation.units(field)) for field, name in _CREATION.items()]
    if "server_tool_use" in result:
        tools = Fields(result.get("server_tool_use"), f"{result.where}, server_tool_use")
        counts.append(("web_search", tools.units("web_search_requests") or 0))
    return [(name, count) for name, count in counts if count is not None]
