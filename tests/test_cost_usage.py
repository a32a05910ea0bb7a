"""Usage objects as providers send them, brought to disjoint tokens and to the exact dollar."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cost_model.errors import OutputUntold, UsageError
from cost_model.tokens import Tokens
from cost_model.usage import normalise, read_told
from cost_model.usage.billed import billed_usd
from cost_model.usage.document import calls_in
from cost_model.usage.modifiers import MODIFIERS, ORDINARY
from tests.usage_vectors import VECTORS, document

COUNT = st.integers(0, 10**7)


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["id"])
def test_a_real_usage_has_the_tokens_of_its_bill_unless_they_cannot_hold_all_that_was_billed(
    vector: dict[str, Any],
) -> None:
    for usage in (call.usage for call in calls_in(document(vector)).calls):
        if usage is None:
            continue
        reading, complaint = read_told(usage)
        modified = any(usage.get(name) not in (None, *ORDINARY) for name in MODIFIERS)
        if complaint is not None or reading.beside or modified:
            with pytest.raises(UsageError):
                normalise(reading.api, usage)
        else:
            assert normalise(reading.api, usage) == reading.tokens


@given(COUNT, COUNT, COUNT, COUNT, COUNT)
def test_the_three_inputs_of_anthropic_add_up_to_the_prompt(
    plain: int, read: int, write_5m: int, write_1h: int, out: int
) -> None:
    raw = {
        "input_tokens": plain,
        "cache_read_input_tokens": read,
        "cache_creation_input_tokens": write_5m + write_1h,
        "cache_creation": {"ephemeral_5m_input_tokens": write_5m, "ephemeral_1h_input_tokens": write_1h},
        "output_tokens": out,
    }
    tokens = normalise("anthropic_messages", raw)
    assert tokens.prompt == plain + read + write_5m + write_1h
    assert (tokens.cache_write_5m, tokens.cache_write_1h, tokens.output) == (write_5m, write_1h, out)


@given(COUNT, COUNT, COUNT, COUNT, COUNT, st.booleans())
def test_the_prompt_of_a_chat_completion_is_never_more_or_less_than_prompt_tokens(
    plain: int, read: int, written: int, completion: int, reasoning: int, additive: bool
) -> None:
    reasoning = reasoning if additive else min(reasoning, completion)
    prompt = plain + read + written
    raw = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion + (reasoning if additive else 0),
        "prompt_tokens_details": {"cached_tokens": read, "cache_write_tokens": written},
        "completion_tokens_details": {"reasoning_tokens": reasoning},
    }
    tokens = normalise("openai_chat", raw)
    assert tokens.prompt == prompt
    assert (tokens.cache_read, tokens.cache_write_unknown) == (read, written)
    assert tokens.prompt + tokens.output == raw["total_tokens"]
    assert tokens.reasoning == reasoning


@given(COUNT, COUNT, COUNT, COUNT, COUNT, st.sampled_from(["told", "untold"]))
def test_the_prompt_of_a_response_is_never_more_or_less_than_input_tokens(
    plain: int, read: int, half_hour: int, half_day: int, output: int, lifetimes: str
) -> None:
    written = half_hour + half_day
    details: dict[str, object] = {"cached_tokens": read, "cache_write_tokens": written}
    if lifetimes == "told":
        details["cache_write_tokens_details"] = {"ttl_30m_tokens": half_hour, "ttl_12h_tokens": half_day}
    raw = {
        "input_tokens": plain + read + written,
        "input_tokens_details": details,
        "output_tokens": output,
        "output_tokens_details": {"reasoning_tokens": output // 2},
        "total_tokens": plain + read + written + output,
    }
    tokens = normalise("openai_responses", raw)
    assert (tokens.prompt, tokens.input, tokens.cache_read) == (raw["input_tokens"], plain, read)
    assert tokens.prompt + tokens.output == raw["total_tokens"]
    by_lifetime = (tokens.cache_write_30m, tokens.cache_write_12h, tokens.cache_write_unknown)
    assert by_lifetime == ((half_hour, half_day, 0) if lifetimes == "told" else (0, 0, written))
    assert tokens.reasoning == output // 2


def test_reasoning_that_an_imitation_counts_beside_the_output_is_added_to_it() -> None:
    details = {"output_tokens_details": {"reasoning_tokens": 30}}
    raw = {"input_tokens": 100, "output_tokens": 20, "total_tokens": 150, **details}
    assert normalise("openai_responses", raw) == Tokens(input=100, output=50, reasoning=30)


@pytest.mark.parametrize(
    "place",
    [
        {"cached_tokens": 64},
        {"num_cached_tokens": 64},
        {"prompt_cache_hit_tokens": 64},
        {"cache_read_input_tokens": 64},
        {"prompt_token_details": {"cached_tokens": 64}},
        {"prompt_tokens_details": {"cached_tokens": 64}},
        {"num_cached_tokens": 64, "prompt_tokens_details": {"cached_tokens": 64}},
        {"timings": {"cache_n": 64, "prompt_n": 36, "predicted_n": 20}},
    ],
    ids=lambda place: "+".join(place),
)
def test_cached_tokens_are_found_wherever_an_imitation_keeps_them(place: dict[str, object]) -> None:
    assert normalise("openai_chat", {**CHAT, **place}) == Tokens(input=36, cache_read=64, output=20)


@pytest.mark.parametrize(
    "place",
    [
        {"cache_creation": {"ephemeral_5m_input_tokens": 10, "ephemeral_1h_input_tokens": 50}},
        {
            "prompt_tokens_details": {
                "cache_creation": {"ephemeral_5m_input_tokens": 10, "ephemeral_1h_input_tokens": 50}
            }
        },
        {
            "cache_creation_input_tokens": 60,
            "prompt_tokens_details": {
                "cache_creation_token_details": {"ephemeral_5m_input_tokens": 10, "ephemeral_1h_input_tokens": 50}
            },
        },
    ],
)
def test_a_chat_completion_may_tell_the_lifetimes_of_anthropics_cache(place: dict[str, object]) -> None:
    expected = Tokens(input=40, cache_write_5m=10, cache_write_1h=50, output=20)
    assert normalise("openai_chat", {**CHAT, **place}) == expected


def test_a_write_is_booked_under_the_lifetime_that_the_usage_tells() -> None:
    details = {
        "cached_tokens": 0,
        "cache_write_tokens": 21000,
        "cache_write_tokens_details": {"ttl_30m_tokens": 1000, "ttl_12h_tokens": 20000},
    }
    raw = {"prompt_tokens": 21500, "completion_tokens": 100, "prompt_tokens_details": details}
    expected = Tokens(input=500, cache_write_30m=1000, cache_write_12h=20000, output=100)
    assert normalise("openai_chat", raw) == expected


def test_details_that_are_null_are_as_good_as_absent() -> None:
    raw = {
        "prompt_tokens": 10,
        "completion_tokens": 2,
        "total_tokens": 12,
        "prompt_tokens_details": None,
        "completion_tokens_details": None,
    }
    assert normalise("openai_chat", raw) == Tokens(input=10, output=2)


@given(COUNT, COUNT, COUNT, COUNT)
def test_writes_whose_lifetime_anthropic_does_not_tell_are_of_an_unknown_one(
    plain: int, read: int, written: int, out: int
) -> None:
    raw = {
        "input_tokens": plain,
        "cache_read_input_tokens": read,
        "cache_creation_input_tokens": written,
        "cache_creation": None,
        "output_tokens": out,
    }
    tokens = normalise("anthropic_messages", raw)
    assert tokens == Tokens(input=plain, cache_read=read, cache_write_unknown=written, output=out)


def test_the_totals_tell_the_lifetimes_of_writes_where_the_iterations_do_not() -> None:
    step = {"input_tokens": 5, "cache_creation_input_tokens": 2000, "output_tokens": 7}
    split = {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 2000}
    compaction = {"type": "compaction", "input_tokens": 100, "output_tokens": 10}
    raw = {**step, "cache_creation": split, "iterations": [compaction, {**step, "type": "message"}]}
    assert normalise("anthropic_messages", raw) == Tokens(input=105, cache_write_1h=2000, output=17)


@given(COUNT, COUNT, COUNT, st.one_of(st.none(), COUNT))
def test_an_output_that_was_never_told_leaves_the_prompt_as_exact_as_it_came(
    plain: int, read: int, written: int, begun: int | None
) -> None:
    raw = {
        "input_tokens": plain,
        "cache_read_input_tokens": read,
        "cache_creation_input_tokens": written,
        **({} if begun is None else {"message_start": {"output_tokens": begun}}),
    }
    with pytest.raises(OutputUntold, match="output_tokens is missing") as untold:
        normalise("anthropic_messages", raw)
    assert untold.value.told == normalise("anthropic_messages", {**raw, "output_tokens": begun or 0})
    assert untold.value.raw == raw


@pytest.mark.parametrize(
    ("modifier", "value"),
    [
        ("service_tier", "priority"),
        ("service_tier", "batch"),
        ("service_tier", "flex"),
        ("service_tier", 7),
        ("speed", "fast"),
        ("inference_geo", "us"),
        ("inference_geo", "u\n" * 99),
    ],
)
@pytest.mark.parametrize("flavour", ["anthropic_messages", "openai_chat", "openai_responses"])
def test_usage_that_was_not_billed_at_standard_prices_is_never_priced_in_silence(
    flavour: str, modifier: str, value: object
) -> None:
    standard = CHAT if flavour == "openai_chat" else ANTHROPIC
    with pytest.raises(UsageError, match=f"^usage: {modifier} is .{{1,90}}: such a call is not billed at standard"):
        normalise(flavour, {**standard, modifier: value})


@given(
    st.sampled_from(["anthropic_messages", "openai_chat", "openai_responses"]),
    st.dictionaries(
        st.sampled_from(["service_tier", "speed", "inference_geo"]),
        st.sampled_from(["standard", "default", "auto", "on_demand", "not_available", "global", None]),
    ),
)
def test_what_says_that_a_call_was_an_ordinary_one_changes_nothing(flavour: str, told: dict[str, object]) -> None:
    standard = CHAT if flavour == "openai_chat" else ANTHROPIC
    assert normalise(flavour, {**standard, **told}) == normalise(flavour, standard)


ANTHROPIC = {"input_tokens": 5, "output_tokens": 5}
CHAT = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}
CONTRADICTIONS: list[tuple[str, Mapping[str, object], str]] = [
    ("anthropic_messages", {"input_tokens": 5}, "output_tokens is missing"),
    ("anthropic_messages", {**ANTHROPIC, "cache_creation_input_tokens": -1}, "cache_creation_input_tokens"),
    (
        "anthropic_messages",
        {
            **ANTHROPIC,
            "cache_creation_input_tokens": 9,
            "cache_creation": {"ephemeral_5m_input_tokens": 3, "ephemeral_1h_input_tokens": 3},
        },
        "adds up to 6",
    ),
    ("anthropic_messages", {**ANTHROPIC, "cache_creation": [1]}, "must be an object"),
    ("anthropic_messages", {**ANTHROPIC, "output_tokens_details": {"thinking_tokens": 6}}, "thinking_tokens"),
    (
        "anthropic_messages",
        {**ANTHROPIC, "iterations": [{"type": "message", "input_tokens": 5, "output_tokens": 4}]},
        "the totals say 5 and 5",
    ),
    (
        "anthropic_messages",
        {**ANTHROPIC, "iterations": [{"type": "advisor_message", "input_tokens": 5, "output_tokens": 4}]},
        "billed apart",
    ),
    ("openai_chat", {"prompt_tokens": 5}, "completion_tokens is missing"),
    ("openai_chat", {**CHAT, "prompt_tokens_details": {"cached_tokens": 101}}, "exceed prompt_tokens"),
    (
        "openai_chat",
        {**CHAT, "prompt_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 41}},
        "exceed prompt_tokens",
    ),
    ("openai_chat", {**CHAT, "cached_tokens": 3, "prompt_tokens_details": {"cached_tokens": 4}}, "disagree"),
    ("openai_chat", {**CHAT, "prompt_cache_hit_tokens": 50, "prompt_cache_miss_tokens": 49}, "hits and misses"),
    ("openai_chat", {**CHAT, "total_tokens": 119}, "total_tokens"),
    ("openai_chat", {**CHAT, "total_tokens": 125, "completion_tokens_details": {"reasoning_tokens": 4}}, "total"),
    ("openai_chat", {**CHAT, "completion_tokens_details": {"reasoning_tokens": 21}}, "reasoning_tokens"),
    ("openai_chat", {**CHAT, "timings": {"cache_n": 1, "prompt_n": 98, "predicted_n": 20}}, "timings tell a prompt"),
    ("openai_chat", {**CHAT, "cache_creation": {"ephemeral_5m_input_tokens": 1}, "cached_tokens": 100}, "exceed"),
    (
        "openai_chat",
        {**CHAT, "cache_creation": {"ephemeral_5m_input_tokens": 1}, "cache_creation_input_tokens": 2},
        "written tokens disagree",
    ),
    ("openai_responses", {"input_tokens": 5}, "output_tokens is missing"),
    ("openai_responses", {**ANTHROPIC, "input_tokens_details": {"cached_tokens": 6}}, "exceed input_tokens"),
    ("openai_responses", {**ANTHROPIC, "total_tokens": 11}, "fits neither"),
    ("openai_responses", {**ANTHROPIC, "output_tokens_details": {"reasoning_tokens": 6}}, "reasoning_tokens"),
    (
        "openai_responses",
        {
            **ANTHROPIC,
            "input_tokens_details": {"cache_write_tokens": 5, "cache_write_tokens_details": {"ttl_12h_tokens": 4}},
        },
        "add up to 4",
    ),
    ("gopher", CHAT, "flavour"),
]


@pytest.mark.parametrize(("flavour", "raw", "complaint"), CONTRADICTIONS)
def test_a_contradictory_usage_is_refused_and_kept(flavour: str, raw: Mapping[str, object], complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint) as refusal:
        normalise(flavour, raw)
    assert refusal.value.raw == raw
    assert "\n" not in str(refusal.value)


@given(
    st.sampled_from(["prompt_tokens", "completion_tokens", "total_tokens"]),
    st.one_of(st.floats(), st.text(), st.booleans(), st.integers(max_value=-1), st.integers(min_value=10**12 + 1)),
)
def test_what_is_no_count_of_tokens_is_refused(name: str, value: object) -> None:
    with pytest.raises(UsageError, match=name):
        normalise("openai_chat", {**CHAT, name: value})


def test_the_bill_of_a_caller_with_an_own_key_is_the_fee_and_the_upstream_charge() -> None:
    details = {"upstream_inference_cost": 0.0360795}
    assert billed_usd({"cost": 0, "is_byok": True, "cost_details": details}) == Decimal("0.0360795")
    assert billed_usd({"cost": 0.017558, "is_byok": False, "cost_details": details}) == Decimal("0.017558")
    with pytest.raises(UsageError, match="upstream"):
        billed_usd({"cost": 0, "is_byok": True})


def test_a_bill_in_ticks_is_brought_to_dollars() -> None:
    assert billed_usd({"cost_in_usd_ticks": 232856000}) == Decimal("0.0232856")
    assert billed_usd({"prompt_tokens": 3}) is None


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1, True, "0.1", {}])
def test_a_bill_that_is_no_amount_of_money_is_refused(value: object) -> None:
    with pytest.raises(UsageError, match="cost"):
        billed_usd({"cost": value})


BOTH_NAMES = {"input_tokens": 100, "output_tokens": 50, "prompt_tokens": 100, "completion_tokens": 50}


def test_a_count_under_two_names_may_differ_by_what_was_cached_or_thought_and_by_nothing_else() -> None:
    for agreed in (
        {},
        {"input_tokens": 0, "output_tokens": 0},
        {"input_tokens": 80, "cache_read_input_tokens": 20},
        {"completion_tokens": 30, "total_tokens": 150, "completion_tokens_details": {"reasoning_tokens": 20}},
    ):
        read, complaint = read_told({**BOTH_NAMES, **agreed})
        assert complaint is None
        assert (read.tokens.prompt, read.tokens.output) == (100, 50)
    for name, other in (("input_tokens", "prompt_tokens"), ("output_tokens", "completion_tokens")):
        with pytest.raises(UsageError, match=rf"{name} \(7\) and {other} .* disagree"):
            read_told({**BOTH_NAMES, name: 7})
    with pytest.raises(UsageError, match="candidates_token_count"):
        read_told({"promptTokenCount": 10, "candidatesTokenCount": 5, "candidates_token_count": 6})


@pytest.mark.parametrize("told", ["yes", "false", 1, 0, []])
def test_whose_key_was_used_is_yes_or_no_and_nothing_else(told: object) -> None:
    bill = {"prompt_tokens": 10, "completion_tokens": 2, "cost": 0.5, "is_byok": told}
    with pytest.raises(UsageError, match="is_byok must be true or false"):
        billed_usd(bill)
    with pytest.raises(UsageError, match="is_byok must be true or false"):
        billed_usd({"native_tokens_prompt": 10, "total_cost": 0.5, "is_byok": told})
    assert billed_usd({**bill, "is_byok": None}) == billed_usd({**bill, "is_byok": False}) == Decimal("0.5")
