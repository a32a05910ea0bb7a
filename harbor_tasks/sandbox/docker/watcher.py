"""Holds a container to its storage limit where the engine has no quota: looks at what it has written, and ends it.

It is looked at the sooner, the less room is left, and the more seldom, the longer looking takes: at most one part in
fifty of the time goes into it. An excess is noticed within a second where files are few and grow by less than
`FASTEST_MB_S`; within `SELDOM_S` at the latest, plus the time to look. Until then more than the limit may be written.
"""

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from harbor_tasks.errors import SandboxBroken, StorageExceeded
from harbor_tasks.sandbox.docker.engine import Engine

if TYPE_CHECKING:
    from docker import APIClient

WATCHED = "storage limit watched, not enforced (volumes, and deleted files held open, are not counted)"
"""The note that is kept with results."""
SOON_S, LATE_S, SELDOM_S = 1.0, 10.0, 30.0
FASTEST_MB_S = 500
SHARE = 50
BLIND = 3
"""Looks that told no size, one after the other, before it is taken to be hidden on purpose: folders that are nested
deeper than the engine can follow do that."""
_COUNT_TIMEOUT_S = 60.0
_MB = 1024 * 1024


class Watched(Protocol):
    """`container` is its id in the engine. `fault` is what everything that asks for it raises from then on."""

    container: str
    fault: SandboxBroken | None


@dataclass(frozen=True, slots=True)
class _Layer:
    """What the container has written. `size` in bytes, None where the engine cannot tell it; `folder` is where it lies
    on the engine's machine."""

    size: int | None
    folder: str | None


@asynccontextmanager
async def watched(engine: Engine, machine: Watched, limit_mb: int | None) -> AsyncIterator[None]:
    """Ends the container when it has written more than that; None: nothing is watched.

    What then fails inside raises StorageExceeded, which says so, in place of whatever it met with.
    """
    if limit_mb is None:
        yield
        return
    watching = asyncio.create_task(_watch(engine, machine, limit_mb))
    try:
        yield
    except SandboxBroken as error:
        if machine.fault is not None and error is not machine.fault:
            raise machine.fault from error
        raise
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


async def _watch(engine: Engine, machine: Watched, limit_mb: int) -> None:
    blind = 0
    while True:
        began = time.monotonic()
        try:
            layer = await engine.call(lambda api: _look(api, machine.container))
        except SandboxBroken:
            layer = _Layer(None, None)
        if layer is None:
            return
        size = layer.size
        if size is None or size > limit_mb * _MB:
            # The engine counts the length of files. One with holes takes less.
            counted = await _counted(engine, layer.folder)
            size = size if counted is None else counted
        blind = 0 if size is not None else blind + 1
        if size is not None and size > limit_mb * _MB:
            await _end(engine, machine, f"the task's files passed {limit_mb} MB")
            return
        if blind >= BLIND and await _answers(engine, machine):
            await _end(engine, machine, f"whether the task's files passed {limit_mb} MB cannot be told")
            return
        room_mb = limit_mb - (size or 0) / _MB
        took_s = time.monotonic() - began
        await asyncio.sleep(pause_s(room_mb, took_s) if blind == 0 else SOON_S)


async def _answers(engine: Engine, machine: Watched) -> bool:
    """Whether the engine tells anything of it: an engine that is gone is no agent's doing."""
    try:
        await engine.call(lambda api: api.inspect_container(machine.container))
    except SandboxBroken:
        return False
    return True


def pause_s(room_mb: float, took_s: float) -> float:
    """How long until the next look, with so much room left and after a look that took so long."""
    soon = min(max(room_mb / FASTEST_MB_S, SOON_S), LATE_S)
    return min(max(soon, took_s * SHARE), SELDOM_S)


def _look(api: "APIClient", container: str) -> _Layer | None:
    """None when there is no such container any more. Blocks."""
    from docker.errors import NotFound

    try:
        # The SDK's own inspect_container cannot ask for the size.
        answer = api._get(api._url("/containers/{0}/json", container), params={"size": "1"})
        state: dict[str, Any] = api._result(answer, json=True)
    except NotFound:
        return None
    size = state.get("SizeRw")
    data = (state.get("GraphDriver") or {}).get("Data") or {}
    return _Layer(size if isinstance(size, int) and size >= 0 else None, data.get("UpperDir"))


async def _counted(engine: Engine, folder: str | None) -> int | None:
    """The bytes that a layer on this machine takes on its disk; None where it cannot be read."""
    if not folder or not engine.place.url.startswith("unix://") or not os.access(folder, os.R_OK | os.X_OK):
        return None
    try:
        du = await asyncio.create_subprocess_exec(
            "du", "-sx", "--block-size=1", "--", folder,
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
    except OSError:
        return None
    try:
        async with asyncio.timeout(_COUNT_TIMEOUT_S):
            said, _ = await du.communicate()
        # What is removed while it is counted makes it end with 1, and the rest is counted all the same.
        return int(said.split()[0])
    except (TimeoutError, ValueError, IndexError):
        return None
    finally:
        if du.returncode is None:
            du.kill()
            await du.wait()


async def _end(engine: Engine, machine: Watched, what: str) -> None:
    machine.fault = StorageExceeded(f"storage limit: {what} (environment.storage_mb)")
    # It may have ended by itself.
    with contextlib.suppress(SandboxBroken):
        await engine.call(lambda api: api.kill(machine.container, "KILL"))
