"""Files of calls, generated: whatever stands in them, the sums hold."""

import random
import sys
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.registry import load_models
from cost_model.call_file.report import report_calls
from cost_model.call_file.scope import price_calls, read_call_lines
from cost_model.errors import CostError
from cost_model.model_caches import cache_of
from cost_model.prices import PriceBook
from cost_model.usage.report import Question
from tests.call_lines import text_of

START = datetime(2026, 11, 24, 12, tzinfo=UTC)
QUESTION = Question(prices=PriceBook(), now=START)


def explained(text: str) -> dict[str, Any]:
    return report_calls(price_calls(*read_call_lines(text), QUESTION))


def usage(chance: random.Random, api: str) -> dict[str, Any] | None:
    read, plain, written, output = (chance.choice([0, 0, 1, 700, 5000, 130_000]) for _ in range(4))
    if chance.random() < 0.1:
        return None
    if api == "anthropic":
        made: dict[str, Any] = {
            "input_tokens": plain, "cache_read_input_tokens": read, "cache_creation_input_tokens": written,
            "output_tokens": output,
        }  # fmt: skip
        if chance.random() < 0.5:
            hour = chance.randint(0, written)
            made["cache_creation"] = {
                "ephemeral_5m_input_tokens": written - hour, "ephemeral_1h_input_tokens": hour,
            }  # fmt: skip
        return made | ({"service_tier": "batch"} if chance.random() < 0.1 else {})
    cached = None if chance.random() < 0.1 else read
    return {
        "prompt_tokens": plain + read,
        "completion_tokens": output,
        "prompt_tokens_details": {"cached_tokens": cached},
    }


def call_lines(chance: random.Random) -> list[dict[str, Any]]:
    """Calls of several roles, lanes, models and APIs, whose counts need not fit together."""
    made, at = [], 0.0
    for number in range(chance.randint(1, 9)):
        at += chance.choice([0.0, 0.5, 299.0, 301.0, 4000.0])
        api, model = chance.choice(
            [("anthropic", "claude-opus-5-5"), ("anthropic", "claude-haiku-4-5"), ("chat", "deepseek-v4-flash"),
             ("chat", "glm-5.3"), ("chat", "gpt-5.4")]
        )  # fmt: skip
        line: dict[str, Any] = {
            "key": f"{number:02}",
            "role": chance.choice(["planner", "worker"]),
            "model": model,
            "requested_at": (START + timedelta(seconds=at)).isoformat(),
            "usage": usage(chance, api),
        }
        if chance.random() < 0.5:
            line["first_token_at"] = (START + timedelta(seconds=at + chance.choice([0, 1, 400]))).isoformat()
        if chance.random() < 0.4:
            line["blocks"] = [[name, chance.choice([0, 10, 900])] for name in "abcdef"[: chance.randint(1, 6)]]
        if chance.random() < 0.2:
            line["outcome"] = chance.choice(["complete", "cut", "cancelled", "refused", "lost"])
        if chance.random() < 0.2:
            line["lane"] = chance.choice(["one", "two"])
        made.append(line)
    return made


def exact(amounts: list[str | None]) -> Decimal | None:
    total = Decimal(0)
    for amount in amounts:
        if amount is None:
            return None
        total += Decimal(amount)
    return total


def number(amount: str | None) -> Decimal | None:
    return None if amount is None else Decimal(amount)


