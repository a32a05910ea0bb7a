"""Why each token of a prompt was billed as it was: one cause for each, by position."""

from dataclasses import replace
from decimal import Decimal
from typing import Any

from cost_model.policies import POLICIES
from cost_model.scope import explain
from cost_model.tokens import Tokens
from tests.cost_calls import ANTHROPIC, DEEPSEEK, OPENAI, call, causes, wrote


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


def test_the_last_step_of_the_very_same_prompt_is_computed_and_no_eviction() -> None:
    calls = [
        call(0, "head", Tokens(input=1536), policy=OPENAI),
        call(9, "head", Tokens(cache_read=1408, input=128), policy=OPENAI),
        call(18, "head", Tokens(cache_read=1280, input=256), policy=OPENAI),
    ]
    assert [causes(one) for one in explain(calls)[1:]] == [
        {"hit": 1408, "uncacheable": 128},
        {"hit": 1280, "eviction": 256},
    ]


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


GROWN = " ".join(f"turn{number}" for number in range(40))
"""Forty blocks."""


def test_what_ends_further_back_than_the_cache_looks_could_not_be_read_and_is_no_eviction() -> None:
    def missed(grown: int, *, marks_known: bool, **more: Any) -> tuple[dict[str, int], Decimal]:
        longer = " ".join(["head", *GROWN.split()[:grown]])
        calls = [
            call(0, "head", wrote(5000), marks_known=marks_known, **more),
            call(10, longer, wrote(7500), marks_known=marks_known, **more),
        ]
        second = explain(calls)[1]
        return causes(second), second.excess_usd

    evicted = ({"eviction": 5000, "growth": 2500}, Decimal("0.024"))
    assert missed(20, marks_known=False) == evicted
    assert missed(21, marks_known=False) == ({"uncacheable": 5000, "growth": 2500}, Decimal(0))
    # Who lays out the request marks within it, and a cache that states no look back has none to blame.
    assert missed(21, marks_known=True) == evicted
    assert missed(21, marks_known=False, policy=replace(ANTHROPIC, look_back_blocks=None)) == evicted


def test_a_prefix_out_of_reach_was_written_anew_and_its_clock_starts_with_that() -> None:
    rigid = replace(ANTHROPIC, sliding=False)
    prompts = [(0, "head"), (200, f"head {GROWN}"), (400, f"head {GROWN} more")]
    calls = [call(at, sent, wrote(5000 + at), policy=rigid, marks_known=False) for at, sent in prompts]
    explained = explain(calls)
    assert causes(explained[1]) == {"uncacheable": 5000, "growth": 200}
    assert causes(explained[2]) == {"eviction": 5200, "growth": 200}


def test_an_expiry_and_a_race_are_told_before_the_look_back() -> None:
    first, far = call(0, "head", wrote(5000)), call(301, f"head {GROWN}", wrote(7500), marks_known=False)
    assert causes(explain([first, far])[1]) == {"expiry_rebuild": 5000, "growth": 2500}
    slow = call(0, "head", wrote(5000), first_token_s=400)
    near = call(10, f"head {GROWN}", wrote(7500), marks_known=False)
    assert causes(explain([slow, near])[1]) == {"race": 5000, "growth": 2500}


def test_altering_a_prompt_that_was_too_short_to_be_cached_has_no_excess() -> None:
    first = call(0, "head a", Tokens(input=900))
    changed = explain([first, call(5, "other a b c", wrote(2000))])[1]
    assert causes(changed) == {"below_minimum": 900, "growth": 1100}
    assert changed.excess_usd == 0
    cached = explain([call(0, "head a", wrote(1100)), call(5, "other a b c", wrote(2000))])[1]
    assert causes(cached) == {"change_rebuild": 1100, "growth": 900}
