"""`fullchain reprice`: what stored calls cost at other prices is what booking them afresh at those prices gives."""

from collections.abc import Iterator, Sequence
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cost_model.prices import PriceBook
from cost_model.scope import explain
from cost_model.tokens import Tokens
from cost_model.usage import read_told
from cost_model.usage.plain import plain_counts
from cost_model.usage.reading import Reading
from cost_model.what_if.replay import bill_in_proportion
from experiments.repricing.batch import Batches
from experiments.repricing.prices import NewPrices
from experiments.repricing.sums import Part, Place, Sums
from experiments.store import migrations
from experiments.store.cards import Cards
from experiments.store.database import bulk_insert, table_columns
from experiments.store.journal import iso
from experiments.store.ledger import Facts, ModelFacts, call_facts, explain_calls
from experiments.store.rows import Row
from tests.store_trials import EPOCH

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

MODELS = {
    "dear": ModelFacts("anthropic_messages", "anthropic", "claude-opus-5-5", False, "anthropic-1024"),
    "cheap": ModelFacts("openai_chat", "deepseek", "deepseek-v4-flash", False, "deepseek"),
    "long": ModelFacts("openai_responses", "openai", "gpt-5.6-sol", False, "openai-30m"),
    "routed": ModelFacts("openai_chat", "openrouter", "claude-opus-5-5", False, "anthropic-1024"),
    "own": ModelFacts("openai_chat", "local", None, True, "prefix-16"),
}

DEARER = """
[[price]]
model = "claude-opus-5-5"
source = "contract"
usd_per_mtok = { input = 7, cache_read = 0.7, cache_write_5m = 8.75, cache_write_1h = 14, output = 35 }
web_search_per_1k = 9
tiers = [{ above = 3000, usd_per_mtok = { input = 9, cache_read = 1.3, output = 41 } }]

[[price]]
model = "deepseek-v4-flash"
source = "contract"
usd_per_mtok = { input = 0.3, cache_read = 0.02, output = 1.1 }

[[modifier]]
models = ["claude-opus-5-5"]
source = "contract"
service_tier = "batch"
times = 0.37
"""
"""Other prices everywhere, a cliff where there was none, another discount for batches."""

GENERAL = """
[[price]]
model = "claude-opus-5-5"
source = "a gateway"
usd_per_mtok = { input = 5, cache_read = 0.5, cache_write_unknown = 6, output = 25 }

[[price]]
model = "deepseek-v4-flash"
source = "a gateway"
usd_per_mtok = { input = 0.3, output = 1.1 }

[[modifier]]
models = ["claude-opus-5-5"]
source = "a gateway"
service_tier = "exotic"
times = 3
"""
"""One price for writes of any lifetime, none for reads, and one for a tier that nobody else prices."""

BOOK = PriceBook()
OWN = Facts(MODELS, None, Cards("demo", (), lambda: BOOK))
TRIALS = {"t": ("arm", "task")}

PLAIN_APIS = ("anthropic_messages", "openai_chat", "openai_responses")
ADVISOR = {"type": "advisor_message", "input_tokens": 900, "output_tokens": 40}
COUNT = st.integers(0, 6_000)


@st.composite
def anthropic_usage(draw: st.DrawFn) -> dict[str, Any]:
    short, long = draw(COUNT), draw(st.sampled_from([0, 0, 700]))
    usage: dict[str, Any] = {
        "input_tokens": draw(COUNT),
        "cache_read_input_tokens": draw(COUNT),
        "cache_creation_input_tokens": short + long,
        "output_tokens": draw(COUNT),
    }
    if draw(st.booleans()):
        usage["cache_creation"] = {"ephemeral_5m_input_tokens": short, "ephemeral_1h_input_tokens": long}
    if draw(st.integers(0, 4)) == 4:
        usage |= draw(
            st.sampled_from(
                [
                    {"server_tool_use": {"web_search_requests": 3}},
                    {"speed": "fast"},
                    {"output_tokens": -1},
                    {"cost": 0.0123},
                    {"iterations": [
                        {"type": "message", **usage},
                        {**ADVISOR, "model": "claude-opus-5-5"},
                        {"type": "compaction", "input_tokens": 5_000, "output_tokens": 300},
                    ]},
                ]
            )
        )  # fmt: skip
    tier = draw(st.sampled_from([None, None, None, "standard", "batch", "exotic"]))
    if tier is not None:
        usage["service_tier"] = tier
    if draw(st.integers(0, 9)) == 9:
        usage["message_start"] = {"output_tokens": 1}
        del usage["output_tokens"]
    return usage


