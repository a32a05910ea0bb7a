"""Why each token of a prompt was billed as it was: the fold over the calls of one cache scope."""

import json
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cost_model.calls import Outcome
from cost_model.causes import REBUILDS
from cost_model.errors import PriceMissing
from cost_model.ledger import MOST_OUTPUT_TOKENS
from cost_model.policies import POLICIES
from cost_model.policy import CachePolicy
from cost_model.prefixes import apportion
from cost_model.price_card import SELF_HOSTED, PriceCard
from cost_model.scope import CallFact, ExplainedCall, PromptBlock, explain
from cost_model.tokens import CLASSES, PROMPT_CLASSES, Tokens

START = datetime(2026, 11, 24, 12, tzinfo=UTC)
ANTHROPIC = POLICIES["anthropic-1024"]
OPENAI = POLICIES["openai-1024"]
DEEPSEEK = POLICIES["deepseek"]
OPUS = PriceCard(
    "claude-opus-5-5",
    "list",
    None,
    None,
    {
        "input": Decimal(4),
        "cache_read": Decimal("0.2"),
        "cache_write_5m": Decimal(5),
        "cache_write_1h": Decimal(8),
        "output": Decimal(20),
    },
)
TIMELINES = json.loads((Path(__file__).parent / "data" / "cost_timelines.json").read_text(encoding="utf-8"))


def blocks(text: str) -> list[PromptBlock]:
    """A prompt out of words: "head a b" is three blocks; word:500 has 500 bytes, others 1000."""
    return [PromptBlock(word.split(":")[0], int(word.split(":")[1]) if ":" in word else 1000) for word in text.split()]


def call(
    at_s: float,
    prompt: str,
    tokens: Tokens | None,
    *,
    key: str | None = None,
    lane: str = "planner",
    policy: CachePolicy = ANTHROPIC,
    card: PriceCard = OPUS,
    first_token_s: float | None = 1.0,
    outcome: Outcome = "complete",
    **more: Any,
) -> CallFact:
    sent = blocks(prompt)
    facts: dict[str, Any] = {
        "lifetime": None,
        "model": "opus",
        "prompt_bytes": sum(block.size for block in sent),
        "max_output_tokens": 1000,
        **more,
    }
    return CallFact(
        key=key or f"{lane}/{at_s:012.3f}",
        lane=lane,
        requested_at=START + timedelta(seconds=at_s),
        first_token_at=None if first_token_s is None else START + timedelta(seconds=at_s + first_token_s),
        outcome=outcome,
        tokens=tokens,
        policy=policy,
        card=card,
        prompt=sent,
        **facts,
    )


def causes(explained: ExplainedCall) -> dict[str, int]:
    """Prompt tokens by cause."""
    count: Counter[str] = Counter()
    for charge in explained.charges:
        if charge.token_class != "output":
            assert charge.units is not None
            count[charge.cause] += charge.units
    return dict(count)


def wrote(count: int, read: int = 0, output: int = 100) -> Tokens:
    return Tokens(cache_read=read, cache_write_5m=count, output=output)


@pytest.mark.parametrize("timeline", TIMELINES, ids=lambda timeline: timeline["id"])
def test_a_known_timeline_comes_out_to_the_dollar(timeline: dict[str, Any]) -> None:
    card = PriceCard("m", "list", None, None, {name: Decimal(p) for name, p in timeline["usd_per_mtok"].items()})
    prompt = "head"
    calls = []
    for number, event in enumerate(timeline["calls"]):
        if number and event["kind"] != "keepalive":
            prompt += f" turn{number}"
        lifetime = "1h" if "cache_write_1h" in event["tokens"] else None
        calls.append(call(event["at_s"], prompt, Tokens(**event["tokens"]), card=card, lifetime=lifetime))
    explained = explain(calls)
    assert [one.cost_usd for one in explained] == [Decimal(event["usd"]) for event in timeline["calls"]]
    assert sum(one.list_usd or 0 for one in explained) == Decimal(timeline["total_usd"])
    expired = sum("expiry_rebuild" in causes(one) for one in explained)
    assert expired == sum(event["kind"] == "rebuild_expired" for event in timeline["calls"])
    if "excess_usd" in timeline:
        assert sum(one.excess_usd for one in explained) == Decimal(timeline["excess_usd"])


