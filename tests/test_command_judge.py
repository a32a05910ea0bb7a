"""The process in which commands are judged: whatever becomes of it, nothing else is harmed and nothing is left."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from agents.command_policy import CommandPattern, CommandPolicy
from agents.errors import JudgeMissing
from agents.shell.judge import UNREADABLE, Judge
from experiments.runner import run_experiment
from tests.experiment_files import rows, small
from tests.sandbox_tasks import needs_isolation

NO_TOUCH = CommandPolicy(deny=(CommandPattern("touch"),))
REFUSED = "refused, nothing was run: `touch x` matches the denied pattern 'touch'"
WITH_POLICY = """\
  - name: alone
    topology: solo
    roles: {solo: {model: sim-deepseek-v4-flash, command_policy: {deny: [rm]}}}
"""


def judges() -> set[int]:
    """The process ids of this process's own."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            ours = parent == os.getpid() and b"judge_process" in (folder / "cmdline").read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            continue
        found |= {int(folder.name)} if ours else set()
    return found


def environment(pid: int) -> bytes | None:
    """None where the process is gone, and waited for."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None


async def test_it_starts_with_the_first_command_and_ends_with_its_owner() -> None:
    before = judges()
    async with Judge.open() as judge:
        assert judges() == before
        assert await judge.refusal(NO_TOUCH, "ls") is None
        first = judges() - before
        assert await judge.refusal(NO_TOUCH, "touch x") == REFUSED
        assert judges() - before == first
        assert len(first) == 1
    assert judges() == before


async def test_a_process_killed_amid_its_work_costs_that_command_alone() -> None:
    before = judges()
    async with Judge.open() as judge:
        await judge.refusal(NO_TOUCH, "ls")
        [first] = judges() - before
        os.kill(first, signal.SIGSTOP)
        judged = asyncio.create_task(judge.refusal(NO_TOUCH, "ls -l"))
        await asyncio.sleep(0.05)
        assert not judged.done()
        os.kill(first, signal.SIGKILL)
        assert await judged == UNREADABLE
        assert await judge.refusal(NO_TOUCH, "ls -l") is None
        assert await judge.refusal(NO_TOUCH, "touch x") == REFUSED
        [second] = judges() - before
        assert second != first


async def test_one_that_died_while_nobody_asked_costs_no_command() -> None:
    before = judges()
    async with Judge.open() as judge:
        await judge.refusal(NO_TOUCH, "ls")
        [first] = judges() - before
        os.kill(first, signal.SIGKILL)
        # Until that is known here, too.
        while judge._process is not None and judge._process.returncode is None:  # noqa: ASYNC110 (nothing tells of it)
            await asyncio.sleep(0.01)
        assert await judge.refusal(NO_TOUCH, "touch x") == REFUSED


async def test_a_process_that_does_not_answer_is_given_up() -> None:
    before = judges()
    judge = Judge(answer_s=0.2)
    try:
        # Its start has a time-out of its own.
        while await judge.refusal(NO_TOUCH, "ls") == UNREADABLE:
            pass
        [first] = judges() - before
        os.kill(first, signal.SIGSTOP)
        assert await judge.refusal(NO_TOUCH, "ls") == UNREADABLE
        assert judges() == before
    finally:
        await judge.close()


async def test_a_command_that_takes_too_much_time_ends_its_process_and_is_refused() -> None:
    async with Judge.open() as judge:
        assert await judge.refusal(NO_TOUCH, "sudo " + "x " * 30_000) == UNREADABLE
        assert await judge.refusal(NO_TOUCH, "ls") is None


SPEAKS = """
import json, sys
def say(data):
    sys.stdout.buffer.write(len(data).to_bytes(4, "big") + data)
    sys.stdout.buffer.flush()
