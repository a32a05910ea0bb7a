"""Known timelines to the last digit: with the blocks that were sent, and from counts and times alone."""

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cost_model.call_fact import CallFact
from cost_model.calls import Outcome
from cost_model.policies import POLICIES
from cost_model.price_card import PriceCard
from cost_model.scope import explain
from cost_model.tokens import CLASSES, Tokens
from tests.cost_calls import ANTHROPIC, DEEPSEEK, OPENAI, call, causes, wrote

TIMELINES: list[dict[str, Any]] = json.loads(
    (Path(__file__).parent / "cost_timelines" / "timelines.json").read_text(encoding="utf-8")
)
CLASS_OF = {"write_5m": "cache_write_5m", "write_1h": "cache_write_1h"}


def card_of(timeline: dict[str, Any]) -> PriceCard:
    prices = {CLASS_OF.get(name, name): Decimal(usd) for name, usd in timeline["prices_usd_per_mtok"].items()}
    del prices["search_per_1k"]
    return PriceCard(timeline["model"], "list", None, None, prices)


def calls_of(timeline: dict[str, Any]) -> list[CallFact]:
    """Its events as calls of one lane that only appends; a keep-alive sends the last prompt again."""
    card, prompt, calls = card_of(timeline), "head", []
    for number, event in enumerate(timeline["events"]):
        if number and event["kind"] != "keepalive":
            prompt += f" turn{number}"
        tokens = Tokens(**{CLASS_OF.get(name, name): count for name, count in event["tokens"].items()})
        lifetime = "1h" if tokens.cache_write_1h else None
        calls.append(call(event["t"], prompt, tokens, card=card, lifetime=lifetime, lane=event["role"]))
    return calls


def without_blocks(calls: Sequence[CallFact]) -> list[CallFact]:
    """As an imported log has them. A write whose lifetime the usage tells was asked for as nobody knows."""
    return [replace(one, prompt=(), prompt_bytes=0, lifetime=None, max_output_tokens=None) for one in calls]


@pytest.mark.parametrize("imported", [False, True], ids=["with-blocks", "counts-alone"])
@pytest.mark.parametrize("timeline", TIMELINES, ids=lambda timeline: timeline["id"])
def test_a_known_timeline_comes_out_to_the_last_digit_with_its_causes(timeline: dict[str, Any], imported: bool) -> None:
    calls = calls_of(timeline)
    explained = explain(without_blocks(calls) if imported else calls)
    assert sum(one.list_usd or 0 for one in explained) == Decimal(timeline["expected_total_usd"])
    before = 0
    for event, one in zip(timeline["events"], explained, strict=True):
        assert one.cost_usd == Decimal(event["cost_usd"])
        assert one.tokens is not None
        new = one.tokens.prompt - before
        expected = {
            "write": {"first_write": new},
            "rebuild_expired": {"expiry_rebuild": before, "growth": new},
            "keepalive": {"hit": before},
            "hit": {"hit": before, "growth": new},
        }
        assert causes(one) == expected[event["kind"]]
        before = one.tokens.prompt
    if "excess_vs_warm_usd" in timeline:
        assert sum(one.excess_usd for one in explained) == Decimal(timeline["excess_vs_warm_usd"])


def imported(*calls: CallFact) -> list[dict[str, int]]:
    return [causes(one) for one in explain(without_blocks(calls))]


def test_what_was_written_for_an_hour_outlives_what_was_written_behind_it_for_five_minutes() -> None:
    mixed = Tokens(cache_write_1h=50_000, cache_write_5m=10_000)
    late = call(720, "", Tokens(cache_read=50_000, cache_write_5m=10_400))
    assert imported(call(0, "", mixed), late)[1] == {"hit": 50_000, "expiry_rebuild": 10_000, "growth": 400}
    later = call(4000, "", Tokens(cache_write_1h=50_000, cache_write_5m=10_400))
    assert imported(call(0, "", mixed), later)[1] == {"expiry_rebuild": 60_000, "growth": 400}