def test_a_prefix_that_outlived_its_cache_is_booked_as_expiry_and_the_new_part_as_growth() -> None:
    first, second = explain([call(0, "head", wrote(100_000)), call(720, "head turn", wrote(100_500))])
    assert causes(first) == {"first_write": 100_000}
    assert causes(second) == {"expiry_rebuild": 100_000, "growth": 500}
    assert second.excess_usd == Decimal("0.48")
    assert [charge.basis for charge in second.charges] == ["arithmetic", "arithmetic", "reported"]
    assert second.idle_s == 720
    assert first.idle_s is None


def test_the_clock_of_a_cache_starts_with_the_request_not_with_its_answer() -> None:
    late = call(301, "head turn", wrote(58_000))
    for first_token_s in (1.0, 200.0):
        first = call(0, "head", wrote(50_000), first_token_s=first_token_s)
        assert causes(explain([first, late])[1]) == {"expiry_rebuild": 50_000, "growth": 8000}


def test_an_entry_lives_up_to_its_lifetime_and_not_longer() -> None:
    first = call(0, "head", wrote(50_000))
    assert "eviction" in causes(explain([first, call(300, "head", wrote(50_000))])[1])
    assert "expiry_rebuild" in causes(explain([first, call(300.001, "head", wrote(50_000))])[1])


def test_a_keep_alive_read_restarts_the_clock() -> None:
    ping = call(290, "head", Tokens(cache_read=50_000))
    late = call(580, "head turn", wrote(51_000))
    assert causes(explain([call(0, "head", wrote(50_000)), ping, late])[2]) == {"eviction": 50_000, "growth": 1000}
    rigid = replace(ANTHROPIC, sliding=False)
    calls = [replace(one, policy=rigid) for one in (call(0, "head", wrote(50_000)), ping, late)]
    assert causes(explain(calls)[2]) == {"expiry_rebuild": 50_000, "growth": 1000}


def test_an_entry_written_for_an_hour_keeps_its_hour_when_a_five_minute_call_reads_it() -> None:
    calls = [
        call(0, "head", Tokens(cache_write_1h=50_000), lifetime="1h"),
        call(1000, "head a", Tokens(cache_read=50_000, cache_write_5m=1000)),
        call(2000, "head b", Tokens(cache_write_5m=51_000), lane="other"),
        call(9000, "head c", Tokens(cache_write_5m=51_000), lane="third"),
    ]
    explained = explain(calls)
    assert causes(explained[1]) == {"hit": 50_000, "growth": 1000}
    assert causes(explained[2]) == {"eviction": 50_000, "first_write": 1000}
    assert causes(explained[3]) == {"expiry_rebuild": 50_000, "first_write": 1000}


def test_a_change_in_an_early_block_rebuilds_what_lies_behind_it() -> None:
    calls = [
        call(0, "head a", wrote(5000)),
        call(10, "head a b", wrote(3000, read=5000)),
        call(20, "head a b c", wrote(2000, read=8000)),
        call(30, "head a X c d", wrote(6500, read=5000)),
    ]
    changed = explain(calls)[3]
    assert causes(changed) == {"hit": 5000, "change_rebuild": 5000, "growth": 1500}
    assert changed.excess_usd == (5000 * (Decimal(5) - Decimal("0.2"))).scaleb(-6)
    assert {charge.basis for charge in changed.charges} <= {"reported", "arithmetic"}


def test_a_changed_head_loses_everything() -> None:
    calls = [call(0, "head a", wrote(5000)), call(10, "HEAD a b", wrote(6000))]
    assert causes(explain(calls)[1]) == {"change_rebuild": 5000, "growth": 1000}


def test_a_cache_with_breakpoints_is_not_blamed_for_what_has_no_breakpoint() -> None:
    first = call(0, "head:4000 a:500 b:500", wrote(5000))
    read_head = call(10, "head:4000 a:500 c:500", wrote(1000, read=4000), lane="other")
    assert causes(explain([first, read_head])[1]) == {"hit": 4000, "first_write": 1000}
    read_nothing = replace(read_head, tokens=wrote(5000))
    assert causes(explain([first, read_nothing])[1]) == {"eviction": 4000, "first_write": 1000}