@st.composite
def chat_usage(draw: st.DrawFn) -> dict[str, Any]:
    fresh, read, output = draw(COUNT), draw(COUNT), draw(COUNT)
    usage: dict[str, Any] = {"prompt_tokens": fresh + read, "completion_tokens": output}
    extra: list[dict[str, Any]] = [
        {},
        {"total_tokens": fresh + read + output},
        {"total_tokens": 1},
        {"prompt_tokens_details": {"cached_tokens": read}},
        {"prompt_tokens_details": {"cached_tokens": None}},
        {"prompt_tokens_details": None},
        {"prompt_cache_hit_tokens": read, "prompt_cache_miss_tokens": fresh},
        {"completion_tokens_details": {"reasoning_tokens": min(output, 100)}},
        {"cost": 0.0314159},
        {"cost": 0},
        {"service_tier": "flex"},
        {"prompt_tokens_details": {"cached_tokens": read, "cache_write_tokens": min(fresh, 500)}},
    ]
    for more in draw(st.lists(st.sampled_from(extra), max_size=2)):
        usage |= more
    return usage


@st.composite
def responses_usage(draw: st.DrawFn) -> dict[str, Any]:
    fresh, read, output = draw(COUNT | st.just(300_000)), draw(COUNT), draw(COUNT)
    written = min(draw(st.sampled_from([0, 400])), fresh)
    details: dict[str, Any] = {"cached_tokens": read}
    if written:
        details["cache_write_tokens"] = written
    return {
        "input_tokens": fresh + read,
        "input_tokens_details": details,
        "output_tokens": output,
        "output_tokens_details": {"reasoning_tokens": min(output, 50)},
        "total_tokens": fresh + read + output,
    }


USAGE = {
    "dear": anthropic_usage(),
    "cheap": chat_usage(),
    "long": responses_usage(),
    "routed": chat_usage().map(lambda usage: {**usage, "cost": 0.0271828}),
    "own": chat_usage(),
}


@st.composite
def attempts(draw: st.DrawFn) -> tuple[list[Row], list[Row]]:
    """The calls of one attempt, each of a role of its own so that sums tell them apart, and their blocks."""
    calls: list[Row] = []
    with_blocks = draw(st.booleans())
    at = EPOCH
    for number in range(draw(st.integers(1, 8))):
        at += timedelta(seconds=draw(st.sampled_from([0.5, 20, 200, 400, 4_000, 40_000])))
        model = draw(st.sampled_from(["dear", *MODELS]))
        outcome = draw(st.sampled_from(["complete"] * 6 + ["cut", "refused", "lost", "cancelled", None]))
        told = outcome is not None and draw(st.sampled_from([True] * 9 + [False] * (1 if outcome == "complete" else 9)))
        calls.append(
            {
                "key": f"call {number}", "trial_id": "t", "attempt": 1, "role": f"role {number}",
                "lane": f"{model}{draw(st.integers(0, 1))}", "version": 0, "turn": "0", "try": 1,
                "blocks": number + 1 if with_blocks else 0, "model": model, "wire_model": model,
                "provider": MODELS[model].provider, "flavour": MODELS[model].flavour,
                "lifetime": draw(st.sampled_from([None, "5m", "1h"])) if model in ("dear", "routed") else None,
                "requested_at": iso(at), "outcome": outcome,
                "first_token_at": iso(at + timedelta(seconds=1)) if told or draw(st.booleans()) else None,
                "prompt_bytes": draw(st.sampled_from([0, 9_000, 40_000])),
                "max_output_tokens": draw(st.sampled_from([None, 1_000, 8_000])),
                "usage": draw(USAGE[model]) if told else None, "replayed": False, "simulated": True,
            }
        )  # fmt: skip
    lanes = {str(call["lane"]) for call in calls} if with_blocks else set()
    blocks: list[Row] = [
        {
            "trial_id": "t", "attempt": 1, "lane": lane, "version": 0, "idx": place, "role": "user", "content": "",
            "hash": f"{place} of {lane[:-1]}", "size": 2_000,
        }
        for lane in sorted(lanes)
        for place in range(len(calls))
    ]  # fmt: skip
    return calls, blocks


