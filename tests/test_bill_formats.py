"""Each kind of bill in the shape that its provider documents, or that importers of real exports name."""

from collections import Counter
from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest

from experiments.bills.bill_line import EVERYTHING, PROMPT, UNCACHED, WRITES, one
from experiments.bills.formats import read_bills
from experiments.errors import BillError
from tests.bill_ledgers import read_text

DATA = Path(__file__).parent / "data" / "bills"
DAY, NEXT = date(2026, 11, 24), date(2026, 11, 25)
ALPHA, BETA, GAMMA, DELTA = "claude-alpha-5-20260101", "gpt-beta-2026-08-07", "gpt-gamma", "maker/delta-2026-04-14"

TOLD: dict[str, tuple[str, dict[tuple[date, str, frozenset[str]], str]]] = {
    "anthropic_usage.json": (
        "anthropic-usage",
        {
            (DAY, ALPHA, one("input")): "1500",
            (DAY, ALPHA, one("cache_read")): "200",
            (DAY, ALPHA, one("cache_write_5m")): "500",
            (DAY, ALPHA, one("cache_write_1h")): "1000",
            (DAY, ALPHA, one("output")): "700",
            (DAY, ALPHA, one("web_search")): "3",
            (NEXT, ALPHA, one("input")): "10",
            (NEXT, ALPHA, one("output")): "20",
        },
    ),
    "anthropic_cost.json": (
        "anthropic-cost",
        {
            (DAY, ALPHA, one("output")): "$1.2345",
            (DAY, ALPHA, one("cache_write_5m")): "$0.005",
            (DAY, "", one("web_search")): "$0.03",
        },
    ),
    "anthropic_console_usage.csv": (
        "anthropic-console-usage",
        {
            (DAY, "claude-alpha-5", one("input")): "1501",
            (DAY, "claude-alpha-5", one("cache_read")): "200",
            (DAY, "claude-alpha-5", one("cache_write_5m")): "500",
            (DAY, "claude-alpha-5", one("cache_write_1h")): "1000",
            (DAY, "claude-alpha-5", one("output")): "702",
            (DAY, "claude-alpha-5", one("web_search")): "3",
        },
    ),
    "anthropic_console_cost.csv": (
        "anthropic-console-cost",
        {
            (DAY, "Claude Alpha 5", one("input")): "$0.05",
            (DAY, "Claude Alpha 5", one("output")): "$0.0125",
            (DAY, "Claude Alpha 5", one("web_search")): "$0.01",
        },
    ),
    "openai_usage.json": (
        "openai-usage",
        {
            (DAY, BETA, one("cache_read")): "800",
            (DAY, BETA, UNCACHED): "200",
            (DAY, BETA, one("output")): "500",
            (DAY, GAMMA, one("cache_read")): "10",
            (DAY, GAMMA, WRITES): "30",
            (DAY, GAMMA, one("input")): "60",
            (DAY, GAMMA, one("output")): "7",
        },
    ),
    "openai_usage.csv": (
        "openai-usage",
        {
            (DAY, BETA, one("cache_read")): "800",
            (DAY, BETA, UNCACHED): "200",
            (DAY, BETA, one("output")): "500",
        },
    ),
    "openai_costs.json": (
        "openai-costs",
        {
            (DAY, BETA, UNCACHED): "$0.0000045",
            (DAY, BETA, one("cache_read")): "$0.06",
            (DAY, BETA, one("output")): "$1",
            (DAY, "", EVERYTHING): "$0.5",
        },
    ),
    "openai_costs.csv": ("openai-costs", {(DAY, BETA, one("output")): "$0.895874"}),
    "openrouter_activity.json": (
        "openrouter-activity",
        {
            (DAY, DELTA, EVERYTHING): "$0.027",
            (DAY, DELTA, PROMPT): "50",
            (DAY, DELTA, one("output")): "125",
            (date(2026, 11, 26), DELTA, EVERYTHING): "$1",
            (date(2026, 11, 26), DELTA, PROMPT): "2",
            (date(2026, 11, 26), DELTA, one("output")): "3",
        },
    ),
}


@pytest.mark.parametrize("name", TOLD)
def test_a_bill_is_recognised_and_its_figures_are_brought_to_the_ledgers_classes(name: str) -> None:
    form, told = TOLD[name]
    (bill,) = read_bills([DATA / name])
    assert bill.format == form
    assert bill.warnings == ()
    units: Counter[tuple[date, str, frozenset[str]]] = Counter()
    dollars: dict[tuple[date, str, frozenset[str]], Decimal] = {}
    for line in bill.lines:
        place = (line.day, next(iter(line.models), ""), line.classes)
        if line.usd is None:
            units[place] += line.units or 0
        else:
            dollars[place] = dollars.get(place, Decimal(0)) + line.usd
    found = {place: str(count) for place, count in units.items() if count}
    found |= {place: f"${usd.normalize():f}" for place, usd in dollars.items()}
    assert found == told


