"""A topology that is a Python file of the user's own: loaded, checked, and with what decides its trials digested.

The file is trusted as a program is that its user starts: it runs in this process. It stands alone, since what it would
import from beside it would not be covered by its digest; what is more than a file is a package
(`topologies.installed`).
"""

import ast
import hashlib
import importlib.abc
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from types import CodeType, ModuleType

from topologies.contract import Home, Topology
from topologies.errors import TopologyInvalid
from topologies.soundness import Unsound, check

MOST_CODE_BYTES = 1 << 20
MOST_PROMPT_BYTES = 256 << 10


class _Given(importlib.abc.InspectLoader):
    """Runs the bytes that were digested: what Python keeps compiled beside a file may be of an older one."""

    def __init__(self, content: bytes, path: Path) -> None:
        self.content, self.path = content, path

    def is_package(self, fullname: str) -> bool:
        return False

    def get_source(self, fullname: str) -> str:
        return importlib.util.decode_source(self.content)

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self.content, str(self.path))


def load_file(path: Path) -> Topology:
    """Raises TopologyInvalid: one line with the file, the line where it is known, what is wrong and how to mend it."""
    content = _read(path, MOST_CODE_BYTES, "a Python file that holds a TOPOLOGY")
    topology, code = _loaded(path, path.absolute(), content)
    texts = prompts(topology, str(path), lambda name: _read(path.parent / name, MOST_PROMPT_BYTES, "a Markdown file"))
    return replace(topology, home=Home(str(path), code, texts))


@lru_cache(maxsize=64)
def _loaded(path: Path, absolute: Path, content: bytes) -> tuple[Topology, dict[str, str]]:
    """The same file is not loaded twice: what it keeps at module level is there once."""
    try:
        module = _module(path, content)
        if not hasattr(module, "TOPOLOGY"):
            raise TopologyInvalid(f"{path}: holds no TOPOLOGY; expected TOPOLOGY = Topology(name=..., ...)")
        topology = check(module.TOPOLOGY)
    except Unsound as problem:
        line = problem.line or _line_of_topology(content)
        raise TopologyInvalid(f"{path}:{line}: {problem}") from None
    except TopologyInvalid:
        raise
    except (Exception, SystemExit) as error:
        raise TopologyInvalid(f"{_place(path, error)}: {told(error)}{_hint(path, error)}") from None
    code = {"file": digest(content)}
    graph_code = sys.modules.get(getattr(topology.build, "__module__", None) or "")
    if graph_code is not None and graph_code is not module:
        code["graph"] = digest(inspect.getsource(graph_code).encode())
    return topology, code


def prompts(topology: Topology, place: str, read: Callable[[str], bytes]) -> dict[str, str]:
    """The texts of its roles' prompts: what `read` has under a name that ends in .md, else a shipped one.

    Raises TopologyInvalid, and what `read` raises.
    """
    from agents.crew import load_prompt

    found = {}
    for role in topology.roles:
        if not role.prompt.endswith(".md"):
            try:
                found[role.prompt] = load_prompt(role.prompt)
            except (OSError, ValueError):
                raise TopologyInvalid(
                    f"{place}: role {role.name!r}: no shipped prompt is called {role.prompt!r}; for a file of your own "
                    f"write {role.prompt + '.md'!r}"
                ) from None
            continue
        try:
            text = read(role.prompt).decode("utf-8").strip()
        except (TopologyInvalid, OSError, ValueError) as error:
            reason = error if isinstance(error, TopologyInvalid) else "it cannot be read as UTF-8 text"
            raise TopologyInvalid(f"{place}: role {role.name!r}: prompt {role.prompt!r}: {reason}") from None
        if not text:
            raise TopologyInvalid(f"{place}: role {role.name!r}: prompt {role.prompt!r} is empty")
        found[role.prompt] = text
    return found


def told(error: BaseException) -> str:
    """Of what went wrong in somebody's own code, a line."""
    text = str(error.msg if isinstance(error, SyntaxError) else error)
    text = " ".join(text.split())[:300]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def _module(path: Path, content: bytes) -> ModuleType:
    """Under a name that no other file or state of the file has, so that neither takes the other's place."""
    name = f"fullchain_own_{digest(str(path.absolute()).encode() + content)}"
    spec = importlib.util.spec_from_file_location(name, path, loader=_Given(content, path))
    if spec is None or spec.loader is None:
        raise TopologyInvalid(f"{path}: cannot be loaded; expected a Python file")
    module = importlib.util.module_from_spec(spec)
    # Pydantic and LangGraph look up a class's annotations in its module.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _read(path: Path, most: int, expected: str) -> bytes:
    try:
        if path.exists() and not path.is_file():
            raise TopologyInvalid(f"{path} is no file; expected {expected}")
        with path.open("rb") as opened:
            content = opened.read(most + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise TopologyInvalid(f"{path} cannot be read ({reason}); expected {expected}") from None
    if len(content) > most:
        raise TopologyInvalid(f"{path} is longer than {most >> 10} KiB; expected {expected}")
    return content


def _place(path: Path, error: BaseException) -> str:
    if isinstance(error, SyntaxError) and error.filename == str(path) and error.lineno:
        return f"{path}:{error.lineno}"
    lines = [
        line
        for frame, line in traceback.walk_tb(error.__traceback__)
        if frame.f_code.co_filename == str(path)
    ]  # fmt: skip
    return f"{path}:{lines[-1]}" if lines else str(path)


def _hint(path: Path, error: BaseException) -> str:
    if not isinstance(error, ImportError):
        return ""
    top = (error.name or "").partition(".")[0]
    beside = top and ((path.parent / f"{top}.py").exists() or (path.parent / top).is_dir())
    if beside or "relative import" in str(error):
        return (
            "; a topology's file stands alone and imports nothing from beside it: "
            "make both a package with an entry point (group fullchain.topologies)"
        )
    return "; install what it imports into the environment of `fullchain`"


def _line_of_topology(content: bytes) -> int:
    """Where TOPOLOGY is bound, the first line when that is nowhere in plain sight."""
    lines = [
        step.lineno
        for step in ast.walk(ast.parse(content))
        if isinstance(step, ast.Name) and isinstance(step.ctx, ast.Store) and step.id == "TOPOLOGY"
    ]
    return max(lines, default=1)
