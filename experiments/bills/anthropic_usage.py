"""Anthropic's usage report of the Messages API (Admin API, GET /v1/organizations/usage_report/messages).

Buckets of a minute, an hour or a day with `starting_at` and `ending_at` (RFC 3339, UTC); a result has tokens by class:
uncached_input_tokens, cache_creation by lifetime, cache_read_input_tokens, output_tokens, and searches under
server_tool_use. `model` is null unless the report is grouped by model. Fields as in the API reference of the Admin API.
"""

from collections import Counter
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


_ALWAYS = {
    "cache_read_input_tokens": {"cache_read_input_tokens"},
    "cache_creation": {"cache_creation", "cache_creation_5m_input_tokens", "cache_creation_1h_input_tokens"},
}
"""What every result has, one of these fields, and what it is called; the other two are demanded."""


def fits(document: Document) -> bool:
    return tells(document, "starting_at") == "usage"


def read(documents: Sequence[Document]) -> Bill:
    """Raises BillError."""
    found = read_buckets(documents, bounds)
    lines, lacking = [], Counter[str]()
    for bucket in found.buckets:
        for result in bucket.results:
            model = result.text("model")
            lacking.update(name for name, fields in _ALWAYS.items() if not fields & result.raw().keys())
            for name, count in _counts(result):
                models = () if model is None else (model,)
                lines.append(BillLine(bucket.day, models, one(name), result.where, units=count))
    warnings = (
        f"{documents[0].name}: {count} results have no {name}, which the documented report always has: these tokens "
        "are not compared where no result tells them; export the report anew"
        for name, count in lacking.items()
    )
    files = tuple(document.name for document in documents)
    return Bill(NAME, PROVIDER, files, tuple(lines), days=found.days, warnings=(*found.warnings, *warnings))


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
