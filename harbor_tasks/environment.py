"""The read-only task environment: a Python with numpy that every sandbox finds first on its PATH.

It stands in a world-readable folder of its own and links into nobody's home, because a sandbox runs as an unused user.
Its name is the hash of what goes into it (environment.lock and the interpreter), so a changed lock builds a new one;
it is built aside and renamed when whole, so a half-built folder is never taken for one. `python -m
harbor_tasks.environment` builds it ahead of the first sandbox and is silent unless it fails.

environment.lock pins numpy for every supported Python by hash and names no index; it is made by
`uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header`.
"""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harbor_tasks.errors import SandboxError, SandboxMissing

BUILD_TIMEOUT_S = 600.0

_LOCK = Path(__file__).with_name("environment.lock")
_LAYOUT = "1"
"""Part of the folder's name: raise it when the steps below change."""
_VERSION = f"python{sys.version_info.major}.{sys.version_info.minor}"
_LEFT_OUT = {"site-packages", "test", "idlelib", "turtledemo", "ensurepip", "lib2to3"}
_LIBRARIES = "python|ssl|crypto|ffi|z|bz2|lzma|sqlite3|expat|ncurses|ncursesw|tinfo|tinfow|readline|uuid"
_LIBRARY = re.compile(rf"lib({_LIBRARIES})[0-9.]*\.so[0-9.]*")
_PROOF = """
import numpy, ssl, sqlite3, sys
outside = [line.split()[-1] for line in open("/proc/self/maps") if "libpython" in line and sys.argv[1] not in line]
assert numpy.arange(4).sum() == 6
assert not outside or sys.argv[2] == "linked", f"it needs {outside[0]}"
"""


def cache_folder() -> Path:
    """Where the machine's shared, rebuildable files stand: for root world-readable and outside every home."""
    if os.geteuid() == 0:
        return Path("/var/cache/fullchain")
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(base) / "fullchain"


def shared_folder(name: str) -> Path:
    """A folder in the cache folder, made when absent and, for root, traversable by every user."""
    folder = cache_folder() / name
    folder.mkdir(parents=True, exist_ok=True)
    if os.geteuid() == 0:
        for made in (cache_folder(), folder):
            made.chmod(0o755)
    return folder


def task_environment() -> Path:
    """The folder, built on first use: bin/python3, bin/python, numpy. Blocks while it or another process builds.

    Raises SandboxMissing with the last line of what failed.
    """
    folder = cache_folder() / "environments"
    whole = folder / _name()
    if whole.is_dir():
        return whole
    try:
        shared_folder("environments")
        with _exclusive(folder / ".lock"):
            for leftover in folder.glob(".building-*"):
                _remove(leftover)
            if not whole.is_dir():
                _build(folder, whole)
    except OSError as error:
        raise SandboxMissing(f"the task environment cannot be built in {folder}: {error}") from error
    return whole


def _name() -> str:
    """Changes with the lock, the interpreter (its build included) and the layout."""
    executable = _base_executable()
    stat = executable.stat()
    parts = (_LAYOUT, sys.version, str(executable), str(stat.st_size), str(stat.st_mtime_ns), os.uname().machine)
    digest = hashlib.sha256("\0".join(parts).encode() + b"\0" + _LOCK.read_bytes())
    return f"{_VERSION}-{digest.hexdigest()[:16]}"


def _build(folder: Path, whole: Path) -> None:
    building = Path(tempfile.mkdtemp(prefix=".building-", dir=folder))
    try:
        # What needs the network goes first: without it the rest would be for nothing.
        packages = building / "lib" / _VERSION / "site-packages"
        packages.mkdir(parents=True)
        _install(packages, building)
        executable = _base_executable()
        linked = executable.is_relative_to("/usr")
        if linked:
            # Every sandbox sees the host's /usr: a virtual environment over that interpreter is enough.
            (building / "bin").mkdir()
            (building / "bin" / _VERSION).symlink_to(executable)
            (building / "pyvenv.cfg").write_text(f"home = {executable.parent}\ninclude-system-site-packages = false\n")
        else:
            _copy_interpreter(executable, building)
        for name in ("python3", "python"):
            (building / "bin" / name).symlink_to(_VERSION)
        python = str(building / "bin" / "python3")
        # Without bytecode a read-only environment compiles its imports anew in every process.
        _run([python, "-I", "-m", "compileall", "-q", str(building / "lib")])
        _run([python, "-I", "-c", _PROOF, str(building), "linked" if linked else "copied"])
        _run(["chmod", "-R", "a+rX,a-w", str(building)])
        building.rename(whole)
    except BaseException:
        _remove(building)
        raise


