"""Carries a task's Dockerfile out inside a fresh sandbox, after `planning` has refused what it can."""

import asyncio
import re
import shlex
import tempfile
import weakref
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import IO

from harbor_tasks.dockerfile import refused
from harbor_tasks.errors import SandboxBroken, TaskRefused
from harbor_tasks.sandbox.machine import Machine
from harbor_tasks.sandbox.plan import Copy, MakeFolder, Plan, Run, Step

_STEP_TIMEOUT_S = 60.0


Missing = Callable[[tuple[str, ...]], Awaitable[tuple[str, ...]]]


async def replay(plan: Plan, machine: Machine, missing: Missing) -> None:
    """Raises TaskRefused, naming the line: a version that is not inside, or a RUN that fails.

    `missing` names those requirements that are not inside.
    """
    absent = await missing(tuple(requirement for _, _, requirement in plan.pins)) if plan.pins else ()
    for line, package, requirement in plan.pins:
        if requirement in absent:
            raise refused(line, f"it installs {package}: the sandbox has another version or none")
    # A chain of folders is made by one process.
    folders: list[str] = [plan.workdir]
    for step in plan.steps:
        if isinstance(step, MakeFolder):
            folders.append(step.path)
            continue
        await _make(machine, folders)
        folders = []
        await _carry_out(step, machine, plan.build_timeout_s)
    if folders:
        await _make(machine, folders)


async def _make(machine: Machine, folders: list[str]) -> None:
    if unmade := [path for path in dict.fromkeys(folders) if path.count("/") > 1]:
        made = await machine.exec(f"mkdir -p -- {shlex.join(unmade)}", timeout_s=_STEP_TIMEOUT_S, cwd="/")
        if made.exit_code != 0:
            raise TaskRefused(f"the Dockerfile's WORKDIR cannot be made: {made.text.strip()[:200]}")


async def _carry_out(step: Step, machine: Machine, timeout_s: float) -> None:
    match step:
        case Run():
            # Docker runs these by sh, whose echo differs from bash's.
            done = await machine.exec(
                f"exec /bin/sh -c {shlex.quote(step.command)}", timeout_s=timeout_s, cwd=step.cwd, env=step.env
            )
            if done.timed_out:
                raise refused(step.line, f"RUN took longer than build_timeout_sec = {timeout_s:g}")
            if done.exit_code != 0:
                last = done.text.strip().splitlines()
                raise refused(
                    step.line,
                    f"RUN ended with {done.exit_code} here, without network or root's rights over the system"
                    + (f": {re.sub(r'[^ -~]', '?', last[-1])[:200]}" if last else ""),
                )
        case Copy():
            try:
                await _copy(step, machine)
            except (SandboxBroken, OSError) as error:
                raise refused(step.line, f"{error}") from error
        case MakeFolder():
            await _make(machine, [step.path])


async def _copy(step: Copy, machine: Machine) -> None:
    if step.extract:
        await machine.extract(step.sources[0], step.target)
    elif step.into:
        entries: list[tuple[Path, str]] = [
            (source, ".") if source.is_dir() else (source, source.name) for source in step.sources
        ]
        await machine.add(entries, step.target, mode=step.mode)
    else:
        await machine.put(step.sources[0], step.target, mode=step.mode)


class Built:
    """What Dockerfiles with RUN lines made, kept for this process: each later trial of the task unpacks it.

    It stays a closed tar, made inside one sandbox and unpacked inside the next; the host never looks into it. What
    cannot be packed whole (too large, or a file that its own maker may not read) is made anew each time.
    """

    def __init__(self) -> None:
        self._locks: dict[str, asyncio.Lock] = {}
        self._packed: dict[str, IO[bytes] | None] = {}

    async def build(self, key: str, plan: Plan, machine: Machine, missing: Missing) -> None:
        """Leaves the machine as `replay` does. `key` names everything that the outcome depends on."""
        if not any(isinstance(step, Run) for step in plan.steps):
            await replay(plan, machine, missing)
            return
        # Trials of one task that start together wait for the first: it is the same work.
        async with self._locks.setdefault(key, asyncio.Lock()):
            packed = self._packed.get(key)
            if packed is None:
                await replay(plan, machine, missing)
                if key not in self._packed:
                    self._packed[key] = await self._pack(plan, machine)
                return
        await machine.restore(packed)

    async def _pack(self, plan: Plan, machine: Machine) -> IO[bytes] | None:
        stream = tempfile.TemporaryFile()  # noqa: SIM115 (kept for as long as this object)
        weakref.finalize(self, stream.close)
        try:
            await machine.save(plan.folders, stream)
        except SandboxBroken:
            stream.close()
            return None
        return stream
