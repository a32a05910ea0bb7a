"""Usage of every API as billable lines: what is inside what, what adds up, and what is not known."""

import random
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cost_model.errors import PriceMissing, UsageError
from cost_model.price_card import SELF_HOSTED, PriceCard, PriceTier
from cost_model.price_modifier import PriceModifier
from cost_model.prices import PriceBook
from cost_model.tokens import BESIDE, CLASSES, Tokens
from cost_model.usage import SHAPES, read_usage, recognise
from cost_model.usage.lines import PricedUsage, book_usage, price_usage
from cost_model.writes import settle_untold

AT = datetime(2026, 11, 24, 12, tzinfo=UTC)
BOOK = PriceBook()
COUNT = st.integers(0, 10**7)
ALL = (*CLASSES, *BESIDE)


def priced(raw: Mapping[str, object], model: str, **more: Any) -> PricedUsage:
    return price_usage(read_usage(raw), model, BOOK.card(model, AT), lambda name: BOOK.card(name, AT), **more)


def anthropic(plain: int, read: int, short: int, long: int, output: int) -> tuple[dict[str, Any], int]:
    raw = {
        "input_tokens": plain,
        "cache_read_input_tokens": read,
        "cache_creation_input_tokens": short + long,
        "cache_creation": {"ephemeral_5m_input_tokens": short, "ephemeral_1h_input_tokens": long},
        "output_tokens": output,
    }
    return raw, plain + read + short + long + output


def chat(plain: int, read: int, short: int, long: int, output: int) -> tuple[dict[str, Any], int]:
    prompt = plain + read + short + long
    details = {"cached_tokens": read, "cache_write_tokens": short + long}
    total = prompt + output
    return {
        "prompt_tokens": prompt, "completion_tokens": output, "total_tokens": total, "prompt_tokens_details": details,
    }, total  # fmt: skip


def chat_with_reasoning_beside(plain: int, read: int, short: int, long: int, output: int) -> tuple[dict[str, Any], int]:
    raw, total = chat(plain, read, short, long, output)
    thought = output // 3
    details = {"completion_tokens_details": {"reasoning_tokens": thought}}
    return {**raw, **details, "completion_tokens": output - thought}, total


