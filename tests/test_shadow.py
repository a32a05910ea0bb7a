"""Reviewed work is verified in the shadow and kept: each verdict gets its truth, and no agent sees anything of it."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agents.clock import Clock, VirtualClock, WallClock
from experiments import shadow as shadow_module
from experiments.cli import main
from experiments.errors import SpecError
from experiments.runner import run_experiment
from experiments.shadow import Shadow, Shadowing
from experiments.store.reader import query
from experiments.store.state_folder import StateFolder, state_folder
from experiments.store.trial import TrialJournal
from harbor_tasks.errors import SandboxBroken
from harbor_tasks.format import Task
from harbor_tasks.kept_state import verify_state
from harbor_tasks.sandbox import Copy, Sandbox
from harbor_tasks.sandbox.bubblewrap import Bubblewrap
from tests.experiment_files import rows, small, write_spec
from tests.known_diffs import TASKS
from tests.sandbox_tasks import bubblewrap, needs_isolation, processes_with, write_task
from tests.store_trials import EPOCH

ARM = """\
  - name: reviewed
    topology: worker_reviewer
    roles: {worker: sim-deepseek-v4-flash, reviewer: sim-deepseek-v4-flash}
    parameters: {tools: false}
"""
SHADOW = "shadow_verify: true\n"
TASK_NAMES = "bundled/checkout-incident, bundled/tenant-billing"
OF_COPIES = {
    "truth", "truth_reward", "truth_seconds", "truth_reason", "copy_seconds", "state", "state_reason",
}  # fmt: skip


@needs_isolation
@pytest.mark.timeout(300)
async def test_every_verdict_gets_its_truth_and_the_agents_notice_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for name, more in (("shadow", SHADOW), ("plain", "")):
        report = await run_experiment(small(tmp_path, ARM, tasks=TASK_NAMES, more=more), tmp_path / f"{name}.duckdb")
        assert (report.broken, len(report.ended)) == (0, 2)
        found[name] = rows(tmp_path / f"{name}.duckdb")
    for table in ("calls", "charges", "messages", "commands", "spans", "handovers", "rewards", "attempts"):
        assert found["shadow"][table] == found["plain"][table], table
    for one, other in zip(found["shadow"]["reviews"], found["plain"]["reviews"], strict=True):
        assert without_copies(one) == without_copies(other)
        assert {one["state_reason"], other["state_reason"], other["truth"], other["truth_reason"]} == {None}
    plain = tmp_path / "plain.duckdb"
    assert query(plain, "SELECT count(*) FROM reviews WHERE state IS NULL").rows == [(0,)], "it is kept all the same"
    assert query(plain, "SELECT truths, recall, miss_rate, false_reject_rate FROM reviewer_quality").rows == [
        (0, None, None, None)
    ]

    database = tmp_path / "shadow.duckdb"
    told = query(
        database,
        "SELECT verdict, truth, truth_reward, passed, state, task FROM reviews "
        "JOIN trials ON trials.id = trial_id ORDER BY trial_id, number",
    ).rows
    assert {truth for _, truth, *_ in told} == {True, False}
    for verdict, truth, reward, passed, _, _ in told:
        assert truth == (reward >= 1.0)
        assert verdict == "reject" or truth == passed, "what is approved is what the trial hands in"
    backend, kept = await bubblewrap(), StateFolder(database)
    ((in_folder,),) = query(database, "SELECT list(hash ORDER BY hash) FROM states").rows
    assert [path.name for path in sorted(kept.path.iterdir())] == [f"{name}.tar.gz" for name in in_folder]
    assert {state for *_, state, _ in told} == set(in_folder)
    for truth in (True, False):
        _, _, reward, _, state, name = next(row for row in told if row[1] is truth)
        task = next(task for task in TASKS if task.name == name)
        assert (await verify_state(task, kept.archive(state), backend)).reward == reward
    ((quality,),) = query(
        database,
        'SELECT [reviews, truths, wrong + "right", caught + missed + "right", round(recall * wrong), '
        "round(miss_rate * wrong) + caught] FROM reviewer_quality",
    ).rows
    caught, wrong = (
        sum(verdict in verdicts and not truth for verdict, truth, *_ in told)
        for verdicts in (("reject",), ("reject", "approve"))
    )
    assert quality == [len(told)] * 4 + [caught, wrong]

    ((trial, truth),) = query(database, "SELECT trial_id, truth FROM reviews ORDER BY trial_id, number LIMIT 1").rows
    with pytest.raises(SystemExit):
        main(["show", trial, "--db", str(database)])
    assert f"; the work was {'right' if truth else 'wrong'}" in capsys.readouterr().out


def without_copies(review: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in review.items() if name not in OF_COPIES}


@needs_isolation
async def test_truths_without_states(tmp_path: Path) -> None:
    database = tmp_path / "x.duckdb"
    await run_experiment(small(tmp_path, ARM, more=f"{SHADOW}keep_states: false\n"), database)
    assert query(
        database, "SELECT count(*) > 0, count(truth) = count(*), count(state), count(state_reason) FROM reviews"
    ).rows == [(True, True, 0, 0)]  # fmt: skip
    assert not state_folder(database).exists()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("shadow_verify: true\nsandbox: host\n", "of which there is no copy; use bubblewrap or docker"),
        ("shadow_verify: 1\n", "shadow_verify"),
        ('keep_states: "no"\n', "keep_states"),
        ("keep_states: [true]\n", "keep_states"),
        ("shadow_verfy: true\n", "shadow_ver"),
    ],
)
def test_a_switch_that_cannot_be_honoured_is_told_in_one_line(
    tmp_path: Path, more: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SpecError, match=said):
        small(tmp_path, ARM, more=more)
    with pytest.raises(SystemExit) as end:
        main(["run", str(write_spec(tmp_path, ARM, more=more)), "--db", str(tmp_path / "x.duckdb")])
    assert end.value.code == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


def test_only_who_asks_for_the_shadow_gets_another_plan(tmp_path: Path) -> None:
    hashes = {
        more: [trial.hash for trial in small(tmp_path, ARM, more=more).plan().trials]
        for more in ("", "shadow_verify: false\n", "keep_states: false\n", SHADOW)
    }
    assert hashes[""] == hashes["shadow_verify: false\n"] == hashes["keep_states: false\n"] != hashes[SHADOW]


class Slow(Bubblewrap):
    """Copies only when it is let to, or not at all; counts the copies and sandboxes that are there at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.go = asyncio.Event()
        self.fault: Exception | None = None
        self.spoiled: Exception | None = None
        self.copies_now = self.most_copies = self.twins_now = self.most_twins = 0

    @asynccontextmanager
    async def copied(self, task: Task, sandbox: Sandbox, *, allow_host_network: bool = False) -> AsyncIterator[Any]:
        await self.go.wait()
        if self.fault is not None:
            raise self.fault
        async with super().copied(task, sandbox) as copy:
            self.copies_now += 1
            self.most_copies = max(self.most_copies, self.copies_now)
            try:
                yield Counted(self, copy)
            finally:
                self.copies_now -= 1


