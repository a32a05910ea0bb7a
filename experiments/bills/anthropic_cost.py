"""Anthropic's cost report (Admin API, GET /v1/organizations/cost_report).

Buckets of a day. `amount` is a decimal text in the currency's LOWEST unit, cents: the API reference gives "123.45" in
USD as $1.23. Model, token_type and cost_type are null unless the report is grouped by description. Costs of the
priority tier are not in it, by the provider's own word.
"""

from collections.abc import Sequence

from experiments.bills.anthropic_usage import bounds
from experiments.bills.bill_line import EVERYTHING, Bill, BillLine, Classes, one
from experiments.bills.pages import read_buckets, tells
from experiments.bills.reading import MOST_USD, Document, Fields

NAME = "anthropic-cost"
PROVIDER = "anthropic"
CENTS = 100

_TOKEN_TYPES = {
    "uncached_input_tokens": "input",
    "cache_read_input_tokens": "cache_read",
    "cache_creation.ephemeral_5m_input_tokens": "cache_write_5m",
    "cache_creation.ephemeral_1h_input_tokens": "cache_write_1h",
    "output_tokens": "output",
}


def fits(document: Document) -> bool:
    return tells(document, "starting_at") == "costs"


def read(documents: Sequence[Document]) -> Bill:
    """Raises BillError, also for another currency than US dollars."""
    found = read_buckets(documents, bounds)
    lines = []
    for bucket in found.buckets:
        for result in bucket.results:
            result.dollars_only("currency")
            usd = result.needed_amount("amount", most=MOST_USD * CENTS) / CENTS
            model = result.text("model")
            lines.append(
                BillLine(bucket.day, () if model is None else (model,), _classes(result), result.where, usd=usd)
            )
    files = tuple(document.name for document in documents)
    return Bill(NAME, PROVIDER, files, tuple(lines), days=found.days, warnings=found.warnings)


def _classes(result: Fields) -> Classes:
    if result.text("cost_type") == "web_search":
        return one("web_search")
    name = _TOKEN_TYPES.get(result.text("token_type") or "")
    return EVERYTHING if name is None else one(name)
