"""Replays of stored calls: exact where nothing changes, and right about what does."""

import random
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cost_model.call_fact import CallFact
from cost_model.calls import Outcome
from cost_model.errors import ChangeImpossible, PriceMissing
from cost_model.policies import POLICIES
from cost_model.price_card import PriceCard
from cost_model.tokens import CLASSES, Tokens
from cost_model.what_if.change import Change, OtherModel, RoleChange
from cost_model.what_if.keep_alive import KeepAlive
from cost_model.what_if.replay import Replay, by_role_and_class, measure, replay, replay_measured, total
from cost_model.what_if.rounds import with_rounds
from cost_model.what_if.search import best
from cost_model.what_if.stored_call import StoredCall
from cost_model.what_if.truncation import Truncation
from tests.cost_calls import ANTHROPIC, DEEPSEEK, OPENAI, OPUS, call, causes, wrote


def stored(*calls: CallFact, seconds: float = 10) -> list[StoredCall]:
    """Calls of roles named like their lanes, each ending so many seconds after its request."""
    return with_rounds([StoredCall(one, one.lane, one.requested_at + timedelta(seconds=seconds)) for one in calls])


def planner(**change: Any) -> Change:
    return Change({"planner": RoleChange(**change)})


EXPIRED = stored(call(0, "head", wrote(100_000, output=500)), call(720, "head turn", wrote(100_500, output=500)))
"""A planner that waited for 12 minutes; its chain costs $1.0225."""


def usd(replayed: Replay) -> Decimal:
    low, high = total(replayed.predicted)
    assert low == high
    return low


def test_a_lifetime_of_an_hour_turns_the_expiry_into_a_hit_at_the_price_of_dearer_writes() -> None:
    replayed = replay(EXPIRED, planner(lifetime="1h"))
    assert total(replayed.measured) == (Decimal("1.0225"), Decimal("1.0225"))
    assert usd(replayed) == Decimal("0.844")
    assert causes(replayed.predicted[1].explained) == {"hit": 100_000, "growth": 500}
    assert by_role_and_class(replayed.predicted)["planner", "cache_write_1h"].low == Decimal("0.804")


def test_pings_keep_the_entry_alive_and_are_booked() -> None:
    replayed = replay(EXPIRED, planner(keep_alive=KeepAlive(timedelta(seconds=240))))
    assert [one.call.ping for one in replayed.predicted] == [False, True, True, False]
    assert usd(replayed) == Decimal("0.5825")
    answering = replay(EXPIRED, planner(keep_alive=KeepAlive(timedelta(seconds=240), output_tokens=1)))
    assert usd(answering) - usd(replayed) == 2 * OPUS.usd("output", 1, 100_000)


def test_pings_that_end_too_early_are_paid_for_nothing() -> None:
    replayed = replay(EXPIRED, planner(keep_alive=KeepAlive(timedelta(seconds=240), most=1)))
    assert usd(replayed) == Decimal("1.0225") + Decimal("0.02")
    assert causes(replayed.predicted[-1].explained) == {"expiry_rebuild": 100_000, "growth": 500}


def test_without_a_cache_every_token_is_input() -> None:
    replayed = replay(EXPIRED, planner(lifetime="none"))
    assert usd(replayed) == (Decimal(200_500) * 4 + 1000 * 20).scaleb(-6)
    assert causes(replayed.predicted[1].explained) == {"uncacheable": 100_500}


def test_a_shorter_lifetime_makes_a_hit_an_expiry() -> None:
    kept = stored(
        call(0, "head", Tokens(cache_write_1h=100_000), lifetime="1h"),
        call(720, "head turn", Tokens(cache_read=100_000, cache_write_1h=500), lifetime="1h"),
    )
    assert usd(replay(kept, planner(lifetime="5m"))) == (Decimal(200_500) * 5).scaleb(-6)


def test_an_imported_lane_that_was_written_for_an_hour_expires_when_five_minutes_are_asked_for() -> None:
    imported = stored(
        *(
            replace(call(at, "", tokens), prompt=(), prompt_bytes=0)
            for at, tokens in (
                (0, Tokens(cache_write_1h=100_000)),
                (720, Tokens(cache_read=100_000, cache_write_1h=500)),
            )
        )
    )
    replayed = replay(imported, planner(lifetime="5m"))
    assert usd(replayed) == (Decimal(200_500) * 5).scaleb(-6)
    assert causes(replayed.predicted[1].explained) == {"expiry_rebuild": 100_000, "growth": 500}
    assert usd(replay(imported, planner(lifetime="1h"))) == total(replayed.measured).low