class Counted:
    def __init__(self, backend: Slow, copy: Copy) -> None:
        self.backend, self.copy = backend, copy

    @asynccontextmanager
    async def start(self) -> AsyncIterator[Sandbox]:
        if self.backend.spoiled is not None:
            raise self.backend.spoiled
        self.backend.twins_now += 1
        self.backend.most_twins = max(self.backend.most_twins, self.backend.twins_now)
        async with self.copy.start() as twin:
            yield twin
        self.backend.twins_now -= 1

    async def files(self, started: Sandbox) -> Any:
        return await self.copy.files(started)


class Lines:
    """Where the events go."""

    def note(self, line: bytes) -> None: ...

    async def durable(self, line: bytes) -> None: ...


REVIEWER: Any = SimpleNamespace(name="reviewer", lane=SimpleNamespace(name="reviewer-0"))


class Stand:
    """An attempt's shadow over a sandbox, without a trial around it."""

    def __init__(self, backend: Slow, sandbox: Sandbox, shadow: Shadow, book: TrialJournal, clock: Clock) -> None:
        self.backend, self.sandbox, self.shadow, self.book, self.clock = backend, sandbox, shadow, book, clock

    async def take(self) -> None:
        await self.shadow.take(REVIEWER, self.sandbox)

    def told(self, kind: str) -> list[dict[str, Any]]:
        return [dict(event) for event in self.book.events() if event["kind"] == kind]


