"""Verifies a state that was kept, in a fresh sandbox of its task."""

import asyncio
import re
from pathlib import Path

from harbor_tasks.errors import StateUnfit
from harbor_tasks.format import Task
from harbor_tasks.sandbox import Backend
from harbor_tasks.sandbox.state_archive import FORMAT, Unpacked
from harbor_tasks.verifier import Verdict, verify

_HASH = re.compile(r"[0-9a-f]{64}")


async def verify_state(task: Task, archive: Path, backend: Backend, *, allow_host_network: bool = False) -> Verdict:
    """What the task's tests say of a state today. Its files are those of the state, all of one moment; processes are
    none. An archive that bears a hash as its name must have that content.

    Raises StateUnfit for what is no whole archive or was taken in another kind of sandbox, OSError when it cannot be
    read, and what `Backend.start` and `verify` raise.
    """
    opening = asyncio.ensure_future(asyncio.to_thread(Unpacked, archive))
    try:
        state = await asyncio.shield(opening)
    except asyncio.CancelledError:
        # A thread cannot be cancelled: what it opened is closed.
        opening.add_done_callback(_close)
        raise
    try:
        named = archive.name.removesuffix(f".{FORMAT}")
        if _HASH.fullmatch(named) and named != state.hash:
            raise StateUnfit(f"{archive}: it was changed: its content has the hash {state.hash}")
        async with backend.restored(task, state.files, state.layout, allow_host_network=allow_host_network) as sandbox:
            return await verify(task, sandbox)
    finally:
        state.close()


def _close(opening: "asyncio.Future[Unpacked]") -> None:
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()