def test_blocks_between_two_breakpoints_are_lost_with_the_later_one() -> None:
    calls = [
        call(0, "head a", wrote(5000)),
        call(10, "head a b c", wrote(3000, read=5000)),
        call(20, "head a b X", wrote(3000, read=5000)),
    ]
    assert causes(explain(calls)[2]) == {"hit": 5000, "change_rebuild": 3000}


def test_a_miss_in_time_of_what_was_readable_is_an_eviction() -> None:
    evicted = explain([call(0, "head", wrote(50_000)), call(60, "head a", wrote(50_200))])[1]
    assert causes(evicted) == {"eviction": 50_000, "growth": 200}
    assert evicted.excess_usd == Decimal("0.24")


def test_parallel_first_writes_are_a_race_until_the_first_began_to_answer() -> None:
    calls = [
        call(0, "head a", wrote(5000), lane="one", first_token_s=2),
        call(1, "head b", wrote(6000), lane="two", first_token_s=9),
        call(1.5, "head a", wrote(5000), lane="three", first_token_s=9),
        call(2.5, "head a", wrote(5000), lane="four"),
    ]
    explained = explain(calls)
    assert list(causes(explained[1])) == ["race", "first_write"]
    assert causes(explained[2]) == {"race": 5000}
    assert causes(explained[3]) == {"eviction": 5000}


def test_a_prompt_below_the_minimum_is_never_cached() -> None:
    calls = [
        call(0, "head", Tokens(input=900, output=5)),
        call(5, "head a", Tokens(input=1000, output=5)),
        call(9, "head a b", wrote(1100)),
    ]
    explained = explain(calls)
    assert [causes(one) for one in explained[:2]] == [{"below_minimum": 900}, {"below_minimum": 1000}]
    assert causes(explained[2]) == {"below_minimum": 1000, "growth": 100}
    assert all(one.excess_usd == 0 for one in explained)


def test_a_shared_head_below_the_minimum_cannot_be_evicted() -> None:
    calls = [call(0, "head:100 a:900", wrote(2000)), call(9, "head:100 b:900", wrote(2000), lane="other")]
    assert causes(explain(calls)[1]) == {"below_minimum": 200, "first_write": 1800}


def test_without_a_cache_everything_is_uncacheable() -> None:
    none = POLICIES["none"]
    calls = [call(at, "head a", Tokens(input=5000, output=9), policy=none) for at in (0, 5)]
    assert [causes(one) for one in explain(calls)] == [{"uncacheable": 5000}] * 2


def test_a_cache_that_reads_in_steps_leaves_a_rest_below_one_step() -> None:
    calls = [
        call(0, "head", Tokens(input=1500), policy=OPENAI),
        call(9, "head a", Tokens(cache_read=1408, input=192), policy=OPENAI),
        call(18, "head a b", Tokens(cache_read=1024, input=676), policy=OPENAI),
    ]
    explained = explain(calls)
    assert causes(explained[1]) == {"hit": 1408, "uncacheable": 92, "growth": 100}
    assert explained[1].excess_usd == 0
    assert causes(explained[2]) == {"hit": 1024, "eviction": 576, "growth": 100}


def test_a_rest_of_a_whole_step_is_an_eviction() -> None:
    calls = [
        call(0, "head", Tokens(input=1536), policy=OPENAI),
        call(9, "head a", Tokens(cache_read=1408, input=192), policy=OPENAI),
    ]
    assert causes(explain(calls)[1]) == {"hit": 1408, "eviction": 128, "growth": 64}


def test_a_rest_below_one_step_is_not_written_anew_and_so_starts_no_race() -> None:
    calls = [
        call(0, "head", Tokens(input=1500), policy=OPENAI),
        call(9, "head a", Tokens(cache_read=1408, input=192), policy=OPENAI, first_token_s=30),
        call(12, "head b", Tokens(cache_read=1408, input=192), policy=OPENAI, lane="other"),
    ]
    assert causes(explain(calls)[2]) == {"hit": 1408, "uncacheable": 92, "first_write": 100}