@pytest.fixture(scope="module")
def connection() -> "Iterator[DuckDBPyConnection]":
    import duckdb

    with duckdb.connect(":memory:") as made:
        made.execute("SET TimeZone = 'UTC'")
        migrations.upgrade(made, Path("memory"))
        yield made


@pytest.fixture(scope="module")
def price_lists(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Facts]:
    folder = tmp_path_factory.mktemp("prices")
    (folder / "dearer.toml").write_text(DEARER)
    (folder / "general.toml").write_text(GENERAL)
    lists = {
        "dearer": NewPrices((folder / "dearer.toml",)),
        "general": NewPrices((folder / "general.toml",)),
        "both at a date": NewPrices((folder / "dearer.toml", folder / "general.toml"), EPOCH + timedelta(hours=14)),
        "another date": NewPrices((), EPOCH + timedelta(hours=14)),
    }
    return {name: prices.facts(OWN) for name, prices in lists.items()}


def stored(connection: "DuckDBPyConnection", calls: Sequence[Row], blocks: Sequence[Row]) -> None:
    """Books an attempt into emptied tables."""
    booked = [dict(call) for call in calls]
    charges = explain_calls(booked, blocks, OWN)
    columns = table_columns(connection)
    for table, rows in (("calls", booked), ("charges", charges), ("messages", blocks)):
        connection.execute(f"DELETE FROM {table}")  # noqa: S608
        bulk_insert(connection, table, rows, columns[table])


def booked_afresh(calls: Sequence[Row], blocks: Sequence[Row], new: Facts, *, causes: bool) -> Sums:
    """The plain way through all of them: the ledger's own booking, nothing of it stored or summed before."""
    sums = Sums()
    before = {fact.key: fact for fact in call_facts([dict(call) for call in calls], blocks, OWN)}
    facts = call_facts([dict(call) for call in calls], blocks, new)
    place = {str(call["key"]): Place("arm", "task", str(call["role"]), str(call["model"])) for call in calls}
    by_key = {fact.key: fact for fact in facts}
    for explained in explain(facts):
        was, now, where = before[explained.key], by_key[explained.key], place[explained.key]
        low, high, bill = explained.cost_low_usd, explained.cost_high_usd, now.billed_usd
        if bill is not None and was.tokens is not None and now.tokens is not None:
            bill = bill_in_proportion(was.tokens, was, now.tokens, now)
            whole = [
                sum((getattr(each, end) for each in explained.charges), Decimal(0)) for end in ("usd_low", "usd_high")
            ]
            low, high = (bill, bill) if bill is not None else whole
        sums.cost_of(where).add(round(low, 12), round(high, 12))
        counts = sums.counts_of(where)
        counts.calls += 1
        counts.inexact += low != high
        counts.billed += bill is not None
        for charge in explained.charges:
            part = Part(where, charge.token_class, charge.cause if causes else "")
            excess = charge.excess_usd if causes else Decimal(0)
            sums.listed_of(part).add(*(round(usd, 12) for usd in (charge.usd_low, charge.usd_high, excess)))
    return sums


def same(found: Sums, expected: Sums) -> None:
    assert found.cost == expected.cost
    there = {part: dollars for part, dollars in found.listed.items() if dollars.high}
    assert there == {part: dollars for part, dollars in expected.listed.items() if dollars.high}
    for counts in found.counts.values():
        counts.anew = 0
    assert found.counts == expected.counts


