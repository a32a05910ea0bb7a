"""Chooses a backend by name, or the first that can start on this machine."""

from collections.abc import Callable, Mapping

from harbor_tasks.errors import SandboxMissing
from harbor_tasks.sandbox import Backend
from harbor_tasks.sandbox.bubblewrap import Bubblewrap
from harbor_tasks.sandbox.host import Host

BACKENDS: Mapping[str, Callable[[], Backend]] = {"bubblewrap": Bubblewrap, "host": Host}
"""In the order in which "auto" tries them."""

NAMES = ("auto", *BACKENDS)


async def choose(name: str) -> Backend:
    """A backend that has proved that it can start here.

    Raises SandboxMissing: one line that says what to install or set; for "auto" what each backend lacks.
    """
    if name not in NAMES:
        raise SandboxMissing(f"sandbox {name!r}: expected one of {', '.join(NAMES)}")
    lacking = []
    for candidate in BACKENDS if name == "auto" else (name,):
        backend = BACKENDS[candidate]()
        try:
            await backend.probe()
        except SandboxMissing as error:
            lacking.append(str(error))
        else:
            if lacking and backend.warning:
                backend.warning += f" Taken because {'; '.join(lacking)}"
            return backend
    raise SandboxMissing("; ".join(lacking))
