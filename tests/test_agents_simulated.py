"""Roles at work on a bundled task: simulated models, the real sandbox, the real verifier."""

import asyncio
from typing import Any

import pytest

from agents.clock import VirtualClock
from agents.crew import Limits, RoleModel, Seat, hire
from agents.simulated.app import simulated_provider
from agents.transport import open_http
from harbor_tasks.format import bundled_tasks, load_tasks
from harbor_tasks.verifier import verify
from tests.sandbox_tasks import bubblewrap
from tests.wire_provider import EPOCH, NONCE, Notes, entry, served
from topologies import Stage, find, play

EXPENSIVE, CHEAP = entry("sim-claude-opus-5-5"), entry("sim-deepseek-v4-flash")


async def trial(over_http: bool) -> tuple[Notes, float | None]:
    """Planner and worker on one task; returns what was noted and the reward."""
    tasks, _ = load_tasks(bundled_tasks())
    task, topology = tasks[0], find("planner_worker")
    notes, clock = Notes(), VirtualClock(EPOCH)
    backend = await bubblewrap()
    provider: Any = simulated_provider(tasks=tasks)
    async with backend.start(task) as sandbox, served(provider) as url:
        shell = await sandbox.shell()
        way: dict[str, Any] = {"simulator_url": url} if over_http else {"simulator": provider}
        async with open_http(**way) as http:
            limits = Limits(max_turns=40, command_timeout_s=30, max_output_tokens=4000, deadline=None)
            seat = Seat("t1", 1, NONCE, clock, notes, notes, shell, limits, http)
            models = {"planner": RoleModel(EXPENSIVE), "worker": RoleModel(CHEAP)}
            roles = hire(topology.roles, models, seat)
            await play(topology, Stage(roles, topology.checked({"rounds": 2}), task.instruction))
        await shell.close()
        return notes, (await verify(task, sandbox)).reward


@pytest.fixture(scope="module")
def in_process() -> tuple[Notes, float | None]:
    return asyncio.run(trial(over_http=False))


async def test_planner_and_worker_play_a_task_to_its_verdict(in_process: tuple[Notes, float | None]) -> None:
    notes, reward = in_process
    assert reward in (0.0, 1.0)
    assert notes.commands
    assert [handed.kind for _, handed, _ in notes.handovers][:2] == ["delegate", "submit"]
    assert {call.model for call in notes.calls} == {EXPENSIVE.name, CHEAP.name}
    assert {end.outcome for end in notes.ends} == {"complete"}
    assert all(end.usage for end in notes.ends)


async def test_the_planner_reads_its_cache_again_within_a_visit(in_process: tuple[Notes, float | None]) -> None:
    notes, _ = in_process
    planner = [end for call, end in zip(notes.calls, notes.ends, strict=True) if call.role == "planner"]
    reads = [end.usage["cache_read_input_tokens"] for end in planner if end.usage]
    assert reads[0] == 0
    assert any(isinstance(read, int) and read > 0 for read in reads[1:])


async def test_over_loopback_http_the_same_trial_leaves_the_same_rows(in_process: tuple[Notes, float | None]) -> None:
    notes, reward = in_process
    again, rewarded = await trial(over_http=True)
    assert rewarded == reward
    assert again == notes
