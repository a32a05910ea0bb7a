"""Finds and ends the processes that host mode started, by a mark in their environment, their session or their birth."""

import asyncio
import os
import signal
import time
from contextlib import suppress
from pathlib import Path

from harbor_tasks.errors import SandboxBroken

MARK = "FULLCHAIN_SESSION"
KILL_TIMEOUT_S = 20.0


async def kill_marked(mark: str, sessions: set[int]) -> None:
    """Ends every process with the mark in its environment, of these sessions, or born of one of them."""
    deadline = time.monotonic() + KILL_TIMEOUT_S
    known = set(sessions)
    while found := await asyncio.to_thread(marked, mark, known):
        known |= found
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            raise SandboxBroken(f"processes {sorted(found)} do not end")
        await asyncio.sleep(0.01)


def marked(mark: str, sessions: set[int]) -> set[int]:
    needle = f"{MARK}={mark}".encode()
    parents: dict[int, int] = {}
    found = set[int]()
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            # The name may hold blanks and brackets: the numbers begin after the last bracket.
            fields = Path("/proc", entry, "stat").read_text(errors="replace").rpartition(")")[2].split()
            environ = Path("/proc", entry, "environ").read_bytes()
        except OSError:
            continue
        pid, state, parent, session = int(entry), fields[0], int(fields[1]), int(fields[3])
        if state in "ZX":
            continue
        parents[pid] = parent
        if needle in environ or session in sessions:
            found.add(pid)
    grown = True
    while grown:
        children = {pid for pid, parent in parents.items() if parent in found and pid not in found}
        found |= children
        grown = bool(children)
    found.discard(os.getpid())
    return found