def _base_executable() -> Path:
    base: str = getattr(sys, "_base_executable", "") or sys.executable
    return Path(base).resolve()


def _copy_interpreter(executable: Path, target: Path) -> None:
    """bin/pythonX.Y, the standard library and the shared libraries beside it: what runs after a move elsewhere."""
    base = Path(sys.base_prefix).resolve()
    (target / "bin").mkdir()
    shutil.copy2(executable, target / "bin" / _VERSION)

    def left_out(directory: str, names: list[str]) -> set[str]:
        top = Path(directory) == base / "lib" / _VERSION
        return {name for name in names if (top and name in _LEFT_OUT) or name.startswith("config-3")}

    library = Path("lib", _VERSION)
    shutil.copytree(base / library, target / library, symlinks=True, ignore=left_out, dirs_exist_ok=True)
    for shared in (base / "lib").glob("lib*.so*"):
        if _LIBRARY.fullmatch(shared.name):
            shutil.copy2(shared, target / "lib" / shared.name, follow_symlinks=False)
    if sysconfig.get_config_var("Py_ENABLE_SHARED"):
        _make_relocatable(target / "bin" / _VERSION, base / "lib")


def _make_relocatable(executable: Path, library_folder: Path) -> None:
    """Rewrites an absolute library path inside the copied executable to one relative to itself, in place.

    LD_LIBRARY_PATH would do the same, but a task that clears its environment would lose its Python.
    """
    data = executable.read_bytes()
    relative = b"$ORIGIN/../lib"
    for old in {os.fsencode(library_folder), os.fsencode(f"{sys.base_prefix}/lib")}:
        if len(old) >= len(relative):
            data = data.replace(b"\0" + old + b"\0", b"\0" + relative.ljust(len(old), b"\0") + b"\0")
    executable.write_bytes(data)


def _install(packages: Path, building: Path) -> None:
    python = sys.executable
    try:
        # Asked as it will be used: a pip that we can import by PYTHONPATH is none without it.
        _run([python, "-m", "pip", "--version"])
    except SandboxMissing:
        _run([str(_base_executable()), "-m", "venv", str(building / "pip")])
        python = str(building / "pip" / "bin" / "python")
    # fmt: off
    _run([
        python, "-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check", "--no-deps",
        "--require-hashes", "--only-binary", ":all:", "--target", str(packages), "--requirement", str(_LOCK),
    ])
    # fmt: on
    shutil.rmtree(building / "pip", ignore_errors=True)


def _run(command: list[str]) -> None:
    # The user's pip configuration (index, proxy, certificates) is wanted, these redirections are not.
    unwanted = {"PIP_USER", "PIP_TARGET", "PIP_PREFIX", "PIP_REQUIRE_VIRTUALENV", "PYTHONPATH", "PYTHONHOME"}
    env = {key: value for key, value in os.environ.items() if key not in unwanted}
    try:
        done = subprocess.run(
            command, env=env, capture_output=True, text=True, errors="replace", timeout=BUILD_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        reason = f"no end after {BUILD_TIMEOUT_S:.0f} s"
    else:
        if done.returncode == 0:
            return
        lines = (done.stderr.strip() or done.stdout.strip()).splitlines()
        reason = lines[-1] if lines else f"exit code {done.returncode}"
    raise SandboxMissing(f"the task environment cannot be built: {' '.join(command[:4])}: {reason}")


@contextmanager
def _exclusive(path: Path) -> Iterator[None]:
    """One builder at a time on this machine; the kernel frees the lock of one that died."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        deadline = time.monotonic() + BUILD_TIMEOUT_S
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise SandboxMissing(f"another process has held {path} for {BUILD_TIMEOUT_S:.0f} s") from None
                time.sleep(0.1)
        yield
    finally:
        os.close(descriptor)


def _remove(path: Path) -> None:
    subprocess.run(["chmod", "-R", "u+w", str(path)], capture_output=True, timeout=60, check=False)
    shutil.rmtree(path, ignore_errors=True)


if __name__ == "__main__":
    try:
        task_environment()
    except SandboxError as error:
        raise SystemExit(str(error)) from None
