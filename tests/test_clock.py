"""The two clocks: virtual time that lanes share, and the wall's."""

import asyncio
import operator
from datetime import UTC, datetime, timedelta
from typing import Annotated, TypedDict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.clock import VirtualClock, WallClock
from agents.errors import DeadlinePassed

EPOCH = datetime(2026, 3, 1, 12, tzinfo=UTC)


def seconds(clock: VirtualClock) -> float:
    return (clock.now() - EPOCH).total_seconds()


async def test_two_parallel_workers_of_200_s_open_a_gap_of_200_s() -> None:
    clock = VirtualClock(EPOCH)

    async def worker(name: str) -> None:
        async with clock.lane(name):
            for _ in range(4):
                await clock.sleep(50)

    clock.expect(2)
    await asyncio.gather(worker("worker-0"), worker("worker-1"))
    assert seconds(clock) == 200


async def test_time_stands_still_while_a_lane_does_real_work() -> None:
    clock = VirtualClock(EPOCH)
    seen: list[float] = []

    async def works() -> None:
        async with clock.lane("a"):
            await asyncio.sleep(0.02)
            seen.append(seconds(clock))

    async def sleeps() -> None:
        async with clock.lane("b"):
            await clock.sleep(10)

    clock.expect(2)
    await asyncio.gather(works(), sleeps())
    assert seen == [0]


@given(
    plans=st.lists(st.lists(st.integers(0, 5).map(float), max_size=4), min_size=1, max_size=5),
    real=st.lists(st.integers(0, 3), min_size=20, max_size=20),
)
@settings(max_examples=60)
def test_the_order_of_events_depends_on_virtual_time_and_names_alone(plans: list[list[float]], real: list[int]) -> None:
    async def trial(hesitations: list[int], reverse: bool) -> list[tuple[float, str]]:
        clock = VirtualClock(EPOCH)
        log: list[tuple[float, str]] = []
        pauses = iter(hesitations * 10)

        async def lane(name: str, waits: list[float]) -> None:
            async with clock.lane(name):
                for wait in waits:
                    for _ in range(next(pauses)):
                        await asyncio.sleep(0)
                    log.append((seconds(clock), name))
                    await clock.sleep(wait)

        lanes = [lane(f"lane-{i}", waits) for i, waits in enumerate(plans)]
        clock.expect(len(lanes))
        await asyncio.gather(*(reversed(lanes) if reverse else lanes))
        assert seconds(clock) == max((sum(waits) for waits in plans), default=0)
        return log

    assert asyncio.run(trial(real, False)) == asyncio.run(trial([0] * 20, True))


async def test_a_fan_out_of_langgraph_runs_on_the_clock() -> None:
    from langgraph.graph import END, START, StateGraph
    from langgraph.types import Send
    from langsmith import tracing_context

    clock = VirtualClock(EPOCH)
    log: list[tuple[float, str]] = []

    class State(TypedDict):
        done: Annotated[list[str], operator.add]

    class Work(TypedDict):
        name: str
        wait: float

    async def split(state: State) -> State:
        async with clock.lane("lead"):
            await clock.sleep(12)
            clock.expect(3)
        return {"done": []}

    async def work(state: Work) -> State:
        async with clock.lane(state["name"]):
            for _ in range(4):
                log.append((seconds(clock), state["name"]))
                await clock.sleep(state["wait"])
                process = await asyncio.create_subprocess_exec("true")
                await process.wait()
                await clock.sleep(2)
        return {"done": [state["name"]]}

    graph = StateGraph(State)
    graph.add_node("split", split)
    graph.add_node("work", work)
    graph.add_edge(START, "split")
    waits = {"w0": 14.0, "w1": 14.0, "w2": 9.5}
    graph.add_conditional_edges(
        "split", lambda _: [Send("work", {"name": name, "wait": wait}) for name, wait in waits.items()], ["work"]
    )
    graph.add_edge("work", END)
    with tracing_context(enabled=False):
        await graph.compile().ainvoke({"done": []}, {"recursion_limit": 20})
    assert seconds(clock) == 12 + 4 * 16
    assert log[:5] == [(12, "w0"), (12, "w1"), (12, "w2"), (23.5, "w2"), (28, "w0")]


async def test_a_cancelled_sleeper_blocks_no_other_lane() -> None:
    clock = VirtualClock(EPOCH)
    woken = asyncio.Event()

    async def sleeper(name: str, wait: float) -> None:
        async with clock.lane(name):
            await clock.sleep(wait)
            woken.set()

    async def busy() -> None:
        async with clock.lane("busy"):
            await asyncio.sleep(0.01)
            doomed.cancel()

    clock.expect(3)
    doomed = asyncio.create_task(sleeper("doomed", 5))
    other = asyncio.create_task(sleeper("other", 9))
    async with asyncio.timeout(60):
        await busy()
        await other
    assert woken.is_set()
    assert doomed.cancelled()
    assert seconds(clock) == 9


async def test_a_lane_inside_a_lane_rests_the_outer_one() -> None:
    clock = VirtualClock(EPOCH)

    async def inner(name: str) -> None:
        async with clock.lane(name):
            await clock.sleep(30)

    async with asyncio.timeout(60), clock.lane("trial"):
        clock.expect(2)
        await asyncio.gather(inner("a"), inner("b"))
        await clock.sleep(1)
    assert seconds(clock) == 31


async def test_a_deadline_stops_a_wait_at_its_moment_on_both_clocks() -> None:
    virtual = VirtualClock(EPOCH)
    async with virtual.lane("a"):
        async with virtual.deadline(EPOCH + timedelta(seconds=7)):
            await virtual.sleep(5)
            with pytest.raises(DeadlinePassed):
                await virtual.sleep(5)
        assert seconds(virtual) == 7
        await virtual.sleep(5)
    assert seconds(virtual) == 12
    wall = WallClock()
    with pytest.raises(DeadlinePassed):
        async with wall.deadline(wall.now() + timedelta(milliseconds=5)):
            await wall.sleep(60)
    async with wall.deadline(None):
        await wall.sleep(0)


async def test_sums_of_waits_are_exact_to_the_microsecond() -> None:
    clock = VirtualClock(EPOCH)
    async with clock.lane("a"):
        for _ in range(1000):
            await clock.sleep(0.1)
    assert clock.now() == EPOCH + timedelta(seconds=100)


async def test_a_sleep_outside_a_lane_is_a_bug_and_says_so() -> None:
    with pytest.raises(RuntimeError, match="outside a lane"):
        await VirtualClock(EPOCH).sleep(1)
    with pytest.raises(ValueError, match="time zone"):
        VirtualClock(datetime(2026, 1, 1))  # noqa: DTZ001