def test_a_bill_that_goes_call_by_call_keeps_each_call() -> None:
    (bill,) = read_bills([DATA / "openrouter_generations.csv"])
    assert [(call.reference, call.usd, call.tokens) for call in bill.calls] == [
        ("gen-1", Decimal("0.0123"), None),
        ("gen-2", Decimal("0.0021"), None),
    ]
    (record,) = read_bills([DATA / "openrouter_generation.json"])
    assert record.calls[0].usd == Decimal("0.0123")
    (simulated,) = read_bills([DATA / "simulator.jsonl"])
    assert [(call.reference, call.usd, call.arrived) for call in simulated.calls] == [
        ("trial/1/solo/0/1", Decimal("0.011544"), True),
        ("trial/1/solo/1/1", Decimal(0), False),
    ]
    assert simulated.warnings == ("1 lines name no call: they are other clients' traffic",)


def test_a_page_with_more_behind_it_needs_its_follow_up() -> None:
    first, second = (DATA / "anthropic_usage.json").read_text().split('"page_b"}\n')
    first += '"page_b"}'
    assert read_text("anthropic-usage", first, second).warnings == ()
    assert read_text("anthropic-usage", second, first).warnings == (), "in any order"
    assert read_text("anthropic-usage", f"[{first}, {second}]").warnings == (), "as one list"
    (warning,) = read_text("anthropic-usage", first).warnings
    assert warning.startswith("bill-0: page 1 has more behind it (has_more) and its follow-up was not given")
    elsewhere = second.replace("2026-11-25T", "2026-11-27T").replace("2026-11-26T", "2026-11-28T")
    assert len(read_text("anthropic-usage", first, elsewhere).warnings) == 1, "another page is no follow-up"


def test_what_is_given_twice_is_counted_once_and_said(tmp_path: Path) -> None:
    page = (DATA / "openai_usage.json").read_text()
    once, twice = read_text("openai-usage", page), read_text("openai-usage", page + "\n" + page)
    assert twice.lines == once.lines
    assert "1 buckets stand in an earlier page word for word; counted once" in twice.warnings[0]
    (tmp_path / "copy.json").write_text(page)
    (bill,) = read_bills([DATA / "openai_usage.json", tmp_path / "copy.json"])
    assert bill.lines == read_bills([DATA / "openai_usage.json"])[0].lines
    assert "once more; counted once" in bill.warnings[0]


def test_a_table_is_read_with_any_line_ends_and_column_order_and_with_columns_of_tomorrow() -> None:
    text = (DATA / "anthropic_console_usage.csv").read_text(encoding="utf-8-sig")
    plain = read_text("anthropic-console-usage", text)
    assert read_text("anthropic-console-usage", "\ufeff" + text.replace("\n", "\r\n")).lines == plain.lines
    simple = "a,b\nx,y\n".replace("a,b", "usage_output_tokens,tomorrow,model_version,usage_date_utc")
    simple = simple.replace("x,y", '7,"1,2",m,2026-11-24')
    (line,) = read_text("anthropic-console-usage", simple).lines
    assert (line.units, line.models, line.day) == (7, ("m",), DAY)