WAITING = stored(
    call(0, "p", wrote(50_000)),
    *(call(10 + 40 * n, "w" + " w" * n, Tokens(input=100, output=9), lane="worker", policy=DEEPSEEK) for n in range(9)),
    call(370, "p q", wrote(50_500)),
    *(call(380 + 40 * n, "w v" + " w" * n, Tokens(input=50), lane="worker", policy=DEEPSEEK) for n in range(9)),
    call(740, "p q r", wrote(51_000)),
)


def test_a_faster_worker_lets_the_planner_return_in_time() -> None:
    replayed = replay(WAITING, Change({"worker": RoleChange(times_faster=Fraction(2))}))
    waits = [one.explained.idle_s for one in replayed.predicted if one.call.role == "planner"]
    assert waits == [None, 190, 190]
    assert causes(replayed.predicted[10].explained) == {"hit": 50_000, "growth": 500}
    slower = replay(WAITING, Change({"worker": RoleChange(times_faster=Fraction(1, 2))}))
    assert [one.explained.idle_s for one in slower.predicted if one.call.role == "planner"] == [None, 730, 730]
    assert total(slower.predicted) == total(slower.measured)


def test_one_hand_over_fewer_ends_the_chain_where_it_delegated_last() -> None:
    assert [one.round for one in WAITING] == [0] + [1] * 10 + [2] * 10
    replayed = replay(WAITING, Change(fewer_rounds=1))
    assert [one.call.fact.key for one in replayed.predicted] == [one.fact.key for one in WAITING[:11]]
    assert total(replayed.predicted).low == total(replayed.measured[:11]).low
    assert len(replay(WAITING, Change(fewer_rounds=9)).predicted) == 11


def test_other_prices_reprice_every_token_and_move_nothing() -> None:
    half = OPUS.times(Decimal("0.5"), "half")
    replayed = replay(EXPIRED, Change(card=lambda _: half))
    assert usd(replayed) == Decimal("1.0225") / 2
    assert [one.explained.tokens for one in replayed.predicted] == [one.explained.tokens for one in replayed.measured]


def test_another_model_brings_its_cache_with_its_prices() -> None:
    flash = PriceCard(
        "flash", "list", None, None, {"input": Decimal(1), "cache_read": Decimal("0.1"), "output": Decimal(2)}
    )
    replayed = replay(EXPIRED, planner(model=OtherModel("flash", DEEPSEEK, lambda _: flash)))
    read = 100_000 - 100_000 % 64
    assert usd(replayed) == (Decimal(200_500 - read) + read * Decimal("0.1") + 1000 * 2).scaleb(-6)


def test_a_truncated_lane_pays_its_tail_again_and_then_less_every_call() -> None:
    grown = stored(
        *(call(60 * n, "h" + " t" * n, wrote(10_000, read=10_000 * n), lifetime=None) for n in range(8)), seconds=5
    )
    plan = Truncation(above=50_000, keep=30_000, head=8000)
    replayed = replay(grown, planner(truncation=plan))
    prompts = [one.call.fact.tokens for one in replayed.predicted]
    assert [one.prompt for one in prompts if one] == [10_000, 20_000, 30_000, 40_000, 50_000, 30_000, 40_000, 50_000]
    assert [one.cache_read for one in prompts if one] == [0, 10_000, 20_000, 30_000, 40_000, 8000, 30_000, 40_000]
    assert causes(replayed.predicted[5].explained) == {"hit": 8000, "change_rebuild": 22_000}
    longer = replay(grown, planner(truncation=replace(plan, above=10**6)))
    assert [one.explained.cost_usd for one in longer.predicted] == [one.explained.cost_usd for one in longer.measured]


def test_evictions_and_races_stay_whatever_the_lifetime() -> None:
    evicted = stored(call(0, "head", wrote(50_000)), call(60, "head a", wrote(50_200)))
    assert causes(replay(evicted, planner(lifetime="1h")).predicted[1].explained) == {"eviction": 50_000, "growth": 200}
    raced = stored(call(0, "head", wrote(50_000), first_token_s=9), call(2, "head a", wrote(50_200)))
    assert causes(replay(raced, planner(lifetime="1h")).predicted[1].explained) == {"race": 50_000, "growth": 200}


