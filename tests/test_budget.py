"""The budget's arithmetic and its queue: never passed by more than one call, never a circle of waiting."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.clock import Clock, VirtualClock, WallClock
from agents.errors import DeadlinePassed
from cost_model.calls import CallEnded, CallSent, Outcome, SpendingStopped
from cost_model.policies import POLICIES
from cost_model.price_card import PriceCard
from experiments import budget as budget_module
from experiments.budget import Budget, SpendingStalled, amount
from experiments.spend import SpendingBook
from experiments.worst_case import PROVIDER_TOKENS
from tests.store_trials import EPOCH

CARD = PriceCard(
    ref="dear",
    source="a test",
    valid_from=None,
    valid_until=None,
    usd_per_mtok={"input": Decimal(4), "cache_read": Decimal("0.4"), "output": Decimal(20)},
)
PROMPT_BYTES, MOST_OUTPUT = 9_000, 1_000
WORST = (4 * (Decimal(PROMPT_BYTES) + PROVIDER_TOKENS) + 20 * MOST_OUTPUT) / 10**6


class Notebook:
    """A Book that keeps what reaches it."""

    def __init__(self) -> None:
        self.calls: list[CallSent] = []
        self.ends: list[CallEnded] = []

    async def sent(self, call: CallSent) -> None:
        await asyncio.sleep(0)
        self.calls.append(call)

    def ended(self, call: CallEnded) -> None:
        self.ends.append(call)

    def judged(self, key: str, tool_calls_valid: bool) -> None:
        pass


def call(key: str, at: datetime = EPOCH) -> CallSent:
    return CallSent(
        key=key,
        trial_id=key.split("/")[0],
        attempt=1,
        role="solo",
        lane="solo-0",
        version=0,
        turn="1",
        try_number=1,
        model="dear",
        wire_model="dear",
        provider="anthropic",
        flavour="openai_chat",
        lifetime=None,
        blocks=2,
        prompt_bytes=PROMPT_BYTES,
        max_output_tokens=MOST_OUTPUT,
        requested_at=at,
        simulated=True,
    )


def end(key: str, tokens: tuple[int, int] | None, outcome: Outcome = "complete", **more: object) -> CallEnded:
    """`tokens`: of the prompt and of the answer; None when the usage never came."""
    usage: dict[str, object] | None = None
    if tokens is not None:
        usage = {"prompt_tokens": tokens[0], "completion_tokens": tokens[1], "total_tokens": sum(tokens), **more}
    return CallEnded(key, outcome, 200, None, EPOCH, usage, None, None, None, None, None)


def book(
    budget: Budget | None, clock: Clock | None = None, rank: int = 0, notes: Notebook | None = None,
    waited: Callable[[CallSent, datetime], None] = lambda call, began: None, card: PriceCard = CARD,
) -> SpendingBook:  # fmt: skip
    return SpendingBook(
        notes or Notebook(), lambda model, at: card, lambda model: POLICIES["anthropic-1024"],
        clock or VirtualClock(EPOCH), budget, rank, waited,
    )  # fmt: skip


cents = st.integers(1, 500).map(lambda value: Decimal(value) / 100)


@given(
    usd=cents,
    spent=st.integers(0, 300).map(lambda value: Decimal(value) / 100),
    trials=st.lists(st.lists(st.tuples(cents, st.integers(0, 100), st.integers(0, 3)), max_size=5), max_size=12),
)
@settings(max_examples=150, deadline=None)
def test_spending_passes_the_budget_by_less_than_one_call_whatever_is_in_flight(
    usd: Decimal, spent: Decimal, trials: list[list[tuple[Decimal, int, int]]]
) -> None:
    budget = Budget(usd, spent)
    finished: list[int] = []

    async def trial(rank: int, calls: list[tuple[Decimal, int, int]]) -> None:
        try:
            for number, (worst, percent, pause) in enumerate(calls):
                key = f"{rank}/{number}"
                if budget.take(key, worst, rank):
                    assert budget.spent < usd
                else:
                    # Let through in time, a waiter may wake after another call has used up the money.
                    await budget.wait(key, worst, rank)
                for _ in range(pause):
                    await asyncio.sleep(0)
                budget.settle(key, worst * percent / 100)
                await asyncio.sleep(0)
            finished.append(rank)
        except SpendingStopped:
            assert budget.spent >= usd
        finally:
            budget.leave(rank)

    async def run() -> None:
        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            for rank, calls in enumerate(trials):
                group.create_task(trial(rank, calls))

    asyncio.run(run())
    dearest = max((worst for calls in trials for worst, _, _ in calls), default=Decimal(0))
    assert budget.held == 0
    assert budget.spent < max(usd, spent) + dearest or budget.spent == spent
    if budget.spent < usd:
        assert len(finished) == len(trials)


async def test_scarce_money_goes_to_the_trials_that_were_started_first() -> None:
    budget, order = Budget(Decimal(1)), []

    async def trial(rank: int) -> None:
        await budget.wait(f"{rank}", Decimal(2), rank)
        order.append(rank)
        budget.settle(f"{rank}", Decimal("0.01"))
        budget.leave(rank)

    assert budget.take("2", Decimal(2), 2)
    assert not budget.take("9", Decimal(2), 9)
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        for rank in (7, 5, 3):
            group.create_task(trial(rank))
        await asyncio.sleep(0)
        # Between two of its calls nobody of a higher rank takes what trial 2 will need.
        budget.settle("2", Decimal("0.01"))
        for _ in range(5):
            await asyncio.sleep(0)
        assert order == []
        assert budget.take("2/2", Decimal(2), 2)
        budget.settle("2/2", Decimal("0.01"))
        budget.leave(2)
    assert order == [3, 5, 7]


async def test_a_wait_that_is_cancelled_holds_nothing_and_blocks_nobody() -> None:
    budget = Budget(Decimal(1))
    assert budget.take("a", Decimal(2), 0)
    first = asyncio.create_task(budget.wait("b", Decimal(2), 1))
    second = asyncio.create_task(budget.wait("c", Decimal(2), 2))
    await asyncio.sleep(0)
    # Served and cancelled in the same moment: what it was given goes on to the next.
    budget.settle("a", Decimal(0))
    budget.leave(0)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    budget.leave(1)
    async with asyncio.timeout(60):
        await second
    assert budget.held == 2


async def test_a_wait_has_an_end_when_no_call_in_flight_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget_module, "PATIENCE_S", 0.01)
    budget = Budget(Decimal(1))
    assert budget.take("a", Decimal(2), 0)
    with pytest.raises(SpendingStalled, match=r"no call came to an end .* hold \$2 of the budget of \$1"):
        await budget.wait("b", Decimal(2), 1)
    assert budget.held == 2


@pytest.mark.parametrize(
    ("ended", "cost"),
    [
        (end("t/1", (1000, 100)), Decimal("0.006")),
        (end("t/1", (1000, 100), cost=0.5), Decimal("0.5")),
        (end("t/1", None, "refused"), Decimal(0)),
        (end("t/1", None, "cut"), WORST),
        (end("t/1", None, "cancelled"), WORST),
        (end("t/1", (1000, 100), "cut"), WORST),
        (end("t/1", (-5, 100)), WORST),
        (None, WORST),
    ],
    ids=["list price", "the provider's bill", "refused", "cut", "cancelled", "cut after usage", "nonsense", "no end"],
)
async def test_a_call_counts_with_its_cost_and_with_its_worst_case_where_that_is_unknown(
    ended: CallEnded | None, cost: Decimal
) -> None:
    budget = Budget(Decimal(10))
    spending = book(budget)
    await spending.sent(call("t/1"))
    assert budget.held == WORST
    if ended is not None:
        spending.ended(ended)
    spending.close()
    assert budget.held == 0
    assert budget.spent == cost


async def test_an_answer_that_never_told_its_length_counts_with_its_worst_case() -> None:
    budget = Budget(Decimal(10))
    spending = book(budget)
    await spending.sent(replace(call("t/1"), flavour="anthropic_messages"))
    usage = {"input_tokens": 1000, "message_start": {"output_tokens": 1}}
    spending.ended(replace(end("t/1", None), usage=usage))
    assert (budget.spent, spending.usd) == (WORST, Decimal("0.00402"))


@pytest.mark.parametrize(("lifetime", "usd"), [(None, "0.005"), ("5m", "0.005"), ("1h", "0.008")])
async def test_a_write_of_untold_lifetime_counts_as_the_one_that_was_asked_for(lifetime: str | None, usd: str) -> None:
    card = replace(CARD, usd_per_mtok={**CARD.usd_per_mtok, "cache_write_5m": Decimal(5), "cache_write_1h": Decimal(8)})
    budget = Budget(Decimal(10))
    spending = book(budget, card=card)
    await spending.sent(replace(call("t/1"), flavour="anthropic_messages", lifetime=lifetime))
    usage = {"input_tokens": 0, "cache_creation_input_tokens": 1000, "output_tokens": 0}
    spending.ended(replace(end("t/1", None), usage=usage))
    assert budget.spent == spending.usd == Decimal(usd)


async def test_without_a_budget_everything_is_let_through_and_added_up() -> None:
    spending = book(None)
    await spending.sent(call("t/1"))
    spending.ended(end("t/1", (1000, 100)))
    spending.close()
    assert spending.usd == Decimal("0.006")


async def test_what_was_refused_for_money_is_neither_recorded_nor_ended() -> None:
    notes = Notebook()
    spending = book(Budget(Decimal(1), spent=Decimal(1)), notes=notes)
    with pytest.raises(SpendingStopped):
        await spending.sent(call("t/1"))
    spending.ended(end("t/1", None, "cancelled"))
    assert (notes.calls, notes.ends) == ([], [])


async def test_a_call_that_is_cancelled_while_it_waits_is_neither_recorded_nor_ended() -> None:
    notes, budget = Notebook(), Budget(Decimal(1))
    assert budget.take("other", Decimal(2), 0)
    spending = book(budget, rank=1, notes=notes)
    waiting = asyncio.create_task(spending.sent(call("t/1")))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    spending.ended(end("t/1", None, "cancelled"))
    spending.close()
    budget.settle("other", Decimal("0.5"))
    assert not notes.calls
    assert not notes.ends
    assert budget.held == 0
    assert budget.spent == Decimal("0.5")


@pytest.mark.parametrize("usd", [WORST / 2, WORST * 3 / 2])
async def test_two_lanes_of_one_trial_never_wait_for_each_other_in_virtual_time(usd: Decimal) -> None:
    """One lane's call is in flight, asleep on the trial's clock; the other waits for what it holds. Were the wait work,
    the clock would stand still and the call would never end."""
    clock, notes, budget = VirtualClock(EPOCH), Notebook(), Budget(usd)
    waits: list[tuple[str, float]] = []
    spending = book(
        budget, clock, notes=notes,
        waited=lambda call, began: waits.append((call.key, (call.requested_at - began).total_seconds())),
    )  # fmt: skip
    stopped: list[str] = []

    async def lane(name: str) -> None:
        async with clock.lane(name):
            try:
                for turn in range(40):
                    key = f"{name}/{turn}"
                    await spending.sent(call(key, clock.now()))
                    await clock.sleep(10)
                    spending.ended(end(key, (1000, 100)))
                    await clock.sleep(1)
            except SpendingStopped:
                stopped.append(name)

    clock.expect(2)
    async with asyncio.timeout(60):
        await asyncio.gather(lane("a"), lane("b"))
    assert sorted(stopped) == ["a", "b"]
    assert usd <= budget.spent < usd + WORST
    assert budget.held == 0
    # Each call is booked at the moment at which it was sent, and the virtual time went on meanwhile.
    assert waits
    assert all(0 < seconds <= 11 for _, seconds in waits)
    starts = [each.requested_at for each in notes.calls]
    assert starts == sorted(starts)
    if usd < WORST:
        assert all(later - earlier >= timedelta(seconds=10) for earlier, later in pairwise(starts))


@given(
    usd=st.integers(1, 400),
    plans=st.lists(
        st.lists(st.tuples(st.integers(0, 9), st.booleans()), min_size=1, max_size=4), min_size=1, max_size=4
    ),
    lanes=st.integers(1, 3),
)
@settings(max_examples=80, deadline=None)
def test_no_arrangement_of_trials_and_lanes_stands_still(
    usd: int, plans: list[list[tuple[int, bool]]], lanes: int
) -> None:
    budget = Budget(Decimal(usd) / 1000)
    ended = 0

    async def lane(clock: VirtualClock, spending: SpendingBook, name: str, calls: list[tuple[int, bool]]) -> None:
        nonlocal ended
        async with clock.lane(name):
            try:
                for turn, (seconds, complete) in enumerate(calls):
                    key = f"{name}/{turn}"
                    await spending.sent(call(key, clock.now()))
                    await clock.sleep(seconds)
                    spending.ended(end(key, (900, 90) if complete else None, "complete" if complete else "cut"))
                    await asyncio.sleep(0)
                    await clock.sleep(1)
            except SpendingStopped:
                assert budget.used_up
        ended += 1

    async def trial(rank: int, calls: list[tuple[int, bool]]) -> None:
        clock = VirtualClock(EPOCH)
        spending = book(budget, clock, rank)
        clock.expect(lanes)
        await asyncio.gather(*(lane(clock, spending, f"{rank}-{number}", calls) for number in range(lanes)))
        spending.close()

    async def run() -> None:
        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            for rank, calls in enumerate(plans):
                group.create_task(trial(rank, calls))

    asyncio.run(run())
    assert ended == lanes * len(plans)
    assert budget.held == 0
    assert budget.spent < budget.usd + WORST


async def test_sixty_four_trials_at_once_pass_a_dollar_by_less_than_one_call_and_the_first_ones_finish() -> None:
    budget, finished = Budget(Decimal(1)), []

    async def trial(rank: int) -> None:
        clock = VirtualClock(EPOCH)
        spending = book(budget, clock, rank)
        try:
            async with clock.lane("solo-0"):
                for turn in range(10):
                    key = f"{rank}/{turn}"
                    await spending.sent(call(key, clock.now()))
                    await clock.sleep(5)
                    spending.ended(end(key, (900, 90)))
                    await asyncio.sleep(0)
                finished.append(rank)
        except SpendingStopped:
            pass
        finally:
            spending.close()

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        for rank in range(64):
            group.create_task(trial(rank))
    assert 1 <= budget.spent < 1 + WORST
    # A whole trial costs $0.054, and begun in one rush all of them would have got a third of their calls.
    assert finished[:8] == list(range(8))


async def test_time_that_a_trial_waits_for_money_is_not_its_own() -> None:
    clock = WallClock()
    at = datetime.now(UTC) + timedelta(seconds=0.15)
    async with clock.deadline(at):
        async with clock.resting():
            await asyncio.sleep(0.3)
        assert not clock.past(at)
        assert 0 < clock.real_seconds_until(at) < 0.16
    with pytest.raises(DeadlinePassed):
        async with clock.deadline(at):
            await asyncio.sleep(5)
    assert clock.past(at)


async def test_a_lane_that_rested_goes_on_in_its_turn() -> None:
    clock, log = VirtualClock(EPOCH), []
    money = asyncio.Event()

    async def waits() -> None:
        async with clock.lane("a"):
            async with clock.resting():
                await money.wait()
            log.append(("a", clock.now()))

    async def works() -> None:
        async with clock.lane("b"):
            await clock.sleep(7)
            money.set()
            for _ in range(5):
                await asyncio.sleep(0)
            log.append(("b", clock.now()))

    clock.expect(2)
    async with asyncio.timeout(60):
        await asyncio.gather(waits(), works())
    assert log == [("b", EPOCH + timedelta(seconds=7)), ("a", EPOCH + timedelta(seconds=7))]


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "1e9", "five", ""])
def test_what_is_no_budget_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no budget; expected dollars above 0 such as 5 or 0\.50"):
        amount(text)


def test_a_budget_is_exact() -> None:
    assert amount("0.10") == Decimal("0.1")
