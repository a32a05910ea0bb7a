"""Topologies that installed packages offer, as entry points of the group `fullchain.topologies`.

[project.entry-points."fullchain.topologies"]
review_twice = "review_kit.review_twice:TOPOLOGY"
"""

import inspect
import pkgutil
import sys
import traceback
from dataclasses import replace
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType

from topologies.contract import Home, Topology
from topologies.errors import TopologyInvalid
from topologies.own import MOST_PROMPT_BYTES, digest, prompts, told
from topologies.soundness import Unsound, check

GROUP = "fullchain.topologies"


def offered() -> dict[str, list[EntryPoint]]:
    """By name, in order; nothing is imported."""
    found: dict[str, list[EntryPoint]] = {}
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: (entry.name, package(entry))):
        found.setdefault(entry.name, []).append(entry)
    return found


def package(entry: EntryPoint) -> str:
    """ "review-kit 1.0" """
    return "an unnamed package" if entry.dist is None else f"{entry.dist.name} {entry.dist.version}"


def load_entry(entry: EntryPoint) -> Topology:
    """Raises TopologyInvalid: one line with package, entry point, what is wrong and how to mend it."""
    place = f"topology '{entry.name}' of {package(entry)} ({entry.value})"
    try:
        topology = check(entry.load())
        module = sys.modules[entry.module]
        code = _code(module)
    except Unsound as problem:
        line = f" (line {problem.line})" if problem.line else ""
        raise TopologyInvalid(f"{place}: {problem}{line}") from None
    except (Exception, SystemExit) as error:
        raise TopologyInvalid(f"{place}: {_where(error)}{told(error)}") from None
    if topology.name != entry.name:
        raise TopologyInvalid(f"{place}: its name is {topology.name!r}; the entry point must be called like it")

    def read(name: str) -> bytes:
        try:
            content = pkgutil.get_data(module.__name__, name)
        except (OSError, ValueError):
            content = None
        if content is None:
            raise TopologyInvalid("is not in the package; declare it as package data")
        if len(content) > MOST_PROMPT_BYTES:
            raise TopologyInvalid(f"is longer than {MOST_PROMPT_BYTES >> 10} KiB")
        return content

    texts = prompts(topology, place, read)
    return replace(topology, home=Home(package(entry), {"package": package(entry), "source": code}, texts))


def _code(module: ModuleType) -> str:
    """The digest of all Python files of the package that the module is in: it may use any of them. A module that is in
    none, or that is not on the disk as a file, stands for itself."""
    file = Path(module.__file__ or "")
    if not module.__package__ or not file.is_file():
        return digest(inspect.getsource(module).encode())
    folder = file.parent
    paths = sorted(path for path in folder.rglob("*.py") if path.is_file())
    return digest(b"".join(f"{path.relative_to(folder)} {digest(path.read_bytes())}\n".encode() for path in paths))


def _where(error: BaseException) -> str:
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}: "
    frames = [
        (frame.f_code.co_filename, line)
        for frame, line in traceback.walk_tb(error.__traceback__)
        if not frame.f_code.co_filename.startswith("<frozen") and "importlib" not in frame.f_code.co_filename
    ]
    # The first frames are ours.
    theirs = [(name, line) for name, line in frames if Path(name).parent != Path(__file__).parent]
    return f"{theirs[-1][0]}:{theirs[-1][1]}: " if theirs else ""