def test_a_bill_follows_the_list_price() -> None:
    billed = stored(*(replace(one.fact, billed_usd=Decimal("0.3")) for one in EXPIRED))
    replayed = replay(billed, planner(lifetime="1h"))
    assert usd(replayed) == round(Decimal("0.3") * Decimal("0.81") / Decimal("0.51"), 12) + round(
        Decimal("0.3") * Decimal("0.034") / Decimal("0.5125"), 12
    )
    assert usd(replay(billed, Change())) == Decimal("0.6")


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (Change({"worker": RoleChange(lifetime="none")}), "worker: .* costs nothing to write"),
        (planner(lifetime="2h"), "planner: .* knows no lifetime '2h'; it knows 5m, 1h, none"),
        (planner(keep_alive=KeepAlive(timedelta(seconds=301))), "planner: pings every 301 s come too late"),
        (planner(times_faster=Fraction(0)), "infinitely slow"),
        (Change(fewer_rounds=-1), "cannot become more"),
    ],
)
def test_what_cannot_be_replayed_is_said(change: Change, complaint: str) -> None:
    with pytest.raises(ChangeImpossible, match=complaint):
        replay(WAITING, change)


def test_a_class_of_writes_that_only_occurs_now_needs_a_price() -> None:
    lacking = PriceCard("m", "list", None, None, {k: v for k, v in OPUS.usd_per_mtok.items() if k != "cache_write_1h"})
    calls = stored(*(replace(one.fact, card=lacking) for one in EXPIRED))
    with pytest.raises(PriceMissing, match="cache_write_1h"):
        replay(calls, planner(lifetime="1h"))


def test_the_search_names_the_cheapest_cache_of_each_role_and_all_of_them_together() -> None:
    found = best([WAITING, WAITING])
    assert list(found.options) == ["planner", "worker"]
    cheapest, *others = found.options["planner"]
    assert cheapest.change == RoleChange(lifetime="5m", keep_alive=KeepAlive(timedelta(seconds=280), most=1))
    assert all(other.usd is not None and other.usd >= (cheapest.usd or 0) for other in others)
    assert {other.change.lifetime for other in others} == {None, "5m", "1h", "none"}
    assert [option.change for option in found.options["worker"]] == [RoleChange()]
    together = 2 * usd(replay(WAITING, found.together))
    assert together == cheapest.usd
    assert found.measured == 2 * total(replay(WAITING, Change()).measured).low
    with pytest.raises(ValueError, match="no calls"):
        best([])


def test_an_option_whose_writes_have_no_price_is_listed_without_one() -> None:
    lacking = PriceCard("m", "list", None, None, {k: v for k, v in OPUS.usd_per_mtok.items() if k != "cache_write_1h"})
    found = best([stored(*(replace(one.fact, card=lacking) for one in EXPIRED))])
    assert {one.change.lifetime for one in found.options["planner"] if one.usd is None} == {"1h"}


def any_scope(chance: random.Random) -> list[StoredCall]:
    """Calls of every kind: shared heads, changes, reads that may not fit, gaps, outcomes, bills; blocks or none."""
    policies = [ANTHROPIC, ANTHROPIC, OPENAI, DEEPSEEK, POLICIES["kimi"], POLICIES["glm"], POLICIES["none"]]
    cards = [
        PriceCard("m", "drawn", None, None, {name: Decimal(chance.randint(0, 10**8)).scaleb(-6) for name in CLASSES})
        for _ in range(2)
    ]
    blocks, calls, at = chance.random() < 0.6, [], 0.0
    prompts: dict[str, str] = {}
    for number in range(chance.randint(1, 14)):
        at += chance.choice([0.0, 0.5, 30.0, 299.0, 301.0, 4000.0])
        lane = chance.choice("pwx")
        grown = prompts.get(lane, "head") + chance.choice(["", " a", " b c"])
        prompts[lane] = grown if chance.random() < 0.8 else "head " + chance.choice("ab")
        counts = {name: chance.choice([0, 0, 1, 700, 5000]) for name in CLASSES}
        outcomes: list[Outcome] = ["complete", "complete", "complete", "cut", "lost", "refused", "cancelled"]
        outcome = chance.choice(outcomes)
        fact = call(
            at,
            prompts[lane] if blocks else "",
            Tokens(**counts) if outcome == "complete" or chance.random() < 0.5 else None,
            key=f"{number:02}",
            lane=lane,
            model=chance.choice(["opus", "opus", "flash"]),
            policy=chance.choice(policies) if chance.random() < 0.3 else ANTHROPIC,
            card=chance.choice(cards),
            first_token_s=chance.choice([None, 0.2, 40.0]),
            outcome=outcome,
            billed_usd=chance.choice([None, None, Decimal("0.123456789")]),
        )
        ended = None if chance.random() < 0.2 else fact.requested_at + timedelta(seconds=chance.choice([0.3, 50.0]))
        calls.append(StoredCall(fact, chance.choice(["planner", "worker"]), ended))
    return with_rounds(calls)


