"""Roles that do not play their part: a clear end, a state that is verified, and costs that are kept."""

from decimal import Decimal
from pathlib import Path

import pytest

from tests.sandbox_tasks import needs_isolation
from tests.scripted_trial import COST, MODEL, PAIR, Call, bash, scripted
from tests.task_directory import write_task

BRIEF, REPORT, FINE = ("delegate", {"brief": "go"}), ("submit", {"report": "done"}), ("approve", {"summary": "fine"})
LEAD = f"  - {{name: lead, topology: price_aware, roles: {{lead: {MODEL}, worker: {MODEL}}}}}\n"


@needs_isolation
@pytest.mark.parametrize(
    ("answers", "role"),
    [
        ([None] * 3, "planner"),
        ([("delegate", {"brief": ""}), *[None] * 3], "worker"),
        ([BRIEF, bash("touch done.txt"), *[None] * 3], "worker"),
        ([BRIEF, bash("touch done.txt"), REPORT, *[None] * 3], "planner"),
    ],
    ids=["a planner says nothing", "an empty brief", "a worker never submits", "a check without an end"],
)
async def test_who_says_nothing_ends_the_trial_and_what_is_there_is_verified(
    answers: list[Call | None], role: str, tmp_path: Path
) -> None:
    write_task(tmp_path / "quick")
    ended, found, _ = await scripted(tmp_path, PAIR, *answers, tasks="quick")
    worked = any(call is not None and call[0] == "bash" for call in answers)
    assert (ended.ended_by, ended.outcome) == ("no_handover", "passed" if worked else "failed")
    assert ended.usd == len(answers) * Decimal(COST)
    last = found["handovers"][-1]
    assert (last["from_role"], last["to_role"], last["kind"], last["reason"]) == (role, None, None, "no_handover")
    assert last["call"] == found["calls"][-1]["key"]


@needs_isolation
async def test_a_worker_that_would_delegate_is_told_which_tools_there_are_and_its_call_is_invalid(
    tmp_path: Path,
) -> None:
    write_task(tmp_path / "quick")
    script: list[Call] = [BRIEF, ("delegate", {"brief": "you do it"}), bash("touch done.txt"), REPORT, FINE]
    ended, found, provider = await scripted(tmp_path, PAIR, *script, tasks="quick")
    assert (ended.ended_by, ended.outcome) == ("submitted", "passed")
    assert "error: there is no tool 'delegate'; there are bash, submit" in str(provider.received[2].json["messages"])
    assert [call["tool_calls_valid"] for call in found["calls"]] == [True, False, True, True, True]
    assert [(row["from_role"], row["to_role"]) for row in found["handovers"]] == [
        ("planner", "worker"), ("worker", "planner"), ("planner", None),
    ]  # fmt: skip


@needs_isolation
async def test_who_delegates_to_itself_delegates_to_the_worker_all_the_same(tmp_path: Path) -> None:
    write_task(tmp_path / "quick")
    itself = ("delegate", {"brief": "go", "to_role": "lead", "to": "lead"})
    ended, found, provider = await scripted(tmp_path, LEAD, itself, REPORT, ("submit", {"report": "x"}), tasks="quick")
    assert ended.ended_by == "submitted"
    assert [(row["from_role"], row["to_role"], row["payload"]) for row in found["handovers"]] == [
        ("lead", "worker", "go"), ("worker", "lead", "done"), ("lead", None, "x"),
    ]  # fmt: skip
    assert [call["role"] for call in found["calls"]] == ["lead", "worker", "lead"]
    assert "go" in str(provider.received[1].json["messages"])
