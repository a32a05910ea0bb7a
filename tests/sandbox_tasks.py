"""Task directories that the sandbox tests write, and the sandbox they run in."""

import os
from pathlib import Path

import pytest

from harbor_tasks.errors import SandboxMissing
from harbor_tasks.format import Task, load_task
from harbor_tasks.sandbox.binary import packaged_bwrap, system_bwrap
from harbor_tasks.sandbox.bubblewrap import Bubblewrap, Limits

BINARIES = [
    pytest.param(name, id=name, marks=pytest.mark.skipif(path is None, reason=f"no bwrap 0.8 or newer: {name}"))
    for name, path in (("system", system_bwrap()), ("package", packaged_bwrap()))
]

_BACKENDS: dict[str, Bubblewrap] = {}


async def bubblewrap(binary: str = "system", limits: Limits | None = None) -> Bubblewrap:
    """A backend that starts here; skips the test where none can."""
    path = system_bwrap() if binary == "system" else packaged_bwrap()
    key = f"{binary} {limits}"
    if key not in _BACKENDS:
        backend = Bubblewrap(binary=path, limits=limits)
        try:
            await backend.probe()
        except SandboxMissing as missing:
            pytest.skip(str(missing))
        _BACKENDS[key] = backend
    return _BACKENDS[key]


def write_task(
    folder: Path, dockerfile: str = "FROM scratch\n", *, toml: str = "", files: dict[str, str] | None = None
) -> Task:
    """A valid task named as the folder; `files` are relative to its environment/."""
    task = folder / "task-under-test"
    for name in ("environment", "tests"):
        (task / name).mkdir(parents=True)
    (task / "task.toml").write_text(toml or '[environment]\nnetwork_mode = "no-network"\n')
    (task / "instruction.md").write_text("Do it.\n")
    (task / "tests" / "test.sh").write_text("#!/bin/bash\necho 1 > /logs/verifier/reward.txt\n")
    (task / "environment" / "Dockerfile").write_text(dockerfile)
    for name, text in (files or {}).items():
        path = task / "environment" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return load_task(task)


def processes_with(text: str) -> list[int]:
    """Those on this machine whose command line holds `text`."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                line = Path("/proc", entry, "cmdline").read_bytes()
            except OSError:
                continue
            if text.encode() in line:
                found.append(int(entry))
    return found