say(b'{"ready": true}')
sys.stdin.buffer.read(int.from_bytes(sys.stdin.buffer.read(4), "big"))
"""
RUBBISH = [
    "say(b'no JSON')",
    "say(b'\\xff\\xfe')",
    "say(b'[' * 60_000)",
    "say(b'null')",
    "say(b'{}')",
    "say(b'{\"refused\": false}')",
    'say(b\'{"refused": ""}\')',
    'say(b\'{"refused": null, "more": 1}\')',
    "say(json.dumps({'refused': 'two\\nlines'}).encode())",
    "say(json.dumps({'refused': 'x' * 9000}).encode())",
    "sys.stdout.buffer.write(b'\\xff\\xff\\xff\\xff'); sys.stdout.buffer.flush(); sys.stdin.buffer.read()",
    "sys.stdout.buffer.write(b'\\0\\0')",
    "pass",
]


@pytest.mark.parametrize("rubbish", RUBBISH)
async def test_a_process_that_answers_rubbish_is_not_believed(rubbish: str) -> None:
    judge = Judge((sys.executable, "-I", "-c", SPEAKS + rubbish, "judge_process"))
    before = judges()
    try:
        assert await judge.refusal(NO_TOUCH, "ls") == UNREADABLE
        assert judges() == before
    finally:
        await judge.close()


@pytest.mark.parametrize("program", ["pass", "import no_such_module", "print('ready')"])
async def test_one_that_cannot_be_started_is_no_fault_of_the_command(program: str) -> None:
    judge = Judge((sys.executable, "-I", "-c", program, "judge_process"))
    before = judges()
    with pytest.raises(JudgeMissing, match="does not start"):
        await judge.refusal(NO_TOUCH, "ls")
    assert judges() == before
    with pytest.raises(JudgeMissing, match="does not start"):
        await Judge(("/no/such/program",)).refusal(NO_TOUCH, "ls")


async def test_cancelling_amid_a_judgement_leaves_no_process() -> None:
    before = judges()
    async with Judge.open() as judge:
        await judge.refusal(NO_TOUCH, "ls")
        [first] = judges() - before
        os.kill(first, signal.SIGSTOP)
        judged = asyncio.create_task(judge.refusal(NO_TOUCH, "touch x"))
        await asyncio.sleep(0.05)
        judged.cancel()
        with pytest.raises(asyncio.CancelledError):
            await judged
        assert judges() == before
        # The answer that was never read comes out as nobody else's.
        assert await judge.refusal(NO_TOUCH, "ls") is None


async def test_several_lanes_get_each_its_own_answer() -> None:
    async with Judge.open() as judge:
        commands = [f"{'touch' if n % 3 else 'ls'} x{n}" for n in range(30)]
        answers = await asyncio.gather(*(judge.refusal(NO_TOUCH, command) for command in commands))
    assert [answer is not None and f"`touch x{n}`" in answer for n, answer in enumerate(answers)] == [
        n % 3 != 0 for n in range(30)
    ]


async def test_the_process_learns_nothing_of_our_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "a-key-that-nobody-else-needs")
    before = judges()
    async with Judge.open() as judge:
        await judge.refusal(NO_TOUCH, "ls")
        [pid] = judges() - before
        told = environment(pid)
    assert told is not None
    assert b"API_KEY" not in told


@needs_isolation
async def test_a_trial_leaves_no_process_behind(tmp_path: Path) -> None:
    before = judges()
    await run_experiment(small(tmp_path, WITH_POLICY), tmp_path / "x.duckdb")
    assert judges() == before
    found = rows(tmp_path / "x.duckdb")
    assert [attempt["ended_by"] for attempt in found["attempts"]] == ["submitted"]
    assert found["commands"]


@needs_isolation
async def test_a_cancelled_trial_leaves_no_process_behind(tmp_path: Path) -> None:
    before = judges()
    running = asyncio.create_task(run_experiment(small(tmp_path, WITH_POLICY), tmp_path / "x.duckdb"))
    while not judges() - before:
        assert not running.done()
        await asyncio.sleep(0.005)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert judges() == before