@given(st.integers(0, 2**63))
@settings(max_examples=400, deadline=None)
def test_causes_sum_to_the_prompt_and_cost_is_additive_over_calls_and_roles(seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311
    lines = call_lines(chance)
    made = explained(text_of(lines))
    calls, totals = made["calls"], made["totals"]
    for call in calls:
        if call["prompt_tokens"] is not None:
            assert sum(told["units"] for told in call["causes"].values()) == call["prompt_tokens"]
            assert all(told["units"] >= 0 for told in call["causes"].values())
        if call["list_usd"] is not None:
            assert exact([told["usd"] for told in call["classes"].values()]) == Decimal(call["list_usd"])
        if call["cost_usd"] is None:
            high = call["cost_high_usd"]
            assert high is None or Decimal(call["cost_low_usd"]) < Decimal(high)
        if call["expiry"] is not None:
            assert call["expiry"]["tokens"] == call["causes"]["expiry_rebuild"]["units"]
            assert sum(held["seconds"] for held in call["expiry"]["held"]) == pytest.approx(call["idle_s"] or 0)
    costs = [call["cost_usd"] for call in calls]
    assert exact(costs) == number(totals["cost_usd"]) == exact([role["cost_usd"] for role in totals["roles"].values()])
    assert totals["unknown"] == costs.count(None)
    excess = exact([call["excess_usd"] for call in calls])
    assert excess == Decimal(totals["excess_usd"]) == exact([told["excess_usd"] for told in totals["causes"].values()])
    for name, total in totals["classes"].items():
        of_roles = [role["classes"][name] for role in totals["roles"].values() if name in role["classes"]]
        assert exact([told["usd"] for told in of_roles]) == number(total["usd"])
    for name, count in totals["tokens"].items():
        counts = [call["tokens"][name] for call in calls]
        assert count == (None if None in counts else sum(counts))
    assert None in costs or sum(len(role["classes"]) for role in totals["roles"].values()) >= len(totals["classes"])
    chance.shuffle(lines)
    assert explained(text_of(lines)) == made


@given(st.integers(0, 2**63))
@settings(max_examples=150, deadline=None)
def test_what_a_call_costs_does_not_depend_on_the_others(seed: int) -> None:
    lines = call_lines(random.Random(seed))  # noqa: S311
    together = {call["key"]: call for call in explained(text_of(lines))["calls"]}
    for line in lines:
        (alone,) = explained(text_of([line]))["calls"]
        assert alone["cost_usd"] == together[line["key"]]["cost_usd"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
FIELD = st.sampled_from(
    ["role", "lane", "model", "requested_at", "first_token_at", "ended_at", "usage", "events", "api", "lifetime",
     "cache", "blocks", "outcome", "key", "call_id", "prompt_bytes", "max_output_tokens", "other"]
)  # fmt: skip


@given(st.lists(st.tuples(st.integers(0, 2**63), FIELD, JSON), min_size=1, max_size=3))
@settings(max_examples=300, deadline=None)
def test_whatever_stands_in_a_field_is_explained_or_refused_in_one_line(drawn: list[tuple[int, str, Any]]) -> None:
    lines = []
    for seed, name, value in drawn:
        line = call_lines(random.Random(seed))[0]  # noqa: S311
        lines.append({**line, name: value})
    try:
        made = explained(text_of(lines))
    except CostError as refusal:
        words = str(refusal)
    else:
        words = f"line by line, {made['totals']['calls']} calls"
        assert made["totals"]["calls"] == len(made["calls"])
    assert words.startswith("line ")
    assert len(words.split("\n")) == 1


def calls_made(work: Any) -> int:
    """How many functions were called meanwhile: a measure of work that no other process disturbs."""
    count = 0

    def note(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def test_the_work_grows_with_the_file_and_not_with_its_square() -> None:
    """Every call expires, and one lane's gap holds all calls of the others."""

    def work(count: int) -> int:
        written = {"input_tokens": 0, "cache_creation_input_tokens": 5000, "output_tokens": 10}
        lines = [
            {"role": "abc"[n % 3], "model": "claude-opus-5-5", "requested_at": 1795521600 + 200 * n, "usage": written}
            for n in range(count)
        ]
        for end in (-10, 200 * count):
            lines.append({**lines[0], "role": "lead", "requested_at": 1795521600 + end})
        text = text_of(lines)
        return calls_made(lambda: explained(text))

    work(3)
    assert work(400) < 10 * work(50)


def test_every_shipped_model_has_the_cache_that_its_name_tells() -> None:
    """Where a name tells one: a gateway's or a simulated model's may differ, a Qwen request may be marked."""
    told = {}
    for entry in load_models().values():
        if entry.provider in ("simulated", "openrouter") or entry.name.endswith("-marks"):
            continue
        told[entry.name] = cache_of(entry.model, entry.protocol)
        assert told[entry.name] == entry.cache, entry.name
    assert len(told) > 40


@pytest.mark.parametrize(
    ("model", "cache"),
    [
        ("claude-haiku-4-5-20251001", "anthropic-4096"),
        ("claude-sonnet-4-20250514", "anthropic-1024"),
        ("claude-opus-4-1@20250805", "anthropic-1024"),
        ("claude-3-7-sonnet-latest", "anthropic-1024"),
        ("eu.anthropic.claude-sonnet-4-5-20250929-v1:0", "anthropic-1024"),
        ("anthropic/claude-sonnet-5.5", "anthropic-512"),
        ("openrouter:z-ai/glm-5.3-flash", "glm"),
        ("gpt-5-2025-08-07", "openai-1024"),
        ("gpt-5.5-pro", "openai-24h"),
        ("self-hosted", "prefix-16"),
        ("claude-opus-4-9", None),
        ("my-model", None),
        ("", None),
    ],
)
def test_a_name_as_logs_have_it_tells_its_cache_or_nothing(model: str, cache: str | None) -> None:
    assert cache_of(model) == cache


def test_a_chat_completion_of_a_model_with_two_caches_has_the_short_one() -> None:
    assert cache_of("gpt-6.1-sol") == cache_of("gpt-6.1-sol", "openai_responses") == "openai-30m"
    assert cache_of("gpt-6.1-sol", "openai_chat") == "openai-30m-chat"
    assert cache_of("whatever.gguf", "llama_cpp") == "prefix-16"