def test_an_expiry_is_billed_as_plain_input_where_writes_are_free() -> None:
    calls = [
        call(0, "head", Tokens(input=2000), policy=DEEPSEEK),
        call(5 * 3600, "head a", Tokens(input=2100), policy=DEEPSEEK),
    ]
    assert [(c.token_class, c.cause, c.units) for c in explain(calls)[1].charges] == [
        ("input", "expiry_rebuild", 2000),
        ("input", "growth", 100),
    ]


def test_a_boundary_inside_an_earlier_prompt_is_apportioned_by_bytes_and_says_so() -> None:
    first = call(0, "head:3000 a:1000", Tokens(input=2000), policy=DEEPSEEK)
    second = call(9, "head:3000 b:1000", Tokens(input=3000), policy=DEEPSEEK, lane="other")
    explained = explain([first, second])[1]
    assert causes(explained) == {"eviction": 1500, "first_write": 1500}
    assert {charge.basis for charge in explained.charges} == {"estimated"}
    assert explained.basis == "reported"


def test_a_change_after_a_call_of_unknown_usage_is_measured_by_its_bytes() -> None:
    calls = [
        call(0, "head a", wrote(4000)),
        call(9, "head a b c", None, outcome="cut"),
        call(18, "X a b c d", wrote(10_000)),
    ]
    changed = explain(calls)[2]
    assert causes(changed) == {"change_rebuild": 8000, "growth": 2000}
    assert {charge.basis for charge in changed.charges if charge.token_class != "output"} == {"estimated"}


def test_a_read_that_ends_near_an_estimated_boundary_settles_it() -> None:
    first = call(0, "head:3000 a:1000", Tokens(input=2000), policy=DEEPSEEK)
    second = call(9, "head:3000 b:3000", Tokens(cache_read=1344, input=1656), policy=DEEPSEEK, lane="other")
    explained = explain([first, second])[1]
    assert causes(explained) == {"hit": 1344, "first_write": 1656}
    assert explained.excess_usd == 0


def test_another_model_shares_nothing() -> None:
    calls = [call(0, "head", wrote(5000)), call(9, "head", wrote(5000), model="haiku", lane="worker")]
    assert causes(explain(calls)[1]) == {"first_write": 5000}


def test_a_miss_is_crossed_with_the_classes_by_position() -> None:
    calls = [
        call(0, "head a", wrote(3000)),
        call(400, "head a b", Tokens(cache_read=1000, cache_write_1h=1500, cache_write_5m=1200, input=300)),
    ]
    assert [(c.token_class, c.cause, c.units, c.basis) for c in explain(calls)[1].charges] == [
        ("cache_read", "hit", 1000, "reported"),
        ("cache_write_1h", "expiry_rebuild", 1500, "reported"),
        ("cache_write_5m", "expiry_rebuild", 500, "arithmetic"),
        ("cache_write_5m", "growth", 700, "arithmetic"),
        ("input", "growth", 300, "reported"),
    ]


@pytest.mark.parametrize(("lifetime", "booked"), [(None, "cache_write_5m"), ("1h", "cache_write_1h")])
def test_a_write_of_untold_lifetime_is_booked_under_the_lifetime_asked_for(lifetime: str | None, booked: str) -> None:
    tokens = Tokens(cache_write_unknown=2000, output=1)
    explained = explain([call(0, "head", tokens, lifetime=lifetime)])[0]
    assert explained.tokens == Tokens(**{booked: 2000}, output=1)
    assert explained.basis == "arithmetic"


def test_a_write_of_the_default_lifetime_may_have_only_a_general_price() -> None:
    card = replace(OPUS, usd_per_mtok={"input": Decimal(4), "cache_write_unknown": Decimal(5), "output": Decimal(20)})
    explained = explain([call(0, "head", Tokens(cache_write_unknown=2000), card=card)])[0]
    assert explained.cost_usd == Decimal("0.01")
    with pytest.raises(PriceMissing, match="cache_write_1h"):
        explain([call(0, "head", Tokens(cache_write_unknown=2000), card=card, lifetime="1h")])