GENERATED = settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@GENERATED
@given(attempt=attempts(), causes=st.booleans())
def test_at_its_own_prices_every_call_costs_what_was_measured(
    connection: "DuckDBPyConnection", attempt: tuple[list[Row], list[Row]], causes: bool
) -> None:
    calls, blocks = attempt
    stored(connection, calls, blocks)
    found = Batches(connection, OWN, OWN, causes=causes).price(TRIALS)
    same(found, booked_afresh(calls, blocks, OWN, causes=causes))
    measured = connection.execute(
        "SELECT role, cost_low_usd, cost_high_usd FROM calls WHERE outcome IS NOT NULL ORDER BY role"
    ).fetchall()
    assert [(place.role, cost.low, cost.high) for place, cost in sorted(found.cost.items())] == measured


@GENERATED
@given(
    attempt=attempts(),
    causes=st.booleans(),
    name=st.sampled_from(["dearer", "general", "both at a date", "another date"]),
)
def test_at_other_prices_every_call_costs_what_a_fresh_booking_says(
    connection: "DuckDBPyConnection",
    price_lists: dict[str, Facts],
    attempt: tuple[list[Row], list[Row]],
    causes: bool,
    name: str,
) -> None:
    calls, blocks = attempt
    stored(connection, calls, blocks)
    new = price_lists[name]
    found = Batches(connection, OWN, new, causes=causes).price(TRIALS)
    same(found, booked_afresh(calls, blocks, new, causes=causes))


@settings(max_examples=400, deadline=None)
@given(usage=anthropic_usage() | chat_usage() | responses_usage(), flavour=st.sampled_from(list(PLAIN_APIS)))
def test_a_plain_usage_is_read_as_any_other_and_tells_nothing_more(usage: dict[str, Any], flavour: str) -> None:
    counts = plain_counts(flavour, usage)
    if counts is not None:
        same_reading(usage, flavour, counts)


ODD: st.SearchStrategy[Any] = st.sampled_from(
    [
        None,
        True,
        False,
        -1,
        0,
        1,
        7,
        1.0,
        7.0,
        10**9,
        10**9 + 1,
        10**30,
        "7",
        "batch",
        "default",
        [],
        {},
        {"cached_tokens": 7},
    ]
)
NAMES = st.sampled_from(
    [
        "input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "cache_creation",
        "prompt_tokens", "completion_tokens", "total_tokens", "prompt_tokens_details", "completion_tokens_details",
        "prompt_cache_hit_tokens", "prompt_cache_miss_tokens", "input_tokens_details", "output_tokens_details",
        "service_tier", "speed", "inference_geo", "cached_tokens", "reasoning_tokens", "ephemeral_5m_input_tokens",
        "num_cached_tokens", "cost", "iterations", "timings", "server_tool_use",
    ]
)  # fmt: skip


@settings(max_examples=400, deadline=None)
@given(
    usage=anthropic_usage() | chat_usage() | responses_usage(),
    odd=st.dictionaries(NAMES, ODD | st.dictionaries(NAMES, ODD, max_size=2), max_size=3),
    flavour=st.sampled_from(list(PLAIN_APIS)),
)  # fmt: skip
def test_what_is_odd_in_a_usage_is_never_read_in_the_short_way(
    usage: dict[str, Any], odd: dict[str, Any], flavour: str
) -> None:
    counts = plain_counts(flavour, {**usage, **odd})
    if counts is not None:
        same_reading({**usage, **odd}, flavour, counts)


def same_reading(usage: dict[str, Any], flavour: str, counts: tuple[int, ...]) -> None:
    reading, complaint = read_told(usage, flavour)
    assert reading.tokens == Tokens(*counts)
    assert complaint is None
    assert reading == Reading(flavour, reading.tokens, written_told=reading.written_told, steps=(reading.tokens,))


@pytest.mark.parametrize(
    ("flavour", "usage"),
    [
        ("anthropic_messages", {"input_tokens": 5, "output_tokens": 1, "cache_read_input_tokens": 7}),
        ("openai_chat", {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}),
        ("openai_responses", {"input_tokens": 9, "input_tokens_details": {"cached_tokens": 4}, "output_tokens": 2}),
    ],
)
def test_the_common_usages_are_plain(flavour: str, usage: dict[str, Any]) -> None:
    counts = plain_counts(flavour, usage)
    assert counts is not None
    same_reading(usage, flavour, counts)