RESULT = '{"uncached_input_tokens": 1, "output_tokens": %s, "model": "m"}'
PAGE = '{"data": [{"starting_at": "2026-11-24T00:00:00Z", "ending_at": "%s", "results": [%s]}]}'
WHOLE = "2026-11-25T00:00:00Z"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", r"is empty; expected a JSON or CSV export"),
        (" \n", r"is empty"),
        ("{", r":1: not valid JSON \(Expecting property name"),
        ('{"data": []}\n{"data": [}', r":2: not valid JSON"),
        ('{"a": NaN}', r"not valid JSON \(NaN is no number\)"),
        ("[" * 100_000, r"not valid JSON \(nested too deep\)"),
        ('{"a": ' + "9" * 5_000 + "}", r"not valid JSON \(a number without end\)"),
        ("[]", r"is no bill of a known kind \(a JSON list\)"),
        ('{"data": [], "has_more": false}', r"is no bill of a known kind \(fields: data, has_more\)"),
        ('"hello"', r"is no bill of a known kind \(columns:"),
        ("a,b\n1,2\n", r"is no bill of a known kind \(columns: a, b\)"),
        ("a,b,a\n1,2,3\n", r":1: the column 'a' stands twice"),
        ("a,b\n1,2,3\n", r":2: has 3 cells, the header 2 columns"),
        ('a,b\n1,"2\n', r":2: not valid CSV"),
        (PAGE % (WHOLE, RESULT % "-1"), r"page 1, bucket 1, result 1: output_tokens must be a whole number from 0 to"),
        (PAGE % (WHOLE, RESULT % "1e999"), r"output_tokens must be a whole number .*, not '1E\+999'"),
        (PAGE % (WHOLE, RESULT % "1.5"), r"output_tokens must be a whole number .*, not '1\.5'"),
        (PAGE % (WHOLE, RESULT % '"12"'), r"output_tokens must be a whole number .*, not '12'"),
        (PAGE % (WHOLE, RESULT % "true"), r"output_tokens must be a whole number .*, not 'True'"),
        (PAGE % (WHOLE, RESULT % "null"), r"output_tokens must be a whole number, not 'None'"),
        (PAGE % (WHOLE, '{"model": "m"}'), r"uncached_input_tokens must be a whole number, not 'None'"),
        (PAGE % (WHOLE, "7"), r"result 1: must be an object, not int"),
        (PAGE % ("2026-11-26T00:00:00Z", RESULT % "1"), r"expected a day \(UTC\) or a part of one; export it by day"),
        (PAGE % ("2026-11-23T00:00:00Z", RESULT % "1"), r"expected a day \(UTC\)"),
        (PAGE % ("soon", RESULT % "1"), r"ending_at must be a date or date-time"),
        (PAGE % (WHOLE, '{"amount": "1", "currency": "EUR"}'), r"currency is 'EUR'; only US dollars .* nothing is"),
        (PAGE % (WHOLE, '{"amount": "NaN", "currency": "USD"}'), r"amount must be an amount of money .*, not 'NaN'"),
        (PAGE % (WHOLE, '{"amount": "-1", "currency": "USD"}'), r"amount must be an amount of money from 0"),
        (PAGE % (WHOLE, '{"amount": "1e400", "currency": "USD"}'), r"amount must be an amount of money"),
        (PAGE % (WHOLE, '{"amount": {}, "currency": "USD"}'), r"amount must be an amount of money"),
        ('{"call": "k", "tokens": {"magic": 1}, "usd": "1", "status": 200}', r"'magic' is no token class"),
        ('{"call": "k", "tokens": {"input": -1}, "usd": "1", "status": 200}', r"input must be a whole number"),
        ('{"call": "k", "tokens": {"input": 2000000000}, "usd": "1", "status": 200}', r"more than 1,000,000,000"),
        ('{"call": "k", "tokens": [], "usd": "1", "status": 200}', r":1, tokens: must be an object, not list"),
        ("generation_id,created_at,cost_total\ngen-1,2026-11-24,inf\n", r":2: cost_total must be an amount of money"),
        ("start_time,end_time,input_tokens,model\n1e30,2,3,m\n", r":2: start_time must be a whole number"),
        ("start_time,input_tokens,input_cached_tokens,model\n1795478400,3,4,m\n", r"exceed input_tokens \(3\)"),
        ('{"data": [{"date": "2026-11-24", "model": "m", "usage": "x"}]}', r"usage must be an amount of money"),
        ('{"starting_at": 1, "ending_at": 2, "results": 5}', r"starting_at must be a date or date-time"),
        ('{"start_time": 1795478400, "end_time": 1795478401, "results": 5}', r"results must be a list"),
        ('{"data": {"a": 1}, "start_time": 1}', r"data must be a list of buckets"),
    ],
)  # fmt: skip
def test_a_file_that_is_no_bill_is_told_in_one_line(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "bill"
    path.write_text(text)
    with pytest.raises(BillError, match=complaint) as told:
        read_bills([path])
    assert str(told.value).startswith(str(path))
    assert "\n" not in str(told.value)
    assert len(str(told.value)) < 700


def test_a_file_without_end_and_one_that_is_no_text_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "bill.json"
    with path.open("wb") as file:
        file.truncate(500 << 20)
    with pytest.raises(BillError, match="longer than 64 MiB; export fewer days"):
        read_bills([path])
    path.write_bytes(b"\x00\xff\xfe{")
    with pytest.raises(BillError, match=r"is not UTF-8 text \(byte 1\)"):
        read_bills([path])
    with pytest.raises(BillError, match="cannot be read"):
        read_bills([tmp_path / "none.json"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(BillError, match="a folder without files"):
        read_bills([tmp_path / "empty"])
