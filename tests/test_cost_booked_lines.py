"""Calls billed for more than their own tokens, or at other than standard prices, in the ledger and the store."""

import random
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cost_model.price_card import SELF_HOSTED, PriceCard, PriceTier
from cost_model.price_modifier import PriceModifier
from cost_model.prices import PriceBook
from cost_model.scope import explain
from cost_model.tokens import CLASSES, Tokens
from cost_model.usage import read_usage
from cost_model.usage.lines import Line, book_usage
from experiments.store.cards import Cards
from experiments.store.journal import Journal, journal_folder
from experiments.store.store import Store
from experiments.store.trial import TrialJournal
from tests.cost_calls import OPUS, call, causes
from tests.store_trials import EPOCH, MODELS, ask, ended, sent, small_plan

BOOK = PriceBook()
PLAN = small_plan()
STEP = {"input_tokens": 1000, "output_tokens": 100}
ADVISOR = {"type": "advisor_message", "model": "claude-haiku-4-5", "input_tokens": 3000, "output_tokens": 200}
COUNT = st.integers(0, 10**6)


@settings(max_examples=2000, deadline=None)
@given(st.integers(0, 2**63))
def test_charges_sum_to_the_call_and_calls_to_their_roles(seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311
    facts, expected = [], Counter[str]()
    for number in range(chance.randint(1, 3)):
        plain, read, written, output, advised = (chance.choice([0, 1, chance.randint(0, 10**6)]) for _ in range(5))
        searches, role = chance.randint(0, 20), chance.choice(["planner", "worker"])
        tokens = Tokens(input=plain, cache_read=read, cache_write_5m=written, output=output)
        beside = [
            Line("input", Decimal(advised), "token", "other", Decimal(advised) * 3 / 10**6),
            Line("web_search", Decimal(searches), "search", "opus", Decimal(searches) / 100),
        ]
        facts.append(call(number * 20, "head" + " a" * number, tokens, key=str(number), lane=role, beside=beside))
        # In millionths of a millionth of a dollar, by hand.
        expected[role] += plain * 4_000_000 + read * 200_000 + written * 5_000_000 + output * 20_000_000
        expected[role] += advised * 3_000_000 + searches * 10**10
    lanes = {fact.key: fact.lane for fact in facts}
    booked = Counter[str]()
    for explained in explain(facts):
        assert explained.list_usd == sum(charge.usd_low for charge in explained.charges)
        assert [charge.line for charge in explained.charges] == list(range(len(explained.charges)))
        prompt = sum(count for cause, count in causes(explained).items() if cause != "beside")
        assert explained.tokens is not None
        assert prompt == explained.tokens.prompt
        booked[lanes[explained.key]] += int(explained.list_usd.scaleb(12))
    assert booked == expected


def test_what_stands_beside_has_a_cause_and_a_model_of_its_own() -> None:
    beside = [Line("output", Decimal(531), "token", "other", Decimal("0.01062"))]
    explained = explain([call(0, "head", Tokens(input=10, output=1), beside=beside)])[0]
    last = explained.charges[-1]
    assert (last.model, last.token_class, last.cause, last.units) == ("other", "output", "beside", 531)
    assert (last.usd_low, last.usd_high, last.excess_usd) == (Decimal("0.01062"), Decimal("0.01062"), Decimal(0))
    assert explained.list_usd == explained.cost_usd == OPUS.cost(Tokens(input=10, output=1)) + Decimal("0.01062")


def test_an_output_that_broke_off_keeps_what_stands_beside_it() -> None:
    beside = [Line("web_search", Decimal(1), "search", "opus", Decimal("0.01"))]
    explained = explain([call(0, "head", Tokens(input=10, output=1), beside=beside, outcome="cut")])[0]
    assert explained.charges[-1].usd_low == Decimal("0.01")
    assert explained.cost_usd is None
    assert explained.cost_low_usd == OPUS.cost(Tokens(input=10, output=1)) + Decimal("0.01")


@given(COUNT, COUNT, st.booleans())
def test_a_read_that_nobody_told_leaves_the_input_between_both_prices(plain: int, output: int, free: bool) -> None:
    card = SELF_HOSTED if free else OPUS
    one = call(0, "head", Tokens(input=plain, output=output), card=card, read_untold=True)
    explained = explain([one])[0]
    cheap, dear = (card.cost(Tokens(**{name: plain}, output=output)) for name in ("cache_read", "input"))
    assert (explained.cost_low_usd, explained.cost_high_usd) == (cheap, dear)
    assert (explained.cost_usd is None) == (cheap != dear)
    assert causes(explained) == {"unknown": plain}
    assert [charge.line for charge in explained.charges] == list(range(len(explained.charges)))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    registered = Store(tmp_path / "test.duckdb")
    registered.register(PLAN, MODELS)
    return registered


async def book(store: Store, *usages: dict[str, Any], **how: str) -> None:
    """One attempt of one trial for each usage."""
    async with Journal(journal_folder(store.path) / "run.jsonl") as journal:
        for planned, usage in zip(PLAN.trials[: len(usages)], usages, strict=True):
            trial = TrialJournal(journal, planned.id, 1)
            await trial.attempt_started(started_at=EPOCH, wall_started_at=EPOCH, backend="bubblewrap")
            trial.message("solo", 0, 0, "system", "x", "head", 10)
            one = replace(sent(trial.trial_id, 1, 0, EPOCH, blocks=1), **how)  # type: ignore[arg-type]  # names of texts
            await trial.sent(one)
            trial.ended(ended(one, usage))
    store.recover()


async def test_a_stored_call_costs_what_its_usage_tells_now_and_when_it_is_booked_again(store: Store) -> None:
    expected: list[tuple[dict[str, Any], str]] = [
        (STEP, "0.006"),
        ({**STEP, "service_tier": "batch"}, "0.003"),
        ({**STEP, "service_tier": "batch", "inference_geo": "us"}, "0.0033"),
        ({**STEP, "speed": "fast"}, "0.012"),
        ({**STEP, "server_tool_use": {"web_search_requests": 2}}, "0.026"),
        ({**STEP, "iterations": [{"type": "message", **STEP}, ADVISOR]}, "0.010"),
        ({**STEP, "iterations": [{"type": "message", **STEP}, ADVISOR], "service_tier": "batch"}, "0.005"),
        ({**STEP, "iterations": [{"type": "compaction", **STEP}, {"type": "message", **STEP}]}, "0.012"),
    ]
    await book(store, *(usage for usage, _ in expected))
    calls = "SELECT trial_id, list_usd, cost_usd, cost_low_usd, cost_high_usd, usage_error FROM calls ORDER BY trial_id"
    charges = "SELECT * FROM charges ORDER BY call, line"
    sums = (
        "SELECT trial_id, sum(usd_low), sum(usd_high) FROM charges JOIN calls ON calls.key = charges.call "
        "GROUP BY trial_id ORDER BY trial_id"
    )
    by_trial = sorted((trial.id, Decimal(usd)) for trial, (_, usd) in zip(PLAN.trials, expected, strict=True))
    first = ask(store, calls).rows, ask(store, charges).rows
    assert first[0] == [(trial, usd, usd, usd, usd, None) for trial, usd in by_trial]
    assert ask(store, sums).rows == [(trial, usd, usd) for trial, usd in by_trial]
    store.rebuild_charges("demo")
    assert (ask(store, calls).rows, ask(store, charges).rows) == first


@pytest.mark.parametrize(
    ("usage", "told"),
    [
        ({**STEP, "service_tier": "priority"}, "service_tier is 'priority'"),
        ({**STEP, "iterations": [{"type": "message", **STEP}, {**ADVISOR, "model": "no-such"}]}, "'no-such'"),
        ({**STEP, "iterations": [{"type": "message", **STEP}, {**ADVISOR, "model": None}]}, "billed apart"),
    ],
)
async def test_a_call_without_a_price_is_a_range_and_says_why(store: Store, usage: dict[str, Any], told: str) -> None:
    await book(store, usage)
    ((usd, low, high, error),) = ask(store, "SELECT cost_usd, cost_low_usd, cost_high_usd, usage_error FROM calls").rows
    assert usd is None
    assert 0 <= low < high
    assert told in error


@pytest.mark.parametrize(("model", "usd"), [("cheap", None), ("own", Decimal(0))])
async def test_a_server_that_does_not_tell_its_reads_leaves_null_and_not_zero(
    store: Store, model: str, usd: Decimal | None
) -> None:
    usage = {"prompt_tokens": 1000, "completion_tokens": 10, "total_tokens": 1010, "prompt_tokens_details": None}
    await book(store, usage, model=model, flavour="openai_chat")
    ((cost, prompt, plain, read, output, error),) = ask(
        store, "SELECT cost_usd, prompt_tokens, input_tokens, cache_read_tokens, output_tokens, usage_error FROM calls"
    ).rows
    assert (cost, prompt, plain, read, output) == (usd, 1000, None, None, 10)
    assert "does not tell what was read" in error


def test_a_stored_card_comes_back_with_its_tiers_and_modifiers() -> None:
    card = PriceCard(
        "m", "s", None, datetime(2026, 12, 1, tzinfo=UTC),
        {"input": Decimal("1"), "output": Decimal("2"), "web_search": Decimal(10_000)},
        (PriceTier(9, {"input": Decimal("3")}),),
        (
            PriceModifier("service_tier", "batch", Decimal("0.5")),
            PriceModifier("cache_type", "a=b if c", None, {"input": Decimal("0.25")}),
        ),
    )  # fmt: skip

    class Shelf:
        def card(self, ref: str, at: datetime) -> PriceCard:
            return card

    cards = Cards("demo", [], Shelf)  # type: ignore[arg-type]  # a book of one card
    assert cards.card("m", EPOCH) is card
    rows = [{**row, "valid_until": card.valid_until} for row in cards.new_rows()]
    assert Cards("demo", rows, Shelf).card("m", EPOCH) == card  # type: ignore[arg-type]
    assert len({(row["card"], row["above"], row["token_class"]) for row in rows}) == len(rows)


def test_prices_finer_than_the_smallest_unit_are_rounded_once_so_that_sums_are_exact() -> None:
    fine = PriceCard(
        "m", "s", None, None, {"input": Decimal("0.003625"), "output": Decimal("0.000001")}, (),
        (PriceModifier("inference_geo", "us", Decimal("1.1")),),
    )  # fmt: skip
    reading = read_usage({"input_tokens": 7, "output_tokens": 3, "inference_geo": "us"})
    booked = book_usage(reading, "m", fine, lambda name: fine)
    assert booked.card.usd_per_mtok == {"input": Decimal("0.003988"), "output": Decimal("0.000001")}
    assert all(booked.card.usd(name, 1, 0) == round(booked.card.usd(name, 1, 0), 12) for name in CLASSES[-2:])
