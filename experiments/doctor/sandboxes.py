"""Which sandboxes can start here, each tried out, and which one `sandbox: auto` would take."""

import asyncio
from collections.abc import AsyncIterator

from experiments.doctor import Line
from harbor_tasks.errors import SandboxBroken, SandboxMissing
from harbor_tasks.sandbox.backends import BACKENDS

TIMEOUT_S = 60.0
"""For one: an environment that has to be built first takes most of it."""


async def sandboxes() -> AsyncIterator[Line]:
    start: list[str] = []
    for name, make in BACKENDS.items():
        if name == "host":
            continue
        backend = make()
        try:
            async with asyncio.timeout(TIMEOUT_S):
                await backend.probe()
        except TimeoutError:
            yield Line("note", name, f"did not start within {TIMEOUT_S:.0f} s: stop what keeps this machine busy")
        except (SandboxMissing, SandboxBroken) as error:
            yield Line("note", name, str(error).removeprefix(f"{name}: "))
        else:
            start.append(name)
            yield Line("ok", name, backend.described)
    if not start:
        yield Line("off", "sandbox", "none with isolation can start: mend Docker or bubblewrap, see the lines above")
    elif "docker" in start:
        other = ", bubblewrap where a task cannot start there" if "bubblewrap" in start else ""
        yield Line("ok", "sandbox", f"`sandbox: auto` takes docker{other}")
    else:
        yield Line("ok", "sandbox", f"`sandbox: auto` takes {start[0]}")
