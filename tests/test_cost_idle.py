"""Who held the floor while a cache expired."""

from collections import Counter
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from cost_model.call_fact import CallFact
from cost_model.idle import Activity, Expiry, Floor, expiries
from cost_model.scope import explain
from cost_model.what_if.stored_call import StoredCall
from tests.cost_calls import DEEPSEEK, START, call, wrote
from tests.cost_chain import DUO, chain_calls


def lasting(fact: CallFact, seconds: float, *, asks_for_tools: bool | None = None) -> StoredCall:
    return StoredCall(fact, fact.lane, fact.requested_at + timedelta(seconds=seconds), asks_for_tools=asks_for_tools)


def found(*calls: StoredCall) -> list[Expiry]:
    return expiries(calls, explain([one.fact for one in calls]))


def test_a_worker_that_works_too_long_is_named_with_its_model_and_its_tools() -> None:
    worker = [
        lasting(call(10 + 100 * n, "w" + " w" * n, wrote(0), lane="worker", policy=DEEPSEEK), 70) for n in range(4)
    ]
    (expiry,) = found(lasting(call(0, "p", wrote(50_000)), 10), *worker, lasting(call(400, "p q", wrote(50_500)), 10))
    assert (expiry.role, expiry.idle_s, expiry.tokens) == ("planner", 400, 50_000)
    assert list(expiry.held) == [
        ("worker", "model", 280),
        ("worker", "tool", 90),
        ("user", "wait", 20),
        ("planner", "model", 10),
    ]
    assert expiry.holder == ("worker", "model")
    assert expiry.excess_usd == Decimal("0.24")


def test_a_lane_that_was_alone_waited_for_its_own_tools_or_for_the_user() -> None:
    late = lasting(call(720, "p q", wrote(50_500)), 10)
    for asked, holder in ((True, ("planner", "tool")), (None, ("planner", "tool")), (False, ("user", "wait"))):
        (expiry,) = found(lasting(call(0, "p", wrote(50_000)), 20, asks_for_tools=asked), late)
        assert expiry.holder == holder
        assert expiry.held[0][2] == 700


def test_what_is_known_of_commands_and_waits_beats_what_calls_show() -> None:
    calls = [lasting(call(0, "p", wrote(50_000)), 20), lasting(call(720, "p q", wrote(50_500)), 10)]
    waited = Activity("budget", "wait", START + timedelta(seconds=20), START + timedelta(seconds=700))
    (expiry,) = expiries(calls, explain([one.fact for one in calls]), [waited])
    assert list(expiry.held) == [("budget", "wait", 680), ("user", "wait", 40)]


def test_every_expiry_of_a_chain_is_held_by_its_worker() -> None:
    calls = chain_calls(DUO)
    expired = expiries(calls, explain([one.fact for one in calls]))
    assert [one.held[0][0] for one in expired] == ["worker"] * 3
    assert [one.idle_s for one in expired] == [376] * 3
    assert sum(one.excess_usd for one in expired) == Decimal("0.513015")


@given(st.lists(st.tuples(st.sampled_from("pwx"), st.integers(0, 2000), st.integers(0, 900)), min_size=2, max_size=12))
def test_the_seconds_of_all_holders_sum_to_the_idle_time(drawn: list[tuple[str, int, int]]) -> None:
    calls = [
        lasting(call(at, f"{lane} {number}", wrote(9000), lane=lane, key=f"{number:02}"), seconds)
        for number, (lane, at, seconds) in enumerate(drawn)
    ]
    calls = [replace(one, fact=replace(one.fact, prompt=())) for one in calls]
    for expiry in found(*calls):
        assert sum(seconds for _, _, seconds in expiry.held) == expiry.idle_s
        assert all(seconds > 0 for _, _, seconds in expiry.held)


class Counted(datetime):
    """A time that counts how often it is compared: a measure of work that no other process disturbs."""

    compared = 0

    def __lt__(self, other: Any) -> bool:
        Counted.compared += 1
        return super().__lt__(other)

    def __le__(self, other: Any) -> bool:
        Counted.compared += 1
        return super().__le__(other)

    def __gt__(self, other: Any) -> bool:
        Counted.compared += 1
        return super().__gt__(other)

    def __ge__(self, other: Any) -> bool:
        Counted.compared += 1
        return super().__ge__(other)


def compared(count: int) -> int:
    """Every call of three lanes expires, and the one gap of a fourth holds them all."""
    begin = Counted.fromisoformat(START.isoformat())
    facts = [call(350 * n, "", wrote(9000), lane="pwx"[n % 3], key=f"{n:05}") for n in range(count)]
    facts += [call(at, "", wrote(9000), lane="lead", key=f"lead{at:06}") for at in (-10, 350 * count)]
    calls = [
        lasting(replace(fact, requested_at=begin + (fact.requested_at - START), first_token_at=None), 20)
        for fact in facts
    ]
    explained = explain([one.fact for one in calls])
    before = Counted.compared
    assert len(expiries(calls, explained)) == count - 3 + 1
    return Counted.compared - before


def test_many_expiries_and_a_long_gap_cost_no_look_at_every_call_for_every_other() -> None:
    assert compared(800) < 16 * compared(100)


KINDS = ["model", "tool", "wait"]
SPANS = st.tuples(st.sampled_from("pwx"), st.sampled_from(KINDS), st.integers(0, 60), st.integers(0, 60))


@given(st.lists(SPANS, max_size=25), st.integers(0, 60), st.integers(0, 60))
def test_each_second_is_held_by_the_first_of_those_who_were_busy_in_it(
    drawn: list[tuple[str, str, int, int]], one: int, other: int
) -> None:
    since, until = min(one, other), max(one, other)
    busy = [(role, kind, min(a, b), max(a, b)) for role, kind, a, b in drawn]
    floor = Floor(
        Activity(role, kind, START + timedelta(seconds=a), START + timedelta(seconds=b))  # type: ignore[arg-type]  # drawn text
        for role, kind, a, b in busy
    )
    seconds: Counter[tuple[str, str]] = Counter()
    for second in range(since, until):
        there = [(role == "p", KINDS.index(kind), role, kind) for role, kind, a, b in busy if a <= second < b]
        seconds[min(there)[2:] if there else ("user", "wait")] += 1
    found = floor.held("p", START + timedelta(seconds=until), float(until - since))
    assert {(role, kind): held for role, kind, held in found} == seconds
    assert [held for _, _, held in found] == sorted(seconds.values(), reverse=True)