def test_a_card_that_lacks_a_class_that_occurs_is_an_error() -> None:
    card = replace(OPUS, usd_per_mtok={"input": Decimal(4), "output": Decimal(20)})
    with pytest.raises(PriceMissing, match="cache_write_5m"):
        explain([call(0, "head", wrote(5000), card=card)])


def test_a_refused_call_costs_nothing_and_touches_nothing() -> None:
    refused = call(200, "head a", None, outcome="refused", first_token_s=None)
    explained = explain([call(0, "head", wrote(5000)), refused, call(400, "head a", wrote(5100))])
    assert explained[1].cost_usd == explained[1].list_usd == 0
    assert explained[1].charges == ()
    assert causes(explained[2]) == {"expiry_rebuild": 5000, "growth": 100}
    assert (explained[1].idle_s, explained[2].idle_s) == (200, 400)


def test_a_lost_call_is_a_range_from_nothing_to_the_dearest() -> None:
    known = call(0, "head:4000", wrote(2000))
    lost = call(9, "head:4000 a:4000", None, outcome="lost", first_token_s=None, max_output_tokens=500)
    explained = explain([known, lost])[1]
    assert (explained.cost_usd, explained.list_usd, explained.tokens) == (None, None, None)
    assert explained.basis == "estimated"
    assert explained.cost_low_usd == 0
    # 8000 bytes at the half token a byte that the lane's last call had, one more for rounding, all at the 1h write.
    assert explained.cost_high_usd == (4001 * Decimal(8) + 500 * Decimal(20)).scaleb(-6)
    assert [(c.token_class, c.cause, c.units, c.basis) for c in explained.charges] == [
        ("unknown", "unknown", None, "estimated"),
        ("output", "output", None, "estimated"),
    ]


def test_a_cut_call_cost_at_least_a_read_of_its_prompt() -> None:
    known = call(0, "head:4000", wrote(2000))
    cut = call(9, "head:4000 a:4000", None, outcome="cut")
    explained = explain([known, cut])[1]
    assert explained.cost_low_usd == (4000 * Decimal("0.2")).scaleb(-6)
    assert explained.cost_low_usd < explained.cost_high_usd


@pytest.mark.parametrize("outcome", ["lost", "cut", "cancelled", "complete"])
def test_the_range_of_an_unknown_call_holds_what_it_can_have_cost(outcome: Outcome) -> None:
    unknown = call(0, "head:8000", None, outcome=outcome, max_output_tokens=None)
    explained = explain([unknown])[0]
    cheapest = OPUS.cost(Tokens(cache_read=2000))
    dearest = OPUS.cost(Tokens(cache_write_1h=4000, output=MOST_OUTPUT_TOKENS))
    assert explained.cost_low_usd <= cheapest
    assert explained.cost_high_usd >= dearest
    assert explained.cost_usd is None


def test_a_cut_stream_whose_prompt_is_known_leaves_only_the_output_open() -> None:
    cut = call(0, "head", wrote(5000, output=1), outcome="cut", max_output_tokens=1000)
    explained = explain([cut, call(9, "head a", wrote(100, read=5000))])
    assert causes(explained[0]) == {"first_write": 5000}
    assert explained[0].list_usd is None
    assert explained[0].cost_low_usd == Decimal("0.02502")
    assert explained[0].cost_high_usd == Decimal("0.045")
    assert causes(explained[1]) == {"hit": 5000, "growth": 100}


def test_a_retry_after_a_lost_request_that_finds_nothing_is_a_first_write() -> None:
    lost = call(0, "head", None, outcome="lost", first_token_s=None)
    assert causes(explain([lost, call(9, "head", wrote(5000))])[1]) == {"first_write": 5000}


def test_a_call_of_unknown_usage_still_touches_the_cache() -> None:
    calls = [
        call(0, "head", wrote(5000)),
        call(200, "head a", None, outcome="cut"),
        call(450, "head a b", wrote(300, read=5100)),
        call(900, "head a c", wrote(5400), lane="other"),
    ]
    lost = replace(calls[1], outcome="lost", first_token_at=None)
    for unknown in (calls[1], lost):
        again = replace(calls[2], tokens=wrote(5400))
        assert causes(explain([calls[0], unknown, again])[2])["eviction"] >= 5000
    assert causes(explain(calls)[2]) == {"hit": 5100, "growth": 300}