def test_what_lay_behind_the_last_breakpoint_was_never_stored_and_so_cannot_expire() -> None:
    marked = Tokens(cache_write_5m=5000, input=300)
    assert imported(call(0, "", marked), call(720, "", wrote(5600)))[1] == {
        "expiry_rebuild": 5000,
        "uncacheable": 300,
        "growth": 300,
    }
    unmarked = [call(at, "", Tokens(input=5000 + at)) for at in (0, 60)]
    assert imported(*unmarked)[1] == {"uncacheable": 5000, "growth": 60}


def test_a_miss_in_time_is_an_eviction_where_nothing_was_read_and_a_change_where_some_was() -> None:
    first = call(0, "", wrote(50_000))
    assert imported(first, call(60, "", wrote(50_200)))[1] == {"eviction": 50_000, "growth": 200}
    assert imported(first, call(60, "", wrote(40_200, read=10_000)))[1] == {
        "hit": 10_000,
        "change_rebuild": 40_000,
        "growth": 200,
    }


def test_a_prompt_that_became_shorter_was_altered() -> None:
    compacted = call(400, "", wrote(5000, read=15_000))
    assert imported(call(0, "", wrote(150_000)), compacted)[1] == {"hit": 15_000, "change_rebuild": 5000}


def test_a_shorter_prompt_lost_no_more_than_was_stored() -> None:
    unmarked = explain(without_blocks([call(0, "", Tokens(input=150_000)), call(9, "", Tokens(input=20_000))]))[1]
    assert causes(unmarked) == {"uncacheable": 20_000}
    assert unmarked.excess_usd == 0
    partly = call(0, "", Tokens(input=100_000, cache_write_5m=8000))
    assert imported(partly, call(9, "", wrote(15_000, read=5000)))[1] == {
        "hit": 5000,
        "change_rebuild": 3000,
        "uncacheable": 12_000,
    }


def test_a_call_that_overtook_the_answer_to_the_one_that_wrote_lost_a_race() -> None:
    slow = call(0, "", wrote(5000), first_token_s=9)
    assert imported(slow, call(2, "", wrote(5200)))[1] == {"race": 5000, "growth": 200}
    unrecorded = replace(slow, first_token_at=None)
    assert imported(unrecorded, call(2, "", wrote(5200)))[1] == {"eviction": 5000, "growth": 200}


def test_minimum_and_steps_of_a_cache_are_honoured_without_blocks() -> None:
    assert imported(call(0, "", Tokens(input=1000)), call(5, "", wrote(1200)))[1] == {
        "below_minimum": 1000,
        "growth": 200,
    }
    assert imported(call(0, "", Tokens(input=900), policy=OPENAI), call(5, "", Tokens(input=1500), policy=OPENAI)) == [
        {"below_minimum": 900},
        {"below_minimum": 900, "growth": 600},
    ]
    stepped = [
        call(at, "", Tokens(cache_read=read, input=1500 - read + at), policy=OPENAI) for at, read in ((0, 0), (9, 1408))
    ]
    assert imported(*stepped)[1] == {"hit": 1408, "uncacheable": 92, "growth": 9}


def test_what_was_too_short_to_be_stored_cannot_have_expired() -> None:
    calls = [call(at, "", Tokens(input=900 + at), policy=OPENAI) for at in (0, 601)]
    late = explain(without_blocks(calls))[1]
    assert causes(late) == {"below_minimum": 900, "growth": 601}
    assert late.excess_usd == 0


def test_a_call_without_usage_keeps_the_clock_running_and_hides_no_length() -> None:
    lost = call(200, "", None, outcome="lost", first_token_s=None)
    first, in_time, late = (
        call(0, "", wrote(5000)),
        call(450, "", wrote(200, read=5000)),
        call(501, "", wrote(5200)),
    )
    assert causes(explain(without_blocks([first, lost, in_time]))[2]) == {"hit": 5000, "growth": 200}
    assert causes(explain(without_blocks([first, lost, late]))[2]) == {"expiry_rebuild": 5000, "growth": 200}


