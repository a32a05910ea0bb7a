"""The ledger against bills: equal where they are, and every other figure is named with its model, day and class."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.bills.bill_line import EVERYTHING, PROMPT, UNCACHED, one
from experiments.bills.comparison import Comparison, compare
from experiments.bills.ledger_call import LedgerCall
from experiments.errors import BillError
from tests.bill_ledgers import PRICE, booked, read_text
from tests.store_trials import EPOCH

MIDNIGHT = datetime(2026, 11, 24, tzinfo=UTC)
MODELS = ("claude-alpha-5", "gpt-beta-2026-08-07")
CLASSES = tuple(PRICE)

CALLS = st.lists(
    st.tuples(
        st.sampled_from(MODELS),
        st.integers(0, 3 * 24 * 60 - 2),
        st.dictionaries(st.sampled_from(CLASSES), st.integers(1, 10**7), min_size=1),
    ),
    min_size=1,
    max_size=8,
)


def ledger(drawn: Sequence[tuple[str, int, Mapping[str, int]]]) -> list[LedgerCall]:
    return [
        booked(number, tokens, model=model, at=MIDNIGHT + timedelta(minutes=minute), seconds=5)
        for number, (model, minute, tokens) in enumerate(drawn)
    ]


def summed(calls: Sequence[LedgerCall], minutes: int) -> dict[tuple[datetime, str, str], int]:
    """Tokens by bucket, model and class."""
    found: dict[tuple[datetime, str, str], int] = {}
    for call in calls:
        past = (call.requested_at - MIDNIGHT) // timedelta(minutes=minutes)
        for piece in call.pieces:
            place = (MIDNIGHT + past * timedelta(minutes=minutes), call.wire_model, next(iter(piece.classes)))
            found[place] = found.get(place, 0) + piece.low
    return found


def pages(buckets: Mapping[datetime, list[dict[str, object]]], minutes: int, cut: int, start: str) -> str:
    """The buckets as a provider's pages, cut somewhere, one behind another."""

    def told(moment: datetime) -> object:
        return moment.isoformat() if start == "starting_at" else int(moment.timestamp())

    end = "ending_at" if start == "starting_at" else "end_time"
    whole = [MIDNIGHT + n * timedelta(minutes=minutes) for n in range(3 * 24 * 60 // minutes)]
    data: list[dict[str, object]] = [
        {start: told(at), end: told(at + timedelta(minutes=minutes)), "results": buckets.get(at, [])} for at in whole
    ]
    cut = cut % (len(data) - 1) + 1
    return json.dumps({"data": data[:cut], "has_more": True}) + json.dumps({"data": data[cut:], "has_more": False})


def anthropic_usage(tokens: Mapping[tuple[datetime, str, str], int], minutes: int, cut: int) -> str:
    buckets: dict[datetime, list[dict[str, object]]] = {}
    for at, model in sorted({(at, model) for at, model, _ in tokens}):
        count = {name: tokens.get((at, model, name), 0) for name in CLASSES}
        buckets.setdefault(at, []).append(
            {
                "model": model,
                "uncached_input_tokens": count["input"],
                "cache_read_input_tokens": count["cache_read"],
                "cache_creation": {
                    "ephemeral_5m_input_tokens": count["cache_write_5m"],
                    "ephemeral_1h_input_tokens": count["cache_write_1h"],
                },
                "output_tokens": count["output"],
            }
        )
    return pages(buckets, minutes, cut, "starting_at")


def openai_usage(tokens: Mapping[tuple[datetime, str, str], int], minutes: int, cut: int) -> str:
    buckets: dict[datetime, list[dict[str, object]]] = {}
    for at, model in sorted({(at, model) for at, model, _ in tokens}):
        count = {name: tokens.get((at, model, name), 0) for name in CLASSES}
        buckets.setdefault(at, []).append(
            {
                "model": model,
                "input_tokens": sum(count.values()) - count["output"],
                "input_cached_tokens": count["cache_read"],
                "output_tokens": count["output"],
            }
        )
    return pages(buckets, minutes, cut, "start_time")


COSTS = {
    "input": "uncached_input_tokens",
    "cache_read": "cache_read_input_tokens",
    "cache_write_5m": "cache_creation.ephemeral_5m_input_tokens",
    "cache_write_1h": "cache_creation.ephemeral_1h_input_tokens",
    "output": "output_tokens",
}


def anthropic_cost(tokens: Mapping[tuple[datetime, str, str], int], cut: int) -> str:
    buckets: dict[datetime, list[dict[str, object]]] = {}
    for (at, model, name), count in sorted(tokens.items()):
        cents = f"{count * PRICE[name] * 100:f}"
        buckets.setdefault(at, []).append(
            {"model": model, "amount": cents, "currency": "USD", "token_type": COSTS[name], "cost_type": "tokens"}
        )
    return pages(buckets, 24 * 60, cut, "starting_at")


def exact(found: Comparison) -> bool:
    return all(row.exact and not row.difference for row in found.rows) and not found.other and not found.outside


WIDTHS = st.sampled_from((1, 60, 24 * 60))


@settings(deadline=None, max_examples=60)
@given(CALLS, WIDTHS, st.integers(0, 10_000))
def test_any_split_of_the_ledger_into_buckets_reconciles_equal(
    drawn: list[tuple[str, int, dict[str, int]]], minutes: int, cut: int
) -> None:
    calls = ledger(drawn)
    minutes = 60 if minutes == 1 else minutes
    tokens, days = summed(calls, minutes), summed(calls, 24 * 60)
    for bill in (
        read_text("anthropic-usage", anthropic_usage(tokens, minutes, cut)),
        read_text("openai-usage", openai_usage(tokens, minutes, cut)),
        read_text("anthropic-cost", anthropic_cost(days, cut)),
    ):
        assert bill.warnings == ()
        found = compare(calls, [bill])
        assert exact(found)
        assert {(row.day, row.model) for row in found.rows} == {(call.day, call.wire_model) for call in calls}
    both = compare(
        calls,
        [
            read_text("anthropic-usage", anthropic_usage(tokens, minutes, cut)),
            read_text("anthropic-cost", anthropic_cost(days, cut)),
        ],
    )
    assert exact(both)
    assert sum(row.bill for row in both.rows if row.unit == "usd") == sum(call.low for call in calls)


@settings(deadline=None, max_examples=60)
@given(CALLS, st.integers(1, 10**6), st.data())
def test_a_single_changed_figure_is_found_and_named(
    drawn: list[tuple[str, int, dict[str, int]]], change: int, data: st.DataObject
) -> None:
    calls = ledger(drawn)
    days = summed(calls, 24 * 60)
    place = data.draw(st.sampled_from(sorted(days)))
    sign = data.draw(st.sampled_from((1, -1)))
    change = sign * min(change, days[place])
    days[place] += change
    for form, text, expected in (
        ("anthropic-usage", anthropic_usage(days, 24 * 60, 0), Decimal(change)),
        ("anthropic-cost", anthropic_cost(days, 0), change * PRICE[place[2]]),
    ):
        (row,) = compare(calls, [read_text(form, text)]).differing
        assert (row.day, row.model, row.classes) == (place[0].date(), place[1], one(place[2]))
        assert row.difference == expected


@given(st.lists(st.dictionaries(st.sampled_from(CLASSES), st.integers(1, 10**7)), min_size=1, max_size=5))
def test_classes_that_a_provider_lumps_are_compared_on_the_sum(drawn: list[dict[str, int]]) -> None:
    calls = [booked(number, tokens) for number, tokens in enumerate(drawn)]
    total = {name: sum(tokens.get(name, 0) for tokens in drawn) for name in CLASSES}
    item = {
        "date": "2026-11-24",
        "model": "maker/claude-alpha-5",
        "usage": float(0),
        "prompt_tokens": sum(total.values()) - total["output"],
        "completion_tokens": total["output"],
    }
    usd = sum((call.low for call in calls), Decimal(0))
    text = json.dumps({"data": [item]}).replace("0.0", f"{usd:f}")
    found = compare(calls, [read_text("openrouter-activity", text)])
    assert exact(found)
    assert {row.classes for row in found.rows} <= {EVERYTHING, PROMPT, one("output")}


PAGE = '{"data": [{"starting_at": "%sT00:00:00Z", "ending_at": "%sT00:00:00Z", "results": [%s]}]}'


def usage_page(day: int, *results: tuple[str, int]) -> str:
    told = [{"model": model, "uncached_input_tokens": count, "output_tokens": 0} for model, count in results]
    return PAGE % (f"2026-11-{day}", f"2026-11-{day + 1}", ", ".join(map(json.dumps, told)))


def test_what_the_ledger_never_called_is_other_traffic_and_no_difference() -> None:
    calls = [booked(0, {"input": 5})]
    text = usage_page(24, ("claude-alpha-5", 5), ("claude-omega", 7)) + usage_page(27, ("claude-alpha-5", 9))
    found = compare(calls, [read_text("anthropic-usage", text)])
    assert not found.differing
    assert sum(line.units or 0 for line in found.other) == 16


def test_a_day_or_model_that_a_bill_should_have_and_has_not_differs_and_one_outside_of_it_does_not() -> None:
    calls = [
        booked(0, {"input": 5}),
        booked(1, {"input": 6}, model="claude-omega"),
        booked(2, {"input": 7}, provider="x"),
    ]
    calls += [booked(3, {"input": 8}, at=EPOCH + timedelta(days=9))]
    found = compare(calls, [read_text("anthropic-usage", usage_page(24, ("claude-alpha-5", 12)))])
    (row,) = found.differing
    assert (row.model, row.bill, row.low) == ("claude-omega", Decimal(0), Decimal(6))
    assert [call.key for call in found.outside] == [calls[3].key]


def test_an_unknown_call_gives_its_row_a_range_and_stands_with_it() -> None:
    calls = [booked(0, {"input": 5}), booked(1, None, high="2", outcome="lost")]
    found = compare(calls, [read_text("anthropic-usage", usage_page(24, ("claude-alpha-5", 1_005)))])
    (row,) = [row for row in found.rows if row.classes == one("input")]
    assert (row.low, row.high, row.difference) == (Decimal(5), Decimal(5_005), Decimal(0))
    assert [call.key for call in row.doubtful] == [calls[1].key]
    far = compare(calls, [read_text("anthropic-usage", usage_page(24, ("claude-alpha-5", 6_000)))])
    assert [row.difference for row in far.differing] == [995]


def test_a_call_over_midnight_is_named_with_both_days() -> None:
    late = booked(0, {"input": 5}, at=datetime(2026, 11, 24, 23, 59, 59, tzinfo=UTC), seconds=3)
    found = compare([late], [read_text("anthropic-usage", usage_page(24) + usage_page(25, ("claude-alpha-5", 5)))])
    assert [(row.day.day, row.difference) for row in found.differing] == [(24, Decimal(-5)), (25, Decimal(5))]
    assert all(row.doubtful == (late,) for row in found.differing)
    assert "over midnight" in late.doubts


@pytest.mark.parametrize(
    ("billed", "asked", "answered", "known"),
    [
        ("claude-alpha-5-20260101", "claude-alpha-5", "claude-alpha-5-20260101", True),
        ("claude-alpha-5-20260101", "claude-alpha-5", None, True),
        ("claude-alpha-5", "claude-alpha-5-20260101", None, True),
        ("Claude Alpha 5", "claude-alpha-5-20260101", None, True),
        ("our-claude-alpha-5", "claude-alpha-5", None, True),
        ("maker/claude-alpha-5", "claude-alpha-5", None, True),
        ("gpt-beta-2026-08-07", "gpt-beta", None, True),
        ("gpt-beta-2026-08-07", "gpt-beta-2026-01-01", None, False),
        ("gpt-beta-2026-08-07", "gpt-beta", "gpt-beta-2026-01-01", False),
        ("gpt-beta-mini", "gpt-beta", None, False),
        ("claude-alpha", "claude-alpha-5", None, False),
    ],
)
def test_a_bills_name_of_a_model_is_found_in_the_ledger(
    billed: str, asked: str, answered: str | None, known: bool
) -> None:
    calls = [booked(0, {"input": 5}, model=asked, answered_as=answered)]
    found = compare(calls, [read_text("anthropic-usage", usage_page(24, (billed, 5)))])
    assert (not found.other) == known


def test_lines_that_lump_more_than_others_are_compared_together() -> None:
    calls = [booked(0, {"input": 5, "cache_write_5m": 3, "cache_read": 2})]
    told = [
        {"model": "claude-alpha-5", "input_tokens": 6, "input_cached_tokens": 2, "output_tokens": 0},
        {"model": "claude-alpha-5", "input_tokens": 4, "input_cached_tokens": 0, "input_cache_write_tokens": 3},
    ]
    start = int(MIDNIGHT.timestamp())
    bucket = {"start_time": start, "end_time": start + 86_400, "results": told}
    found = compare(calls, [read_text("openai-usage", json.dumps({"data": [bucket]}))])
    assert not found.differing
    assert {row.classes for row in found.rows} == {UNCACHED, one("cache_read")}


def test_dollars_are_compared_to_the_ledgers_twelfth_decimal() -> None:
    calls = [booked(0, {"output": 3_000})]
    item = {"date": "2026-11-24", "model": "claude-alpha-5", "prompt_tokens": 0, "completion_tokens": 3_000}
    for usd, equal in ((0.060000000000000005, True), (0.060000000002, False)):
        bill = read_text("openrouter-activity", json.dumps({"data": [{**item, "usage": usd}]}))
        assert (not compare(calls, [bill]).differing) == equal


def test_two_kinds_of_bill_that_tell_the_same_figure_are_refused() -> None:
    calls = [booked(0, {"input": 5})]
    table = (
        "usage_date_utc,model_version,usage_input_tokens_no_cache,usage_output_tokens\n2026-11-24,claude-alpha-5,5,0\n"
    )
    bills = [
        read_text("anthropic-usage", usage_page(24, ("claude-alpha-5", 5))),
        read_text("anthropic-console-usage", table),
    ]
    assert not any(compare(calls, [bill]).differing for bill in bills)
    with pytest.raises(BillError, match=r"tells the tokens of claude-alpha-5 on 2026-11-24, which .* tells already"):
        compare(calls, bills)


def test_classes_that_a_bill_does_not_tell_are_named_as_not_compared() -> None:
    calls = [booked(0, {"input": 5, "cache_read": 7, "cache_write_5m": 3})]
    usage = read_text("anthropic-usage", usage_page(24, ("claude-alpha-5", 5)))
    found = compare(calls, [usage])
    assert exact(found)
    assert [(each.classes, each.unit, each.low, each.high, each.elsewhere) for each in found.untold] == [
        (one("cache_read"), "units", Decimal(7), Decimal(7), False),
        (one("cache_write_5m"), "units", Decimal(3), Decimal(3), False),
    ]
    assert [word.split(" no ")[1].split(",")[0] for word in usage.warnings] == [
        "cache_read_input_tokens",
        "cache_creation",
    ]
    costs = read_text("anthropic-cost", anthropic_cost(summed(calls, 24 * 60), 0))
    assert all(each.elsewhere for each in compare(calls, [usage, costs]).untold)
    assert compare(calls, [costs]).untold == ()


def test_dollars_of_a_class_that_a_cost_report_has_no_line_of_are_named_as_not_compared() -> None:
    calls = [booked(0, {"input": 5, "cache_read": 7})]
    tokens = {place: count for place, count in summed(calls, 24 * 60).items() if place[2] == "input"}
    (left,) = compare(calls, [read_text("anthropic-cost", anthropic_cost(tokens, 0))]).untold
    assert (left.classes, left.unit, left.low, left.elsewhere) == (
        one("cache_read"),
        "usd",
        7 * PRICE["cache_read"],
        False,
    )
