"""Reports that come in pages of time buckets: whether the pages are all there, each bucket once."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Literal

from experiments.bills.reading import Document, Fields
from experiments.errors import BillError


@dataclass(frozen=True, slots=True)
class Bucket:
    """[start, end) and what happened in it, one `Fields` a result."""

    start: datetime
    end: datetime
    results: tuple[Fields, ...]

    @property
    def day(self) -> date:
        return self.start.date()


@dataclass(frozen=True, slots=True)
class Buckets:
    buckets: tuple[Bucket, ...]
    warnings: tuple[str, ...]

    @property
    def days(self) -> frozenset[date]:
        return frozenset(bucket.day for bucket in self.buckets)


@dataclass(frozen=True, slots=True)
class _Page:
    where: str
    more: bool
    buckets: tuple[Bucket, ...]


def bucket_items(values: Iterable[object]) -> Iterator[Mapping[str, object]]:
    """The buckets of all pages, unread: to recognise a report by."""
    for value in values:
        for page in value if isinstance(value, list) else [value]:
            if isinstance(page, dict):
                data = page.get("data")
                yield from (each for each in (data if isinstance(data, list) else [page]) if isinstance(each, dict))


def tells(document: Document, start: str) -> Literal["costs", "usage"] | None:
    """What a report in buckets that begin with the field `start` tells, by its results; None for another document.

    Days without use are empty in both.
    """
    buckets = [bucket for bucket in bucket_items(document.values) if start in bucket]
    if not buckets:
        return None
    lists = (bucket.get("results") or bucket.get("result") for bucket in buckets)
    results = (result for each in lists if isinstance(each, list) for result in each)
    return "costs" if any(isinstance(result, dict) and "amount" in result for result in results) else "usage"


def read_buckets(documents: Sequence[Document], bounds: Callable[[Fields], tuple[datetime, datetime]]) -> Buckets:
    """All buckets of all pages; one that comes in two pages word for word is counted once. Raises BillError."""
    pages = [
        _page(page, f"{document.name}: page {number}", bounds)
        for document in documents
        for number, page in enumerate(_pages(document.values), start=1)
    ]
    warnings = [
        f"{page.where} has more behind it (has_more) and its follow-up was not given: the bill is incomplete"
        for page in pages
        if page.more and not _followed(page, pages)
    ]
    seen: dict[str, str] = {}
    kept: list[Bucket] = []
    for page in pages:
        repeated = 0
        for bucket in page.buckets:
            if not bucket.results:
                kept.append(bucket)
                continue
            text = _word_for_word(bucket, page.where)
            if seen.setdefault(text, page.where) != page.where:
                repeated += 1
                continue
            kept.append(bucket)
        if repeated:
            warnings.append(f"{page.where}: {repeated} buckets stand in an earlier page word for word; counted once")
    return Buckets(tuple(kept), tuple(warnings))


def _word_for_word(bucket: Bucket, where: str) -> str:
    try:
        return json.dumps([str(bucket.start), [each.raw() for each in bucket.results]], sort_keys=True, default=str)
    except (RecursionError, ValueError):
        raise BillError(
            f"{where}: nested too deep, or a number without end; give the export as it was downloaded"
        ) from None


def _pages(values: Iterable[object]) -> list[object]:
    """A page, a list of pages, or bare buckets."""
    found: list[object] = []
    for value in values:
        found += value if isinstance(value, list) else [value]
    if found and all(isinstance(each, dict) and "data" not in each for each in found):
        return [{"data": found}]
    return found


def _page(value: object, where: str, bounds: Callable[[Fields], tuple[datetime, datetime]]) -> _Page:
    page = Fields(value, where)
    data = page.get("data")
    if not isinstance(data, list):
        raise page.wrong("data", "a list of buckets")
    buckets = [_bucket(Fields(each, f"{where}, bucket {number}"), bounds) for number, each in enumerate(data, start=1)]
    more = page.get("has_more")
    if more not in (None, True, False):
        raise page.wrong("has_more", "true or false")
    return _Page(where, more is True, tuple(buckets))


def _bucket(bucket: Fields, bounds: Callable[[Fields], tuple[datetime, datetime]]) -> Bucket:
    start, end = bounds(bucket)
    if not start < end or end > datetime.combine(start.date() + timedelta(days=1), datetime.min.time(), UTC):
        raise BillError(
            f"{bucket.where}: lasts from {start:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M}, expected a day (UTC) or "
            "a part of one; export it by day"
        )
    # One reference of OpenAI's calls the list `result`.
    results = bucket.get("results") if "results" in bucket or bucket.get("result") is None else bucket.get("result")
    if not isinstance(results, list):
        raise bucket.wrong("results", "a list")
    read = tuple(Fields(each, f"{bucket.where}, result {number}") for number, each in enumerate(results, start=1))
    return Bucket(start, end, read)


def _followed(page: _Page, pages: Iterable[_Page]) -> bool:
    """Whether another page begins where this one ends, or within its last bucket."""
    if not page.buckets:
        return False
    last = page.buckets[-1]
    others = (other.buckets[0] for other in pages if other is not page and other.buckets)
    return any(first.start in (last.start, last.end) for first in others)