def test_a_first_read_is_told_as_one_that_nobody_in_the_log_explains() -> None:
    explained = explain(without_blocks([call(0, "", wrote(10, read=9000)), call(5, "", wrote(10, read=9010))]))
    assert [one.unexplained_read for one in explained] == [9000, 0]
    assert causes(explained[0]) == {"hit": 9000, "first_write": 10}


@st.composite
def appending_lanes(draw: st.DrawFn) -> list[CallFact]:
    """Lanes that append only and share nothing; each call reads all that its lane had, or nothing of it."""
    policy = draw(st.sampled_from([ANTHROPIC, POLICIES["kimi"], DEEPSEEK, replace(OPENAI, multiple=1)]))
    calls, prompts, totals, at = [], {"p": "", "w": ""}, {"p": 0, "w": 0}, 0.0
    for number in range(draw(st.integers(1, 15))):
        at += draw(st.sampled_from([1.5, 30.0, 299.0, 301.0, 700.0, 4000.0, 20_000.0]))
        lane = draw(st.sampled_from(["p", "w"]))
        new = draw(st.integers(0, 3000)) + (0 if totals[lane] else 5000)
        read = draw(st.sampled_from([0, totals[lane]])) if new else 0
        prompts[lane] += f" {lane}{number}:{new + 1}"
        totals[lane] += new
        rest = {"cache_write_5m" if policy.write_class else "input": totals[lane] - read}
        calls.append(call(at, prompts[lane], Tokens(cache_read=read, **rest), lane=lane, policy=policy))
    return calls


@given(appending_lanes())
@settings(max_examples=150)
def test_counts_and_times_alone_find_the_causes_that_the_blocks_show(calls: list[CallFact]) -> None:
    with_blocks, counts_alone = explain(calls), explain(without_blocks(calls))
    assert [causes(one) for one in counts_alone] == [causes(one) for one in with_blocks]
    assert [one.excess_usd for one in counts_alone] == [one.excess_usd for one in with_blocks]
    assert [one.idle_s for one in counts_alone] == [one.idle_s for one in with_blocks]


def any_counts(chance: random.Random) -> list[CallFact]:
    """Calls of every kind, with and without blocks, whose counts need not fit together."""
    policies = [ANTHROPIC, OPENAI, DEEPSEEK, POLICIES["kimi"], POLICIES["glm"], POLICIES["none"]]
    calls, at = [], 0.0
    for number in range(chance.randint(1, 12)):
        at += chance.choice([0.0, 0.5, 299.0, 301.0, 4000.0])
        counts = {name: chance.choice([0, 0, 1, 700, 5000]) for name in CLASSES}
        known = chance.random() > 0.1
        outcomes: list[Outcome] = ["complete"] if known else ["cut", "lost", "refused"]
        calls.append(
            call(
                at,
                chance.choice(["", "", "head a"]),
                Tokens(**counts) if known else None,
                key=f"{number:02}",
                lane=chance.choice("pw"),
                policy=chance.choice(policies),
                outcome=chance.choice(outcomes),
                first_token_s=chance.choice([None, 0.2, 400.0]),
                card=PriceCard("m", "drawn", None, None, dict.fromkeys(CLASSES, Decimal(3))),
            )
        )
    return calls


@given(st.integers(0, 2**63))
@settings(max_examples=2000, deadline=None)
def test_whatever_the_counts_the_causes_sum_to_the_prompt_and_the_charges_to_the_price(seed: int) -> None:
    calls = any_counts(random.Random(seed))  # noqa: S311
    by_key = {one.key: one for one in calls}
    for one in explain(calls):
        tokens = by_key[one.key].tokens
        if tokens is not None:
            assert sum(causes(one).values()) == tokens.prompt
            assert causes(one).get("hit", 0) == tokens.cache_read
            assert one.tokens is not None
            if one.list_usd is not None:
                assert (
                    sum(charge.usd_low for charge in one.charges)
                    == one.list_usd
                    == by_key[one.key].card.cost(one.tokens)
                )