@asynccontextmanager
async def stand(
    folder: Path, *, clock: Clock | None = None, test: str = "", pass_threshold: float = 1.0, **shadowing: Any
) -> AsyncIterator[Stand]:
    await bubblewrap()
    backend, task = Slow(), write_task(folder)
    (task.path / "tests" / "test.sh").write_text(f"#!/bin/bash\n{test or 'echo 1 >/logs/verifier/reward.txt'}\n")
    clock = clock or VirtualClock(EPOCH)
    book = TrialJournal(Lines(), "t", 1)
    shadow = Shadow(
        Shadowing(**{"verify": True, "states": StateFolder(folder / "x.duckdb"), **shadowing}),
        backend,
        task,
        book,
        clock,
        pass_threshold=pass_threshold,
        stands_still=isinstance(clock, VirtualClock),
        allow_host_network=False,
    )
    async with backend.start(task) as sandbox:
        yield Stand(backend, sandbox, shadow, book, clock)


async def test_on_the_machines_clock_the_wait_is_told_and_deadlines_are_put_off_by_it(tmp_path: Path) -> None:
    clock = WallClock()
    async with stand(tmp_path, clock=clock) as at, at.shadow.open():
        deadline = clock.now() + timedelta(seconds=0.4)
        asyncio.get_running_loop().call_later(0.5, at.backend.go.set)
        async with clock.deadline(deadline):
            await at.take()
        assert clock.now() > deadline
        assert not clock.past(deadline)
        (span,) = at.told("span")
        assert (span["span_kind"], span["lane"], span["name"]) == ("wait", "reviewer-0", "shadow")
    (copied,) = at.told("review_copied")
    assert copied["seconds"] >= 0.5
    (truth,) = at.told("review_truth")
    assert (truth["reward"], truth["passed"], truth["unscored_reason"]) == (1.0, True, None)


@pytest.mark.parametrize(("reward", "passed"), [("0.49", False), ("0.5", True), ("1", True)])
async def test_the_trials_own_threshold_decides_of_the_truth(tmp_path: Path, reward: str, passed: bool) -> None:
    test = f"echo {reward} >/logs/verifier/reward.txt"
    async with stand(tmp_path, test=test, pass_threshold=0.5, states=None) as at, at.shadow.open():
        at.backend.go.set()
        await at.take()
    (truth,) = at.told("review_truth")
    assert (truth["reward"], truth["passed"], at.told("state_kept")) == (float(reward), passed, [])


async def test_on_a_virtual_clock_it_takes_no_time_and_nobody_else_goes_on_meanwhile(tmp_path: Path) -> None:
    clock = VirtualClock(EPOCH)
    async with stand(tmp_path, clock=clock) as at, at.shadow.open():
        at.backend.go.set()
        woken = []

        async def other() -> None:
            async with clock.lane("other"):
                await clock.sleep(5)
                woken.append(clock.now())

        clock.expect(2)
        sleeping = asyncio.create_task(other())
        async with clock.lane("graph"):
            await at.take()
            assert (clock.now(), woken) == (EPOCH, [])
            await clock.sleep(1)
        await sleeping
        assert woken == [EPOCH + timedelta(seconds=5)]
        assert at.told("span") == []


async def test_a_sandbox_that_cannot_be_copied_costs_no_more_than_the_truth(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shadow_module, "COPY_SECONDS", 0.3)
    async with stand(tmp_path) as at, at.shadow.open():
        await at.take()
        at.backend.go.set()
        at.backend.fault = SandboxBroken("the disk\nis full")
        await at.take()
        at.backend.fault = RuntimeError()
        await at.take()
        at.backend.fault = None
        monkeypatch.setattr(shadow_module, "COPY_SECONDS", 30)
        await at.take()
    assert [event["fault"] for event in at.told("review_copied")] == [
        "copying the sandbox took longer than 0.3 s",
        "the disk is full",
        "RuntimeError",
        None,
    ]
    assert [event["number"] for event in at.told("review_truth")] == [4]
    assert at.backend.copies_now == 0