def chat_with_hidden_reasoning(plain: int, read: int, short: int, long: int, output: int) -> tuple[dict[str, Any], int]:
    raw, total = chat(plain, read, short, long, output)
    return {**raw, "completion_tokens": output - output // 3}, total


def hits_and_misses(plain: int, read: int, short: int, long: int, output: int) -> tuple[dict[str, Any], int]:
    missed = plain + short + long
    raw = {"prompt_tokens": missed + read, "completion_tokens": output, "total_tokens": missed + read + output}
    return {**raw, "prompt_cache_hit_tokens": read, "prompt_cache_miss_tokens": missed}, raw["total_tokens"]


def litellm(plain: int, read: int, short: int, long: int, output: int) -> tuple[dict[str, Any], int]:
    raw, total = chat(plain, read, short, long, output)
    del raw["prompt_tokens_details"]
    return {**raw, "cache_read_input_tokens": read, "cache_creation_input_tokens": short + long}, total


def cached_left_out(plain: int, read: int, short: int, long: int, output: int) -> tuple[dict[str, Any], int]:
    raw, total = litellm(plain, read, short, long, output)
    return {**raw, "prompt_tokens": plain}, total


def responses(plain: int, read: int, short: int, long: int, output: int) -> tuple[dict[str, Any], int]:
    prompt = plain + read + short + long
    split = {"ttl_30m_tokens": short, "ttl_12h_tokens": long}
    details = {"cached_tokens": read, "cache_write_tokens": short + long, "cache_write_tokens_details": split}
    total = prompt + output
    return {
        "input_tokens": prompt, "input_tokens_details": details, "output_tokens": output, "total_tokens": total,
        "output_tokens_details": {"reasoning_tokens": output // 2},
    }, total  # fmt: skip


def gemini(plain: int, read: int, short: int, long: int, output: int) -> tuple[dict[str, Any], int]:
    prompt, thoughts = plain + read + short, output // 2
    raw = {
        "promptTokenCount": prompt, "cachedContentTokenCount": read, "candidatesTokenCount": output - thoughts,
        "thoughtsTokenCount": thoughts, "toolUsePromptTokenCount": long, "totalTokenCount": prompt + long + output,
    }  # fmt: skip
    return {name: count for name, count in raw.items() if count or name == "promptTokenCount"}, prompt + long + output


def converse(plain: int, read: int, short: int, long: int, output: int) -> tuple[dict[str, Any], int]:
    total = plain + read + short + long + output
    details = [{"ttl": "1h", "inputTokens": long}, {"ttl": "5m", "inputTokens": short}]
    return {
        "inputTokens": plain, "outputTokens": output, "totalTokens": total, "cacheReadInputTokens": read,
        "cacheWriteInputTokens": short + long, "cacheDetails": details,
    }, total  # fmt: skip


def langchain(plain: int, read: int, short: int, long: int, output: int) -> tuple[dict[str, Any], int]:
    prompt = plain + read + short + long
    details = {"cache_read": read, "ephemeral_5m_input_tokens": short, "ephemeral_1h_input_tokens": long}
    return {
        "input_tokens": prompt, "output_tokens": output, "total_tokens": prompt + output,
        "input_token_details": {**details, "cache_creation": 0}, "output_token_details": {"reasoning": output // 4},
    }, prompt + output  # fmt: skip


def llama_cpp(plain: int, read: int, short: int, long: int, output: int) -> tuple[dict[str, Any], int]:
    fresh = plain + short + long
    return {"timings": {"prompt_n": fresh, "cache_n": read, "predicted_n": output}}, fresh + read + output


def generation(plain: int, read: int, short: int, long: int, output: int) -> tuple[dict[str, Any], int]:
    prompt = plain + read + short + long
    return {
        "native_tokens_prompt": prompt, "native_tokens_cached": read, "native_tokens_completion": output,
    }, prompt + output  # fmt: skip


def converse_inside(plain: int, read: int, short: int, long: int, output: int) -> tuple[dict[str, Any], int]:
    raw, total = converse(plain, read, short, long, output)
    return {**raw, "inputTokens": total - output}, total


def langchain_left_out(plain: int, read: int, short: int, long: int, output: int) -> tuple[dict[str, Any], int]:
    raw, total = langchain(plain, read, short, long, output)
    return {**raw, "input_tokens": plain}, total


APIS = [
    anthropic, chat, chat_with_reasoning_beside, chat_with_hidden_reasoning, hits_and_misses, litellm, cached_left_out,
    responses, gemini, converse, converse_inside, langchain, langchain_left_out, llama_cpp, generation,
]  # fmt: skip
FIVE = st.tuples(COUNT, COUNT, COUNT, COUNT, COUNT)


@settings(max_examples=2000, deadline=None)
@given(st.integers(0, 2**63))
def test_the_classes_are_disjoint_and_sum_to_the_providers_own_total(seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311
    counts = [chance.choice([0, 1, chance.randint(0, 5000), chance.randint(0, 10**7)]) for _ in range(5)]
    prices = [Decimal(chance.choice([0, chance.randint(0, 10**8)])).scaleb(-6) for _ in ALL]
    above = chance.choice([0, chance.randint(0, 10**7), sum(counts) - counts[4]])
    raw, total = chance.choice(APIS)(*counts)
    assert len(recognise(raw)) == 1
    reading = read_usage(raw)
    tokens = reading.tokens
    assert sum(tokens.of(name) for name in CLASSES) == tokens.prompt + tokens.output == total
    assert (tokens.cache_read, tokens.output) == (counts[1], counts[4])
    assert 0 <= tokens.reasoning <= tokens.output
    dearer = {name: 2 * price for name, price in zip(ALL, prices, strict=True)}
    card = PriceCard("m", "s", None, None, dict(zip(ALL, prices, strict=True)), (PriceTier(above, dearer),))
    made = price_usage(reading, "m", card, lambda name: card)
    # Independently of the card's own sum: class by class, the whole call on one side of the cliff.
    factor = 2 if tokens.prompt > above else 1
    paid = sum(made.tokens.of(name) * price for name, price in zip(CLASSES, prices, strict=False)) * factor
    assert made.list_usd == Decimal(paid).scaleb(-6)
    assert all(line.usd is not None and line.usd >= 0 for line in made.lines)
    assert sum(line.quantity or 0 for line in made.lines) == total


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(APIS), FIVE, st.data())
def test_a_count_that_is_more_than_what_holds_it_is_refused_and_kept(
    api: Any, counts: tuple[int, int, int, int, int], data: st.DataObject
) -> None:
    raw, _ = api(*counts)
    places = [(raw, name) for name in raw] + [
        (inner, name) for inner in raw.values() if isinstance(inner, dict) for name in inner
    ]
    place, name = data.draw(st.sampled_from([(p, n) for p, n in places if not isinstance(p[n], dict | list)]))
    place[name] = data.draw(st.sampled_from([-1, True, float("nan"), 1.5, "7", 10**12, 10**5000, [1], Decimal(3)]))
    with pytest.raises(UsageError) as refusal:
        read_usage(raw)
    assert refusal.value.raw is raw
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("raw", "complaint"),
    [
        ({"promptTokenCount": 5, "cachedContentTokenCount": 6, "totalTokenCount": 5}, "exceeds promptTokenCount"),
        ({"promptTokenCount": 5, "candidatesTokenCount": 6, "totalTokenCount": 12}, "fits no sum"),
        ({"inputTokens": 5, "outputTokens": 6, "cacheReadInputTokens": 9, "totalTokens": 11}, "exceed inputTokens"),
        ({"inputTokens": 5, "outputTokens": 6, "totalTokens": 12}, "fits neither"),
        (
            {"inputTokens": 5, "outputTokens": 6, "cacheWriteInputTokens": 2, "cacheDetails": [{"ttl": "1d"}]},
            "must be 5m or 1h",
        ),
        (
            {"input_tokens": 5, "output_tokens": 1, "total_tokens": 6, "input_token_details": {"cache_read": 6}},
            "exceed input_tokens",
        ),
        ({"input_tokens": 5, "output_tokens": 1, "total_tokens": 7, "input_token_details": {}}, "fits neither"),
        (
            {"input_tokens": 5, "output_tokens": 1, "output_token_details": {"reasoning": 2}},
            "exceeds output_tokens",
        ),
        ({"native_tokens_prompt": 5, "native_tokens_cached": 6, "native_tokens_completion": 1}, "exceed native"),
        ({"timings": {"prompt_n": 5}}, "predicted_n is missing"),
        ({"prompt_tokens": 5, "completion_tokens": 1, "prompt_cache_miss_tokens": 6}, "exceed prompt_tokens"),
        ({"input_tokens": 9, "output_tokens": 1, "cache_read_input_tokens": 4, "total_tokens": 12}, "fits neither"),
        ({"input_tokens": 3, "output_tokens": 1, "cache_read_input_tokens": 4, "total_tokens": 4}, "exceed the input"),
        ({"prompt_tokens": 5, "completion_tokens": 1, "inputTokens": 4, "outputTokens": 1}, "they disagree"),
        ({"prompt_tokens": 10**9, "completion_tokens": 1}, "more than 1,000,000,000 tokens"),
        ({"tokens": 5}, "of no known API"),
        ({}, "of no known API (fields: none)".replace("(", r"\(").replace(")", r"\)")),
    ],
)
def test_a_usage_that_contradicts_itself_is_refused_and_kept(raw: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint) as refusal:
        read_usage(raw)
    assert refusal.value.raw == raw


@settings(max_examples=200)
@given(FIVE)
def test_the_total_tells_whether_a_framework_put_the_cached_tokens_into_the_input(
    counts: tuple[int, int, int, int, int],
) -> None:
    apart, total = anthropic(*counts)
    cached = counts[1] + counts[2] + counts[3]
    inside = {**apart, "input_tokens": counts[0] + cached, "total_tokens": total}
    assert read_usage(inside).tokens == read_usage({**apart, "total_tokens": total}).tokens == read_usage(apart).tokens


def test_two_apis_in_one_object_are_one_usage_when_they_agree() -> None:
    raw = {"prompt_tokens": 5, "completion_tokens": 1, "inputTokens": 5, "outputTokens": 1}
    assert read_usage(raw).tokens == Tokens(input=5, output=1)


@pytest.mark.parametrize("null", [{"prompt_tokens_details": None}, {"prompt_tokens_details": {"cached_tokens": None}}])
def test_a_read_that_the_server_does_not_tell_is_unknown_and_has_no_price(null: dict[str, Any]) -> None:
    raw = {"prompt_tokens": 1000, "completion_tokens": 10, "total_tokens": 1010, **null}
    reading = read_usage(raw)
    assert reading.untold == {"cache_read"}
    made = priced(raw, "gpt-5")
    assert made.usd is None
    by_class = {line.token_class: line for line in made.lines}
    assert (by_class["cache_read"].quantity, by_class["cache_read"].usd) == (None, None)
    assert (by_class["input"].quantity, by_class["input"].usd) == (Decimal(1000), None)
    own = price_usage(reading, "self-hosted", SELF_HOSTED, lambda name: SELF_HOSTED)
    assert own.usd == 0
    same = PriceCard("m", "s", None, None, {"input": Decimal(1), "output": Decimal(2)})
    assert price_usage(reading, "m", same, lambda name: same).usd == Decimal("0.00102")


def test_searches_are_billed_by_the_thousand_and_no_batch_makes_them_cheaper() -> None:
    raw = {"input_tokens": 1000, "output_tokens": 100, "server_tool_use": {"web_search_requests": 3}}
    made = priced(raw, "claude-opus-5-5")
    assert made.usd == Decimal("0.004") + Decimal("0.002") + Decimal("0.03")
    assert priced({**raw, "service_tier": "batch"}, "claude-opus-5-5").usd == Decimal("0.003") + Decimal("0.03")


def test_modifiers_multiply() -> None:
    raw = {"input_tokens": 1000, "output_tokens": 100}
    modified = {**raw, "service_tier": "batch", "inference_geo": "us", "speed": "fast"}
    assert priced(raw, "claude-opus-5-5").usd == Decimal("0.006")
    assert priced(modified, "claude-opus-5-5").usd == Decimal("0.006") * Decimal("0.5") * Decimal("1.1") * 2


@pytest.mark.parametrize(("name", "value"), [("service_tier", "priority"), ("inference_geo", "moon"), ("speed", "x")])
def test_a_modifier_without_a_price_is_an_error_never_the_standard_price(name: str, value: str) -> None:
    with pytest.raises(PriceMissing, match=rf"{name} is '{value}'.*\[\[modifier\]\]"):
        priced({"input_tokens": 1000, "output_tokens": 100, name: value}, "claude-opus-5-5")


def test_what_is_free_stays_free_in_every_tier() -> None:
    reading = read_usage({"prompt_tokens": 5, "completion_tokens": 1, "service_tier": "priority"})
    assert price_usage(reading, "own", SELF_HOSTED, lambda name: SELF_HOSTED).usd == 0


def test_each_step_is_priced_by_the_length_of_its_own_prompt() -> None:
    card = PriceCard(
        "m", "s", None, None, {"input": Decimal(1), "output": Decimal(1)},
        (PriceTier(100_000, {"input": Decimal(5), "output": Decimal(5)}),),
    )  # fmt: skip
    step = {"input_tokens": 60_000, "output_tokens": 0}
    short = {**step, "iterations": [{"type": "compaction", **step}, {"type": "message", **step}]}
    assert price_usage(read_usage(short), "m", card, lambda name: card).usd == Decimal("0.12")
    assert book_usage(read_usage(short), "m", card, lambda name: card).card.price("input", 120_000) == 1
    long = {**step, "iterations": [{"type": "compaction", "input_tokens": 180_000, "output_tokens": 0},
                                   {"type": "message", **step}]}  # fmt: skip
    assert price_usage(read_usage(long), "m", card, lambda name: card).usd == Decimal("0.96")
    with pytest.raises(UsageError, match="no one price holds"):
        book_usage(read_usage(long), "m", card, lambda name: card)


@pytest.mark.parametrize(("asked", "usd"), [(None, "0.005"), ("5m", "0.005"), ("1h", "0.008")])
def test_a_write_of_untold_lifetime_has_the_price_of_the_one_asked_for(asked: str | None, usd: str) -> None:
    raw = {"input_tokens": 0, "cache_creation_input_tokens": 1000, "output_tokens": 0}
    made = priced(raw, "claude-opus-5-5", lifetime=asked)
    assert made.usd == Decimal(usd)
    assert made.tokens.cache_write_unknown == 0
    assert any("lifetime" in note for note in made.notes)


@pytest.mark.parametrize(
    ("asked", "model", "has"),
    [
        ("12h", "claude-opus-5-5", "5m, 1h"),
        ("30m", "claude-opus-5-5", "5m, 1h"),
        ("12h", "kimi-k3", "5m, 1h"),
        ("5m", "gpt-6.1-sol", "30m, 12h"),
    ],
)
def test_a_lifetime_that_the_model_does_not_price_is_refused_with_those_that_it_does(
    asked: str, model: str, has: str
) -> None:
    raw = {"prompt_tokens": 100, "completion_tokens": 5, "prompt_tokens_details": {"cache_write_tokens": 10}}
    with pytest.raises(PriceMissing, match=f"{model} .*cache_write_{asked}.*for {has}$"):
        priced(raw, model, lifetime=asked)
    general = PriceCard("own", "a file", None, None, dict.fromkeys(("input", "cache_write_unknown"), Decimal(2)))
    one_for_all = settle_untold(Tokens(cache_write_unknown=10), lifetime=asked, card=general)
    assert one_for_all == Tokens(cache_write_unknown=10)


def test_a_lifetime_that_has_no_price_is_an_error() -> None:
    raw = {"input_tokens": 0, "cache_creation_input_tokens": 1000, "output_tokens": 0}
    card = PriceCard("m", "s", None, None, {"input": Decimal(1), "cache_write_5m": Decimal(1), "output": Decimal(1)})
    with pytest.raises(PriceMissing, match="cache_write_1h"):
        price_usage(read_usage(raw), "m", card, lambda name: card, "1h")


@settings(max_examples=200)
@given(st.integers(1, 10**6), st.integers(0, 10**6), st.integers(0, 10**5), st.data())
def test_writes_that_a_router_hides_are_worked_out_of_its_bill(
    fresh: int, read: int, output: int, data: st.DataObject
) -> None:
    written = data.draw(st.integers(1, fresh))
    card = BOOK.card("claude-haiku-4-5", AT)
    truth = Tokens(input=fresh - written, cache_read=read, cache_write_5m=written, output=output)
    saving = (read * Decimal("0.9") - written * Decimal("0.25")).scaleb(-6)
    raw = {
        "native_tokens_prompt": fresh + read, "native_tokens_cached": read, "native_tokens_completion": output,
        "usage": card.cost(truth), "usage_cache": -saving,
    }  # fmt: skip
    made = price_usage(read_usage(raw), "m", card, lambda name: card)
    assert made.tokens == truth
    assert made.list_usd == made.billed_usd == card.cost(truth)
    unconfirmed = {**raw, "usage_cache": -saving - 1}
    assert price_usage(read_usage(unconfirmed), "m", card, lambda name: card).tokens.cache_write_5m == 0


def test_a_bill_wins_over_the_list_and_both_are_kept() -> None:
    made = priced({"prompt_tokens": 1000, "completion_tokens": 0, "cost": Decimal("0.002")}, "gpt-5")
    assert (made.usd, made.billed_usd, made.list_usd) == (Decimal("0.002"), Decimal("0.002"), Decimal("0.00125"))
    assert any("is not the list price" in note for note in made.notes)


def test_prices_for_a_kind_of_cache_are_taken_where_the_usage_tells_it() -> None:
    reading = read_usage(
        {
            "prompt_tokens": 100,
            "completion_tokens": 0,
            "prompt_tokens_details": {"cached_tokens": 100, "cache_type": "x"},
        }
    )
    card = PriceCard(
        "m", "s", None, None, {"input": Decimal(4), "cache_read": Decimal(2), "output": Decimal(1)},
        (PriceTier(10, {"cache_read": Decimal(3)}),),
    )  # fmt: skip
    explicit = PriceModifier("cache_type", "x", None, {"cache_read": Decimal(1)})
    assert price_usage(reading, "m", card, lambda name: card).usd == Decimal("0.0003")
    told = PriceCard("m", "s", None, None, card.usd_per_mtok, card.tiers, (explicit,))
    assert price_usage(reading, "m", told, lambda name: told).usd == Decimal("0.0001")


def test_every_shape_is_named_after_its_file() -> None:
    assert all(getattr(shape, "__name__", "").endswith(name) for name, shape in SHAPES.items())
