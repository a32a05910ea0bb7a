"""The time left is told at the stated moments, once each, in messages that are new anyhow."""

import re
import shutil
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.clock import VirtualClock
from agents.limits import Limits, TellTime
from agents.simulated.conversation import Said
from agents.simulated.judging import DIFF_HEADING, diff_in
from agents.time_left import SHARES, TimeLeft
from experiments.runner import run_experiment
from harbor_tasks.format import bundled_tasks
from tests.experiment_files import SOLO as SIMULATED
from tests.experiment_files import rows, small
from tests.sandbox_tasks import needs_isolation
from tests.scripted_trial import PAIR as SCRIPTED_PAIR
from tests.scripted_trial import SOLO, Call, bash, scripted
from tests.store_trials import EPOCH
from tests.task_directory import write_task

LINE = re.compile(r"\[time: (\d+) s of 100 s left\]")


def times(messages: object) -> list[int]:
    return [int(left) for left in LINE.findall(str(messages))]


def task(folder: Path) -> str:
    write_task(folder / "quick", "[agent]\ntimeout_sec = 100\n")
    return "quick"


@needs_isolation
async def test_half_a_quarter_and_a_tenth_are_told_once_each_at_the_end_of_the_next_result(tmp_path: Path) -> None:
    # A turn takes 8 s: 52 s are left after the 6th, 44 after the 7th, 20 after the 10th, 4 after the 12th.
    turns = [bash(f"echo {number}") for number in range(12)]
    ended, found, _ = await scripted(
        tmp_path, SOLO, *turns, ("submit", {"report": "done"}), seconds=8, tasks=task(tmp_path)
    )
    assert ended.ended_by == "agent_timeout"
    told = {row["idx"]: times(row["content"]) for row in found["messages"] if times(row["content"])}
    assert told == {15: [44], 21: [20], 25: [4]}
    [late] = [row for row in found["messages"] if row["idx"] == 15]
    assert "exit code 0\\n6\\n[time: 44 s of 100 s left]" in str(late["content"])


@needs_isolation
async def test_each_role_is_told_for_itself_and_a_visits_message_tells_it_too(tmp_path: Path) -> None:
    # An answer takes 30 s: 70 s are left when the worker begins, 40 s when the planner hears of its report.
    script: list[Call] = [
        ("delegate", {"brief": "go"}),
        ("submit", {"report": "done"}),
        ("approve", {"summary": "fine"}),
    ]
    ended, found, _ = await scripted(tmp_path, SCRIPTED_PAIR, *script, seconds=30, tasks=task(tmp_path))
    assert ended.ended_by == "submitted"
    told = {(row["lane"], row["idx"]): times(row["content"]) for row in found["messages"] if times(row["content"])}
    assert told == {("planner-0", 3): [40]}
    ended, found, _ = await scripted(tmp_path, SCRIPTED_PAIR, *script, seconds=48, tasks=task(tmp_path))
    assert ended.ended_by == "agent_timeout"
    told = {(row["lane"], row["idx"]): times(row["content"]) for row in found["messages"] if times(row["content"])}
    assert told == {("planner-0", 3): [4]}


@needs_isolation
@pytest.mark.parametrize(("tell_time", "expected"), [("always", [100, 70, 40]), ("late", [40]), ("never", [])])
async def test_what_is_told_is_the_specs_choice(tell_time: str, expected: list[int], tmp_path: Path) -> None:
    script: list[Call] = [
        ("delegate", {"brief": "go"}),
        ("submit", {"report": "done"}),
        ("approve", {"summary": "fine"}),
    ]
    more = f"limits: {{tell_time: {tell_time}}}\n"
    _, found, _ = await scripted(tmp_path, SCRIPTED_PAIR, *script, seconds=30, tasks=task(tmp_path), more=more)
    assert times([row["content"] for row in sorted(found["messages"], key=lambda row: str(row["lane"]))]) == sorted(
        expected, key=[100, 40, 70].index
    )


@needs_isolation
async def test_without_a_limit_of_the_task_nothing_is_told(tmp_path: Path) -> None:
    write_task(tmp_path / "endless")
    more = "limits: {tell_time: always}\n"
    _, found, _ = await scripted(
        tmp_path, SOLO, bash("true"), ("submit", {"report": "x"}), seconds=5000, tasks="endless", more=more
    )
    assert "[time:" not in str([row["content"] for row in found["messages"]])


@given(
    steps=st.lists(st.floats(0, 400, allow_nan=False), max_size=12),
    visits=st.lists(st.booleans(), min_size=12, max_size=12),
    tell=st.sampled_from(["late", "always", "never"]),
)
async def test_a_role_hears_of_each_share_at_most_once_and_never_of_more_than_is_left(
    steps: list[float], visits: list[bool], tell: TellTime
) -> None:
    clock = VirtualClock(EPOCH)
    limits = Limits(9, 9, 9, EPOCH + timedelta(seconds=900), seconds=900, tell_time=tell)
    time_left, told, passed = TimeLeft(clock, limits), [], 0.0
    async with clock.lane("one"):
        for step, visit in zip(steps, visits, strict=False):
            await clock.sleep(step)
            passed = (clock.now() - EPOCH).total_seconds()
            message = time_left.in_visit("m") if visit else time_left.in_result("m")
            found = re.fullmatch(r"m\n{1,2}\[time: (\d+) s of 900 s left\]", message)
            assert found or message == "m"
            if found:
                assert int(found[1]) == int(max(0, 900 - passed))
                told.append(int(found[1]))
            if tell == "always" and visit:
                assert found
    if tell == "never":
        assert told == []
    elif tell == "late":
        assert len(told) <= len(SHARES)
        assert all(left <= 450 for left in told)
    if tell != "never" and steps and passed >= 450 and visits[len(steps) - 1]:
        assert told
        assert min(told) <= 450


def test_a_reviewer_takes_the_time_for_no_part_of_the_diff() -> None:
    message = f"The worker's report:\n\ndone\n\n{DIFF_HEADING}\n\n+line"
    for told in (message, f"{message}\n\n[time: 9 s of 90 s left]"):
        assert diff_in([Said("user", told)]) == "+line"


@needs_isolation
async def test_simulated_models_that_are_told_the_time_read_it_and_keep_their_cache(tmp_path: Path) -> None:
    shutil.copytree(bundled_tasks() / "tenant-billing", tmp_path / "tenant-billing")
    toml = tmp_path / "tenant-billing" / "task.toml"
    toml.write_text(toml.read_text().replace("timeout_sec = 7200", "timeout_sec = 400"))
    report = await run_experiment(small(tmp_path, SIMULATED, tasks="tenant-billing"), tmp_path / "x.duckdb")
    assert [ended.ended_by for ended in report.ended.values()] == ["submitted"]
    assert report.bill is not None
    assert report.bill.equal, report.bill.sentence
    found = rows(tmp_path / "x.duckdb")
    told = [str(row["content"]) for row in found["messages"] if "[time: " in str(row["content"])]
    assert len(told) >= 2
    assert "s of 400 s left]" in told[0]
    assert {charge["cause"] for charge in found["charges"]} & {"change_rebuild", "expiry_rebuild", "eviction"} == set()
