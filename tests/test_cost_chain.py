"""A chain whose figures are known: its configurations, and what each lever would have done to it."""

from collections import Counter
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction

import pytest

from cost_model.scope import explain
from cost_model.what_if.change import Change, RoleChange
from cost_model.what_if.keep_alive import KeepAlive
from cost_model.what_if.replay import by_role_and_class, replay, total
from cost_model.what_if.stored_call import StoredCall
from tests import cost_chain
from tests.cost_chain import ALT, AWARE, DUO, FLASH_LATER, FLASH_SOLO, LASTING, SOL_SOLO, SOLO, TERRA_SOLO, Chain
from tests.cost_chain import chain_calls as calls_of

ONE_PERCENT = 0.01


def cost(calls: list[StoredCall], change: Change | None = None) -> float:
    low, high = total(replay(calls, change or Change()).predicted)
    assert low == high
    return float(low)


def expiries(calls: list[StoredCall]) -> int:
    causes = [{charge.cause for charge in one.charges} for one in explain([call.fact for call in calls])]
    return sum("expiry_rebuild" in found for found in causes)


@pytest.mark.parametrize(
    ("chain", "usd", "missed"),
    [
        (SOLO, 1.200, 0),
        (DUO, 1.291, 3),
        (AWARE, 0.711, 0),
        (TERRA_SOLO, 0.170, 0),
        (SOL_SOLO, 0.170, 0),
        (FLASH_SOLO, 0.017, 0),
        (ALT, 1.293, 0),
    ],
    ids=["solo", "duo", "aware", "terra", "sol", "flash", "alt"],
)
def test_a_configuration_costs_what_its_token_counts_say(chain: Chain, usd: float, missed: int) -> None:
    calls = calls_of(chain)
    assert cost(calls) == pytest.approx(usd, rel=ONE_PERCENT, abs=0.0005)
    assert expiries(calls) == missed


def test_the_ledger_tells_two_chains_apart_that_cost_the_same() -> None:
    spent = {}
    for name, chain in (("duo", DUO), ("alt", ALT)):
        by_cause: Counter[str] = Counter()
        for one in explain([call.fact for call in calls_of(chain)]):
            for charge in one.charges:
                by_cause[charge.cause] += charge.usd_low  # type: ignore[assignment]  # dollars are no ints
        spent[name] = by_cause
    assert float(sum(spent["duo"].values())) == pytest.approx(float(sum(spent["alt"].values())), rel=ONE_PERCENT)
    assert float(spent["duo"]["expiry_rebuild"]) == pytest.approx(0.558, rel=ONE_PERCENT)
    assert spent["alt"]["expiry_rebuild"] == 0
    assert spent["alt"]["hit"] > 2 * spent["duo"]["hit"]


def test_the_excess_of_the_expired_hand_overs_is_what_a_longer_life_would_have_saved() -> None:
    excess = sum(one.excess_usd for one in explain([call.fact for call in calls_of(DUO)]))
    assert float(excess) == pytest.approx(0.513, rel=ONE_PERCENT)
    assert Decimal(str(cost(calls_of(DUO)))) - excess == Decimal(str(cost(calls_of(replace(DUO, policy=LASTING)))))


PINGS = KeepAlive(timedelta(seconds=280), output_tokens=1)


@pytest.mark.parametrize(
    ("change", "usd"),
    [
        (Change({"lead": RoleChange(lifetime="1h")}), 0.925),
        (Change({"lead": RoleChange(keep_alive=PINGS)}), 0.822),
        (Change({"worker": RoleChange(times_faster=Fraction(2))}), 0.778),
        (Change(card=lambda call: call.card.times(Decimal(0), "free") if call.lane == "worker" else call.card), 1.253),
        (Change(card=lambda call: FLASH_LATER if call.lane == "worker" else call.card), 1.332),
        (Change(fewer_rounds=1), 0.918),
        (Change(fewer_rounds=2), 0.591),
    ],
    ids=["1h", "pings", "worker 2x faster", "worker free", "worker later", "one hand-over fewer", "two fewer"],
)
def test_a_lever_would_have_made_the_chain_cost_what_the_rerun_with_it_costs(change: Change, usd: float) -> None:
    assert cost(calls_of(DUO), change) == pytest.approx(usd, rel=ONE_PERCENT)


def test_predictions_are_the_reruns_to_the_last_digit() -> None:
    assert cost(calls_of(DUO), Change({"worker": RoleChange(times_faster=Fraction(2))})) == cost(
        calls_of(replace(DUO, worker_seconds=7))
    )
    assert cost(calls_of(DUO), Change(fewer_rounds=1)) == cost(calls_of(replace(DUO, rounds=2)))
    assert cost(calls_of(DUO), Change(card=lambda call: FLASH_LATER if call.lane == "worker" else call.card)) == cost(
        calls_of(DUO, FLASH_LATER)
    )
    slower = Change({"worker": RoleChange(times_faster=Fraction(1, 2))})
    assert cost(calls_of(AWARE), slower) == cost(calls_of(replace(AWARE, worker_seconds=28)))


@pytest.mark.parametrize(
    ("chain", "usd"),
    [
        (replace(DUO, policy=LASTING), 0.778),
        (replace(DUO, rounds=4), 1.708),
        (replace(DUO, rounds=5), 2.170),
        (replace(DUO, plan=(8, 560, 675)), 1.125),
        (replace(DUO, plan=(8, 560, 2025)), 1.457),
        (replace(DUO, plan=(8, 560, 2700)), 1.623),
    ],
)
def test_a_chain_built_otherwise_costs_what_its_counts_say(chain: Chain, usd: float) -> None:
    assert cost(calls_of(chain)) == pytest.approx(usd, rel=ONE_PERCENT)


@pytest.mark.parametrize(
    ("seconds", "usd", "missed"),
    [(4, 0.778, 0), (8, 0.778, 0), (11, 0.778, 0), (11.5, 1.291, 3), (11.54, 1.291, 3), (12, 1.291, 3), (30, 1.291, 3)],
)
def test_the_seconds_of_a_worker_turn_cost_nothing_until_the_lead_comes_too_late(
    seconds: float, usd: float, missed: int
) -> None:
    calls = calls_of(replace(DUO, worker_seconds=seconds))
    assert cost(calls) == pytest.approx(usd, rel=ONE_PERCENT)
    assert expiries(calls) == missed


def test_one_ping_a_hand_over_is_booked_with_the_lead() -> None:
    replayed = replay(calls_of(DUO), Change({"lead": RoleChange(keep_alive=PINGS)}))
    pings = [one for one in replayed.predicted if one.call.ping]
    assert len(pings) == 3
    assert {one.call.role for one in pings} == {"lead"}
    read = sum(one.call.fact.tokens.cache_read for one in pings if one.call.fact.tokens)
    without = replay(calls_of(replace(DUO, policy=LASTING)), Change())
    more = (
        by_role_and_class(replayed.predicted)["lead", "cache_read"].low
        - by_role_and_class(without.measured)["lead", "cache_read"].low
    )
    assert more == cost_chain.OPUS.usd("cache_read", read, 0)
