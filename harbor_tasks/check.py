"""Does a task measure anything? Its solution must pass, doing nothing must fail, each wrong solution must fail."""

import asyncio
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from harbor_tasks.errors import SandboxBroken, SandboxError, TaskRefused
from harbor_tasks.format import Task, expand
from harbor_tasks.sandbox import Backend, Output, Sandbox
from harbor_tasks.verifier import verify

PASS_REWARD = 1.0
SOLVE_TIMEOUT_S = 1800.0
"""For a task whose `[agent]` sets no limit."""

Expected = Literal["pass", "fail"]


@dataclass(frozen=True, slots=True)
class Leg:
    """One run of the verifier. `reason` says why it was unscored or not as expected, `seconds` is wall time."""

    name: str
    expected: Expected
    reward: float | None
    reason: str | None
    seconds: float
    ok: bool


@dataclass(frozen=True, slots=True)
class CheckResult:
    task: str
    legs: tuple[Leg, ...]

    @property
    def ok(self) -> bool:
        return all(leg.ok for leg in self.legs)


async def check(task: Task, backend: Backend, *, concurrency: int = 2) -> CheckResult:
    """Runs every leg in a fresh sandbox, at most `concurrency` at once (one at a time in the host backend).

    Raises TaskRefused when the task asks for what this project or this sandbox cannot do. A leg whose sandbox breaks
    or that comes out unscored has not shown what it should: it is not ok, with its reason.
    """
    if unsupported := task.unsupported():
        raise TaskRefused(f"task {task.name}: not supported: {'; '.join(unsupported)}")
    if missing := await backend.missing(task.requires):
        raise TaskRefused(f"task {task.name}: the sandbox {backend.name} lacks {', '.join(missing)}")
    legs: list[tuple[str, Expected, Path | None]] = [("solution", "pass", task.solution), ("nothing", "fail", None)]
    legs += [(f"wrong/{script.stem}", "fail", script) for script in task.wrong]
    room = asyncio.Semaphore(1 if backend.name == "host" else concurrency)

    async def run(name: str, expected: Expected, source: Path | None) -> Leg | TaskRefused:
        async with room:
            try:
                return await _leg(task, backend, name, expected, source)
            except TaskRefused as refused:
                return refused

    async with asyncio.TaskGroup() as group:
        running = [group.create_task(run(*leg)) for leg in legs]
    results: list[Leg] = []
    for done in running:
        result = done.result()
        if isinstance(result, TaskRefused):
            raise result
        results.append(result)
    return CheckResult(task.name, tuple(results))


async def solve(task: Task, sandbox: Sandbox, source: Path | None = None) -> Output:
    """Uploads `source` (default: solution/) to /solution and runs /solution/solve.sh as Harbor's oracle does.

    `source` may be one script: it becomes /solution/solve.sh. Returns what the script printed; raises SandboxBroken.
    """
    source = source or task.solution
    if source is None:
        raise TaskRefused(f"task {task.name}: it has no solution/solve.sh")
    env = expand(task.config.solution.env, table="solution")
    with tempfile.TemporaryDirectory() as folder:
        await asyncio.to_thread(_solution, source, Path(folder))
        await sandbox.upload(Path(folder), "/solution")
    return await sandbox.exec(
        "/solution/solve.sh",
        timeout_s=task.config.agent.timeout_sec or SOLVE_TIMEOUT_S,
        cwd=sandbox.workdir,
        env=env,
        user=task.config.agent.user,
    )


def _solution(source: Path, folder: Path) -> None:
    """A copy that anyone may enter and whose script anyone may run, whoever the agent's user is."""
    folder.chmod(0o755)
    script = folder / "solve.sh"
    if source.is_dir():
        shutil.copytree(source, folder, symlinks=True, dirs_exist_ok=True)
        folder.chmod(0o755)
    else:
        shutil.copy(source, script)
    if script.is_file():
        script.chmod(0o755)


async def _leg(task: Task, backend: Backend, name: str, expected: Expected, source: Path | None) -> Leg:
    started = time.monotonic()

    def leg(reward: float | None, reason: str | None) -> Leg:
        ok = reward is not None and (reward >= PASS_REWARD) == (expected == "pass")
        return Leg(name, expected, reward, None if ok else reason, time.monotonic() - started, ok)

    if name == "solution" and source is None:
        return leg(None, "solution/solve.sh is missing")
    try:
        async with backend.start(task) as sandbox:
            played = None if source is None else await solve(task, sandbox, source)
            if played is not None and played.timed_out:
                return leg(None, f"its script timed out after {played.seconds:.0f} s")
            verdict = await verify(task, sandbox)
    except SandboxError as error:
        kind = "sandbox broke" if isinstance(error, SandboxBroken) else "no sandbox"
        return leg(None, f"{kind}: {error}")
    if verdict.reward is None:
        return leg(None, verdict.unscored_reason)
    ended = "" if played is None or played.exit_code == 0 else f"; its script ended with {played.exit_code}"
    printed = verdict.output.strip().splitlines()
    last = f": {printed[-1][:200]}" if printed else ""
    return leg(verdict.reward, f"reward {verdict.reward:g}, expected to {expected}{ended}{last}")