@pytest.mark.parametrize(
    ("test", "reason"),
    [("true", "reward missing (tests/test.sh ended with 0)"), ("kill -9 $$", "was killed (SIGKILL)")],
)
async def test_a_copy_that_gets_no_score_says_why_and_is_kept(tmp_path: Path, test: str, reason: str) -> None:
    async with stand(tmp_path, test=test) as at, at.shadow.open():
        at.backend.go.set()
        await at.take()
    (truth,), (state,) = at.told("review_truth"), at.told("state_kept")
    assert (truth["reward"], truth["passed"]) == (None, None)
    assert reason in truth["unscored_reason"]
    assert StateFolder(tmp_path / "x.duckdb").archive(state["hash"]).stat().st_size == state["size"]


async def test_a_copy_that_does_not_start_and_a_folder_that_cannot_be_written_are_told(tmp_path: Path) -> None:
    (tmp_path / "x.duckdb.states").write_text("in the way")
    async with stand(tmp_path) as at, at.shadow.open():
        at.backend.go.set()
        await at.take()
        await asyncio.wait(at.shadow._tasks)
        at.backend.spoiled = SandboxBroken("no place for a sandbox")
        await at.take()
    kept, truths = at.told("state_kept"), at.told("review_truth")
    assert ["File exists" in kept[0]["fault"], kept[1]["fault"]] == [True, "no place for a sandbox"]
    assert [truth["unscored_reason"] for truth in truths] == [None, "no place for a sandbox"]


async def test_copies_and_sandboxes_beside_a_trial_are_bounded(tmp_path: Path) -> None:
    async with stand(tmp_path, test="sleep 0.3; echo 1 >/logs/verifier/reward.txt") as at, at.shadow.open():
        at.backend.go.set()
        for _ in range(5):
            await at.take()
    assert (at.backend.most_copies, at.backend.most_twins) == (shadow_module.MOST_COPIES, 1)
    assert sorted(event["number"] for event in at.told("review_truth")) == [1, 2, 3, 4, 5]
    assert len({event["hash"] for event in at.told("state_kept")}) == 1


@pytest.mark.parametrize("how", ["cancelled", "broken"])
async def test_what_ends_the_attempt_ends_its_shadow(tmp_path: Path, how: str) -> None:
    mark = f"8{abs(hash(str(tmp_path))) % 10**8}"

    async def attempt(at: Stand) -> None:
        async with at.shadow.open():
            await at.take()
            while not processes_with(mark):  # noqa: ASYNC110 (another process)
                await asyncio.sleep(0.02)
            if how == "broken":
                raise ZeroDivisionError
            await asyncio.sleep(60)

    async with stand(tmp_path, test=f"sleep {mark}") as at:
        at.backend.go.set()
        working = asyncio.create_task(attempt(at))
        while not processes_with(mark):
            await asyncio.sleep(0.02)
            assert how == "broken" or not working.done()
            if working.done():
                break
        if how == "cancelled":
            working.cancel()
        with pytest.raises((asyncio.CancelledError, ZeroDivisionError)):
            await working
        assert processes_with(mark) == []
        assert at.backend.copies_now == 0
        assert at.told("review_truth") == []


_HOLDS = """
import sys, time
from pathlib import Path
import experiments.store.state_folder as state_folder

def slow(files, layout, target):
    target.write(b"half an archive")
    target.flush()
    print("writing", flush=True)
    time.sleep(60)

state_folder.pack = slow
state_folder.StateFolder(Path(sys.argv[1])).keep(None, None)
"""


def test_what_a_killed_process_was_keeping_is_no_archive_and_is_swept(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path / "x.duckdb")
    command = [sys.executable, "-c", _HOLDS, str(tmp_path / "x.duckdb")]
    root = Path(__file__).parent.parent
    with subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "writing\n"
        assert folder.sweep() == 0, "it is still being written"
        assert len(os.listdir(folder.path)) == 1
        os.kill(writer.pid, signal.SIGKILL)
        writer.wait(timeout=30)
    assert list(folder.path.glob("*.tar.gz")) == []
    assert folder.sweep() == 1
    assert os.listdir(folder.path) == []
