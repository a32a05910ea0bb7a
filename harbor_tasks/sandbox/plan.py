"""What a task asks of its sandbox, in steps that a sandbox can carry out, and what every sandbox offers by itself."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

DEFAULT_WORKDIR = "/app"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
BASE_ENV: Mapping[str, str] = {
    "PATH": PATH,
    "HOME": "/root",
    "USER": "root",
    "LOGNAME": "root",
    "SHELL": "/bin/bash",
    "LANG": "C.UTF-8",
    "TERM": "dumb",
    "TZ": "UTC",
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONHASHSEED": "0",
}
OF_ROOT = ("HOME", "USER", "LOGNAME")
"""Not for another user."""
ROOT = (None, "root", "0")
"""How a task may name the one user of a sandbox that has no other."""
FOLDERS = ("app", "logs", "tests", "solution", "root", "tmp", "home", "mnt", "opt", "srv", "var")
"""At the root of every sandbox, writable."""


@dataclass(frozen=True, slots=True)
class MakeFolder:
    line: int
    path: str


@dataclass(frozen=True, slots=True)
class Copy:
    """`sources` are on the host and inside the task's environment/. `target` is absolute.

    `into` says that `target` is a directory; else one file goes to `target`, or into it if it is a directory there.
    """

    line: int
    sources: tuple[Path, ...]
    target: str
    into: bool
    mode: int | None
    extract: bool


@dataclass(frozen=True, slots=True)
class Run:
    line: int
    command: str
    cwd: str
    env: Mapping[str, str]


Step = MakeFolder | Copy | Run


@dataclass(frozen=True)
class Plan:
    """`env` is what every command starts with; `pins` are (line, package as written, requirement), proved first."""

    workdir: str = DEFAULT_WORKDIR
    env: Mapping[str, str] = field(default_factory=lambda: dict(BASE_ENV))
    folders: tuple[str, ...] = FOLDERS
    steps: tuple[Step, ...] = ()
    pins: tuple[tuple[int, str, str], ...] = ()
    host_network: bool = False
    notes: tuple[str, ...] = ()
    build_timeout_s: float = 600.0
