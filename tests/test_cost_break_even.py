"""Closed forms of waiting caches, checked against replays and against figures worked out by hand."""

from datetime import timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cost_model.break_even import (
    calls_until_truncation_pays,
    expired_handover_usd,
    longest_wait_worth,
    output_to_save,
    ping_usd,
    pings_worth,
    rates,
    rebuilt_share_for_longer,
)
from cost_model.errors import PriceMissing
from cost_model.policies import POLICIES
from cost_model.price_card import SELF_HOSTED, PriceCard, PriceTier
from cost_model.tokens import Tokens
from cost_model.what_if.change import Change, RoleChange
from cost_model.what_if.keep_alive import KeepAlive
from cost_model.what_if.replay import replay, total
from cost_model.what_if.stored_call import StoredCall
from tests.cost_calls import ANTHROPIC, DEEPSEEK, OPUS, call, wrote
from tests.cost_chain import MARKED
from tests.cost_chain import OPUS as OLD_OPUS

OLD = rates(OLD_OPUS, MARKED, None, 100_000)


def test_the_closed_forms_give_the_known_figures() -> None:
    assert [expired_handover_usd(OLD, c) for c in (50_000, 100_000)] == [Decimal("0.2875"), Decimal("0.5750")]
    assert [output_to_save(OLD, c, 10) for c in (25_000, 50_000, 100_000)] == [3966, 7932, 15_863]
    assert pings_worth(OLD, 100_000) == 11
    assert [pings_worth(rates(OPUS, ANTHROPIC, None, c), c) for c in (1, 10**6)] == [24, 24]
    hour = rates(OLD_OPUS, MARKED, "1h", 100_000)
    share = rebuilt_share_for_longer(OLD, hour)
    assert share is not None
    assert round(share, 3) == Decimal("0.395")
    assert longest_wait_worth(OLD, MARKED, 100_000) == timedelta(seconds=300 + 11 * 280)
    assert calls_until_truncation_pays(OLD, 80_000, 20_000) == (Decimal("6.25") * 20 - Decimal("0.5") * 100) / 40


def test_a_free_write_is_priced_as_input_and_a_free_model_has_no_break_even() -> None:
    flash = PriceCard(
        "f", "list", None, None, {"input": Decimal("0.14"), "cache_read": Decimal("0.0028"), "output": Decimal("0.28")}
    )
    at = rates(flash, DEEPSEEK, None, 10_000)
    assert (at.lifetime, at.write) == ("4h", Decimal("0.14"))
    own = rates(SELF_HOSTED, POLICIES["prefix-16"], None, 10_000)
    assert expired_handover_usd(own, 10_000) == 0
    assert output_to_save(own, 10_000, 5) is None
    assert pings_worth(own, 10_000) is None
    assert longest_wait_worth(own, POLICIES["prefix-16"], 10_000) is None
    assert calls_until_truncation_pays(own, 10, 10) is None
    assert rebuilt_share_for_longer(own, own) is None


def test_without_a_cache_waiting_costs_nothing_more() -> None:
    at = rates(OPUS, POLICIES["none"], None, 10_000)
    assert expired_handover_usd(at, 10_000) == 0


def test_prices_are_those_of_the_tier_that_the_context_falls_into() -> None:
    tiered = PriceCard(
        "t", "list", None, None, OPUS.usd_per_mtok, (PriceTier(200_000, {"cache_write_5m": Decimal(10)}),)
    )
    assert rates(tiered, ANTHROPIC, None, 200_000).write == 5
    assert rates(tiered, ANTHROPIC, None, 200_001).write == 10


def test_a_lifetime_without_a_price_or_a_name_is_refused() -> None:
    lacking = PriceCard("m", "list", None, None, {"input": Decimal(1), "cache_read": Decimal(1), "output": Decimal(1)})
    with pytest.raises(PriceMissing, match="cache_write_1h"):
        rates(lacking, ANTHROPIC, "1h", 1000)
    with pytest.raises(KeyError):
        rates(OPUS, ANTHROPIC, "2h", 1000)


def waiting(context: int, seconds: float) -> list[StoredCall]:
    """A lane of `context` tokens that comes back after so many seconds, as a 5-minute cache bills it."""
    back = wrote(context + 100) if seconds > 300 else wrote(100, read=context)
    return [StoredCall(one, "planner") for one in (call(0, "head", wrote(context)), call(seconds, "head a", back))]


@given(st.integers(2000, 900_000), st.floats(301, 12_000))
def test_pings_beat_the_rebuild_exactly_up_to_the_longest_wait(context: int, seconds: float) -> None:
    at = rates(OPUS, ANTHROPIC, None, context)
    calls = waiting(context, seconds)
    pinged = replay(calls, Change({"planner": RoleChange(keep_alive=KeepAlive(timedelta(seconds=280)))}))
    worth = longest_wait_worth(at, ANTHROPIC, context)
    assert worth is not None
    spent = total(pinged.predicted).low - total(pinged.measured).low
    pings = sum(one.call.ping for one in pinged.predicted)
    assert spent == pings * ping_usd(at, context) - expired_handover_usd(at, context)
    # The last ping reaches a whole lifetime far, all others an interval.
    if timedelta(seconds=seconds) < worth - timedelta(seconds=20):
        assert spent <= 0
    if timedelta(seconds=seconds) > worth:
        assert spent > 0


@given(st.integers(2000, 500_000), st.lists(st.booleans(), min_size=1, max_size=12))
def test_an_hour_beats_five_minutes_exactly_above_the_rebuilt_share(context: int, late: list[bool]) -> None:
    at, grown, calls, rebuilt = 0.0, context, [call(0, "head", wrote(context))], 0
    for number, expired in enumerate(late):
        at += 400 if expired else 100
        rebuilt += grown if expired else 0
        tokens = wrote(grown + 1000) if expired else wrote(1000, read=grown)
        grown += 1000
        calls.append(call(at, "head" + " a" * (number + 1), tokens))
    replayed = replay([StoredCall(one, "planner") for one in calls], Change({"planner": RoleChange(lifetime="1h")}))
    written = sum((one.call.fact.tokens or Tokens()).cache_write_5m for one in replayed.measured)
    share = rebuilt_share_for_longer(rates(OPUS, ANTHROPIC, "5m", context), rates(OPUS, ANTHROPIC, "1h", context))
    assert share is not None
    saves = total(replayed.predicted).low < total(replayed.measured).low
    assert saves == (Decimal(rebuilt) > share * written)