@given(st.integers(0, 2**63))
@settings(max_examples=600, deadline=None)
def test_a_replay_that_changes_nothing_gives_the_measured_calls_exactly(seed: int) -> None:
    calls = any_scope(random.Random(seed))  # noqa: S311
    measured = measure(calls)
    nothing = [Change(), Change({"planner": RoleChange(), "worker": RoleChange(times_faster=Fraction(1))})]
    same_cards = Change(card=lambda fact: fact.card)
    for change in (*nothing, same_cards):
        replayed = replay_measured(measured, change)
        assert replayed.measured == replayed.predicted == measured.told


@given(st.integers(0, 2**63), st.sampled_from(["5m", "1h", "none", "pings", "faster", "slower", "fewer", "truncated"]))
@settings(max_examples=250, deadline=None)
def test_whatever_changes_every_call_keeps_its_prompt_and_output_and_its_charges_sum_up(seed: int, kind: str) -> None:
    calls = [
        replace(one, fact=replace(one.fact, policy=ANTHROPIC))
        for one in any_scope(random.Random(seed))  # noqa: S311
    ]
    changes: dict[str, RoleChange] = {
        "pings": RoleChange(keep_alive=KeepAlive(timedelta(seconds=250), most=4)),
        "faster": RoleChange(times_faster=Fraction(3)),
        "slower": RoleChange(times_faster=Fraction(2, 7)),
        "truncated": RoleChange(truncation=Truncation(6000, 3000, 1000)),
        "fewer": RoleChange(),
    }
    change = Change({"planner": changes.get(kind, RoleChange(lifetime=kind))}, fewer_rounds=int(kind == "fewer"))
    replayed = replay(calls, change)
    before = {one.call.fact.key: one for one in replayed.measured}
    for told in replayed.predicted:
        now, explained = told.call.fact.tokens, told.explained
        if now is None:
            continue
        assert explained.tokens is not None
        assert sum(causes(explained).values()) == explained.tokens.prompt == now.prompt
        if told.call.ping:
            assert kind == "pings"
            continue
        then = before[told.call.fact.key].call.fact.tokens
        assert then is not None
        assert now.output == then.output
        assert now.prompt == then.prompt or (kind == "truncated" and now.prompt < then.prompt)
    assert [one for one in replayed.predicted if not one.call.ping and one.call.fact.key not in before] == []


def pinged(read: int, uncached: int) -> list[StoredCall]:
    """A prompt that is written, pinged after 280 s and read again after 20 more."""
    first, ping, again = stored(
        call(0, "ab", wrote(9000), key="1"),
        call(280, "ab", Tokens(cache_read=read, cache_write_5m=uncached), key="k1"),
        call(300, "ab", Tokens(cache_read=9000, output=10), key="2"),
    )
    return [first, replace(ping, pinged=True), again]


def test_pings_that_were_sent_are_replaced_or_left_away_and_the_cheapest_is_found() -> None:
    calls = pinged(9000, 0)
    assert total(replay(calls, Change()).predicted) == total(replay(calls, Change()).measured)
    without = Change({calls[0].role: RoleChange(keep_alive=KeepAlive(timedelta(seconds=280), most=0))})
    kept = [one.call.fact.key for one in replay(calls, without).predicted]
    assert kept == ["1", "2"]
    found = best([calls])
    (options,) = found.options.values()
    # The next request comes in time anyway: the ping was for nothing.
    cheapest = options[0].change.keep_alive
    assert cheapest is not None
    assert cheapest.most == 0
    assert options[0].usd == found.measured - OPUS.cost(Tokens(cache_read=9000))
    assert found.untold == {}


def test_what_other_pings_would_have_met_where_one_missed_is_not_told() -> None:
    calls = pinged(0, 9000)
    role = calls[0].role
    for plan in (KeepAlive(timedelta(seconds=280)), KeepAlive(timedelta(seconds=280), most=0)):
        with pytest.raises(ChangeImpossible, match=f"{role}: 1 of the pings that were sent missed"):
            replay(calls, Change({role: RoleChange(keep_alive=plan)}))
    found = best([calls])
    assert found.options[role][0].change == RoleChange()
    assert "1 of the pings that were sent missed" in found.untold[role]
