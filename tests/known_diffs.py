"""The diffs that the bundled tasks' scripts really leave, made in a sandbox.

Run as a module it writes what simulated reviewers recognise them by: `python -m tests.known_diffs`.
"""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

import orjson

import agents.simulated
from agents.simulated.recognition import apart, changed_lines, digest
from experiments.changes import Changes
from harbor_tasks.check import solve
from harbor_tasks.format import Task, bundled_tasks, load_tasks
from harbor_tasks.sandbox import Backend
from harbor_tasks.sandbox.bubblewrap import Bubblewrap

TASKS = load_tasks(bundled_tasks())[0]
LEARNED = Path(agents.simulated.__file__ or "").parent / "diffs"


def scripts_of(task: Task) -> list[Path]:
    """The right one first."""
    assert task.solution is not None
    return [task.solution / "solve.sh", *task.wrong]


async def diff_after(task: Task, scripts: Sequence[Path], backend: Backend) -> str:
    """What a reviewer reads after these scripts have run one after the other."""
    async with backend.start(task) as sandbox, Changes.since_now(sandbox) as changes:
        for script in scripts:
            done = await solve(task, sandbox, script)
            assert done.exit_code == 0, done.text
        return await changes.diff()


def learned(diffs: Mapping[Path, Sequence[str]]) -> bytes:
    """What is kept of a task's diffs, each made at least twice: hashes and times that differ tell nothing."""
    stable = [frozenset.intersection(*map(changed_lines, made)) for made in diffs.values()]
    marks = apart(stable)
    lines = sorted(frozenset[str]().union(*marks))
    scripts = {
        digest(script.read_bytes()): [place for place, line in enumerate(lines) if line in kept]
        for script, kept in zip(diffs, marks, strict=True)
    }
    return orjson.dumps({"lines": lines, "scripts": scripts}) + b"\n"


async def learn() -> None:
    backend = Bubblewrap()
    await backend.probe()
    for task in TASKS:
        diffs = {script: [await diff_after(task, [script], backend) for _ in range(2)] for script in scripts_of(task)}
        (LEARNED / f"{task.name}.json").write_bytes(learned(diffs))


if __name__ == "__main__":
    asyncio.run(learn())
