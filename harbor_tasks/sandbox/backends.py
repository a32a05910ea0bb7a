"""Chooses a backend by name, or the first that can start on this machine."""

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence

from harbor_tasks.errors import SandboxMissing
from harbor_tasks.format import Task
from harbor_tasks.sandbox import Backend
from harbor_tasks.sandbox.bubblewrap import Bubblewrap
from harbor_tasks.sandbox.docker.backend import Docker
from harbor_tasks.sandbox.host import Host

BACKENDS: Mapping[str, Callable[[], Backend]] = {"docker": Docker, "bubblewrap": Bubblewrap, "host": Host}
"""In the order in which "auto" tries them."""

NAMES = ("auto", *BACKENDS)

_AT_ONCE = 4


async def choose(name: str, tasks: Sequence[Task] = ()) -> Backend:
    """A backend that has proved that it can start here.

    "auto" takes Docker for these tasks when an engine answers and each of them has started in it; without a task there
    is no image that could be tried. Where some cannot, it goes on to bubblewrap and says so in `warning`; where that
    cannot start either, Docker runs those that it can.

    Raises SandboxMissing: one line that says what to install or set; for "auto" what each backend lacks.
    """
    if name not in NAMES:
        raise SandboxMissing(f"sandbox {name!r}: expected one of {', '.join(NAMES)}")
    if name != "auto":
        backend = BACKENDS[name]()
        await backend.probe()
        return backend
    lacking: list[str] = []
    docker, whys = await _docker(tasks, lacking)
    why = next((why for why in whys if why is not None), None)
    if docker is not None and why is None:
        return docker
    for candidate in ("bubblewrap", "host"):
        backend = BACKENDS[candidate]()
        try:
            await backend.probe()
        except SandboxMissing as error:
            lacking.append(str(error))
            if docker is not None and None in whys:
                return docker
            continue
        if backend.isolated:
            said = f"not {docker.described}: {why}" if docker is not None else f"not Docker: {'; '.join(lacking)}"
            asked_for = os.environ.get("DOCKER_HOST") or os.environ.get("DOCKER_CONTEXT")
            if docker is not None or (lacking and asked_for):
                backend.warning = f"bubblewrap is taken, {said}"
        elif backend.warning:
            backend.warning += f" Taken because {'; '.join(lacking)}"
        return backend
    raise SandboxMissing("; ".join(lacking))


async def _docker(tasks: Sequence[Task], lacking: list[str]) -> tuple[Docker | None, list[str | None]]:
    """Docker where an engine answers, and for each of these tasks why it cannot be started there."""
    possible = [task for task in tasks if not task.unsupported()]
    if not possible:
        return None, []
    docker = Docker()
    try:
        await docker.probe()
    except SandboxMissing as error:
        lacking.append(str(error))
        return None, []
    room = asyncio.Semaphore(_AT_ONCE)

    async def lacks(task: Task) -> str | None:
        async with room:
            return await docker.lacks(task)

    async with asyncio.TaskGroup() as group:
        asked = [group.create_task(lacks(task)) for task in possible]
    whys = [each.result() for each in asked]
    if None not in whys:
        lacking.append(f"{docker.described}: {whys[0]}")
    return docker, whys