def test_what_a_self_hosted_model_cost_is_known_even_where_its_usage_is_not() -> None:
    explained = explain([call(0, "head", None, outcome="lost", card=SELF_HOSTED)])[0]
    assert explained.cost_usd == explained.cost_high_usd == 0


def test_the_provider_s_own_bill_beats_the_list_and_both_are_kept() -> None:
    billed = Decimal("0.0123")
    known, unknown = explain(
        [
            call(0, "head", wrote(5000), billed_usd=billed),
            call(9, "head", None, outcome="cut", billed_usd=billed),
        ]
    )
    assert (known.cost_usd, known.billed_usd, known.list_usd) == (billed, billed, Decimal("0.027"))
    assert (unknown.cost_usd, unknown.cost_low_usd, unknown.cost_high_usd) == (billed, billed, billed)
    assert unknown.list_usd is None


def test_a_read_that_nobody_in_the_scope_can_have_written_is_told() -> None:
    calls = [
        call(0, "head", wrote(100, read=4900)),
        call(5, "head a", wrote(100, read=5000)),
        call(9, "other", wrote(100, read=2000), lane="other"),
    ]
    assert [one.unexplained_read for one in explain(calls)] == [4900, 0, 2000]
    lost = call(-9, "other", None, outcome="lost", first_token_s=None, lane="third")
    assert [one.unexplained_read for one in explain([lost, *calls])] == [0, 0, 0, 0]


def test_a_key_that_comes_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="twice"):
        explain([call(0, "head", wrote(2000), key="k"), call(1, "head", wrote(2000), key="k")])


@given(st.integers(0, 10**6), st.lists(st.integers(0, 10**6), min_size=1, max_size=20))
def test_apportioned_shares_sum_to_the_whole_and_miss_their_quota_by_less_than_one(
    total: int, weights: list[int]
) -> None:
    shares = apportion(total, weights)
    assert sum(shares) == total
    if sum(weights):
        assert all(
            abs(share * sum(weights) - total * weight) < sum(weights)
            for share, weight in zip(shares, weights, strict=True)
        )


OUTCOMES: list[Outcome] = ["complete", "complete", "complete", "cut", "lost", "refused", "cancelled"]


@st.composite
def scopes(draw: st.DrawFn) -> list[CallFact]:
    """Calls of a few lanes, with shared heads, changes, reads that may not fit, gaps and outcomes of all kinds."""
    policies = [ANTHROPIC, OPENAI, DEEPSEEK, POLICIES["none"]]
    prices = {name: Decimal(draw(st.integers(1, 10**8))).scaleb(-6) for name in CLASSES}
    card = PriceCard("m", "drawn", None, None, prices)
    words = ["head", "a", "b", "c", "d"]
    calls = []
    at = 0.0
    for number in range(draw(st.integers(1, 12))):
        at += draw(st.sampled_from([0.0, 0.5, 30.0, 299.0, 301.0, 4000.0]))
        prompt = " ".join(draw(st.lists(st.sampled_from(words), min_size=1, max_size=5)))
        counts = {name: draw(st.sampled_from([0, 1, 700, 5000])) for name in (*PROMPT_CLASSES, "output")}
        outcome = draw(st.sampled_from(OUTCOMES))
        calls.append(
            call(
                at,
                prompt,
                Tokens(**counts) if outcome == "complete" or draw(st.booleans()) else None,
                key=f"call{number:02}",
                lane=draw(st.sampled_from(["planner", "worker"])),
                policy=draw(st.sampled_from(policies)),
                card=card,
                first_token_s=draw(st.sampled_from([None, 0.2, 40.0])),
                outcome=outcome,
            )
        )
    return calls


