"""Task directories that the sandbox tests write, and the sandbox they run in."""

import functools
import os
import subprocess
from pathlib import Path
from typing import Any

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


@functools.cache
def machine_starts(path: Path) -> bool:
    """Whether this machine lets a bare bwrap start, of an unused user where we are root, with no code of ours around
    it: there a sandbox that does not start is a fault, and no reason to skip a test."""
    drop: dict[str, Any] = {"user": 65_534, "group": 65_534, "extra_groups": []} if os.geteuid() == 0 else {}
    words = ["--unshare-all", "--unshare-user", "--ro-bind", "/usr", "/usr", "--proc", "/proc", "--dev", "/dev"]
    for name in ("bin", "lib", "lib64"):
        link = Path("/", name)
        words += ["--symlink", f"usr/{name}", f"/{name}"] if link.is_symlink() else []
        words += ["--ro-bind", f"/{name}", f"/{name}"] if link.is_dir() and not link.is_symlink() else []
    try:
        done = subprocess.run([path, *words, "--", "/usr/bin/true"], capture_output=True, cwd="/", timeout=20, **drop)
    except (OSError, subprocess.SubprocessError):
        return False
    return done.returncode == 0


_FOUND = system_bwrap() or packaged_bwrap()
needs_isolation = pytest.mark.skipif(
    _FOUND is None or not machine_starts(_FOUND),
    reason="no sandbox with isolation starts on this machine, and the trials of a test share it with other tests",
)
"""For tests whose runs choose their sandbox: host mode would make their trials wait for each other, or refuse them."""


async def bubblewrap(binary: str = "system", limits: Limits | None = None) -> Bubblewrap:
    """A backend that starts here; skips the test where this machine lets none start."""
    path = system_bwrap() if binary == "system" else packaged_bwrap()
    key = f"{binary} {limits}"
    if key not in _BACKENDS:
        backend = Bubblewrap(binary=path, limits=limits)
        try:
            await backend.probe()
        except SandboxMissing as missing:
            found = path or packaged_bwrap()
            if found is not None and machine_starts(found):
                pytest.fail(f"a bare {found} starts on this machine, the sandbox does not: {missing}")
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