@given(scopes())
@settings(max_examples=100)
def test_charges_have_the_margins_of_the_usage_and_sum_to_the_list_price_exactly(calls: list[CallFact]) -> None:
    by_key = {one.key: one for one in calls}
    for one in explain(calls):
        assert sum(charge.usd_low for charge in one.charges) <= one.cost_high_usd
        assert [charge.line for charge in one.charges] == list(range(len(one.charges)))
        tokens = by_key[one.key].tokens
        if tokens is None:
            continue
        assert one.tokens is not None
        by_class: Counter[str] = Counter()
        for charge in one.charges:
            assert charge.units is None or charge.units > 0
            assert (charge.excess_usd == 0) or charge.cause in REBUILDS
            by_class[charge.token_class] += charge.units or 0
        assert all(by_class[name] == one.tokens.of(name) for name in PROMPT_CLASSES)
        assert sum(causes(one).values()) == tokens.prompt
        assert causes(one).get("hit", 0) == tokens.cache_read
        if one.list_usd is not None:
            assert sum(charge.usd_low for charge in one.charges) == one.list_usd
            assert one.list_usd == by_key[one.key].card.cost(one.tokens)
            assert sum(charge.excess_usd for charge in one.charges) == one.excess_usd


@given(scopes(), st.randoms())
@settings(max_examples=50)
def test_the_order_in_which_calls_are_given_does_not_matter(calls: list[CallFact], chance: random.Random) -> None:
    shuffled = list(calls)
    chance.shuffle(shuffled)
    assert explain(shuffled) == explain(calls)


def naive_longest_shared(calls: Sequence[CallFact], one: CallFact) -> int:
    """Blocks of a prompt that some earlier call had sent, by comparing with every one of them."""
    mine = [block.hash for block in one.prompt]
    longest = 0
    for other in calls:
        if (other.requested_at, other.key) < (one.requested_at, one.key):
            theirs = [block.hash for block in other.prompt]
            while longest < min(len(mine), len(theirs)) and mine[: longest + 1] == theirs[: longest + 1]:
                longest += 1
    return longest


@given(
    st.lists(st.tuples(st.sampled_from("xy"), st.lists(st.sampled_from("abc"), min_size=1, max_size=6)), max_size=15)
)
def test_what_was_sent_before_is_the_longest_prefix_shared_with_any_earlier_call(
    drawn: list[tuple[str, list[str]]],
) -> None:
    """Every block is 100 tokens in 1000 bytes, and nothing is ever read: the eviction is what had been sent before."""
    policy = replace(DEEPSEEK, minimum_tokens=0, multiple=1)
    calls = [
        call(at, " ".join(words), Tokens(input=100 * len(words)), lane=lane, policy=policy, first_token_s=0)
        for at, (lane, words) in enumerate(drawn)
    ]
    for one, explained in zip(calls, explain(calls), strict=True):
        assert causes(explained).get("eviction", 0) == 100 * naive_longest_shared(calls, one)


class CountedHash(str):
    """A block's hash that counts how often it is looked up."""

    looked_up = 0

    def __hash__(self) -> int:
        CountedHash.looked_up += 1
        return super().__hash__()


def long_lanes(lanes: int, turns: int) -> list[CallFact]:
    """Lanes with one head in common, each turn appending two blocks, every prefix read back."""
    calls = []
    for lane in range(lanes):
        prompt = [PromptBlock(CountedHash("head"), 4000)]
        for turn in range(turns):
            prompt = [*prompt, *(PromptBlock(CountedHash(f"{lane}/{turn}/{half}"), 400) for half in "ab")]
            tokens = wrote(200, read=1000 + 200 * turn)
            one = call(turn * 10 + lane / 100, "head", tokens, key=f"{lane}/{turn:03}", lane=f"lane{lane}")
            calls.append(replace(one, prompt=prompt, prompt_bytes=4000 + 800 * turn))
    return calls


def test_a_growing_lane_is_walked_from_where_its_last_call_ended() -> None:
    calls = long_lanes(lanes=5, turns=100)
    CountedHash.looked_up = 0
    explained = explain(calls)
    assert all(set(causes(one)) <= {"hit", "growth", "first_write"} for one in explained)
    # A block is looked up and stored once, when it is new; to start each prompt at its head would take 50,000.
    assert CountedHash.looked_up <= 5 * (1 + 2 * 100) * 2
