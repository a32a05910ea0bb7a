"""A sandbox on paper, for rehearsals: nothing is started, no command runs and no file of a task is written.

What a simulated model's commands only look at is read from the task's `environment` directory instead, as if the image
held just these files, in its working directory; every other command is taken to succeed in silence. What an image makes
by itself (a repository, generated data), a script prints and a search finds in it is therefore missing. Who asks for a
copy of the working directory gets one that tells no more than which script was played.
"""

import asyncio
import os
import re
import shlex
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress
from pathlib import Path

from agents.simulated.attempt import RUN, SCRIPT
from agents.simulated.recognition import learned_lines, left_by
from harbor_tasks.errors import SandboxBroken, StateUnfit
from harbor_tasks.format import Task
from harbor_tasks.sandbox import OUTPUT_LIMIT, Copy, Output, Sandbox
from harbor_tasks.sandbox.copied_files import CopiedFiles, Layout

MOST_FILES = 500
MOST_BYTES = 256 << 10
"""Of a file that are read."""

Files = Mapping[str, Sequence[str]]
"""A path below the working directory ("data/a.csv") -> its lines."""

_PART = re.compile(
    r"(?:head -n (?P<head>\d+)|tail -n (?P<tail>\d+)|sed -n '(?P<first>\d+),(?P<last>\d+)p') (?P<file>.+)"
)
_WRITE = re.compile(rf"cat (?P<how>>>?) {SCRIPT} <<'(?P<end>\w+)'\n(?P<lines>.*\n)?(?P=end)(?P<cut>\n.*)?", re.DOTALL)
_BINARY = re.compile(r"Binary file (?P<name>[\w./-]+) added")
_LINES_A_FILE = 100
"""So few that no diff of a file is cut."""

_COUNT = re.compile(r"wc -l (?P<file>.+)")
_SEARCH = re.compile(r"grep -rnIF .* -e (?P<word>'[^']*'|\S+) \. \| LC_ALL=C sort \| head -n (?P<most>\d+)")


def environment_files(task: Task) -> dict[str, list[str]]:
    """The files that the task's image is built from, without its Dockerfile: MOST_FILES of them, links left out."""
    root = task.path / "environment"
    found: dict[str, list[str]] = {}
    for folder, folders, names in os.walk(root):
        folders.sort()
        for path in (Path(folder, name) for name in sorted(names)):
            if len(found) == MOST_FILES:
                return found
            if path.name != "Dockerfile" and not path.is_symlink() and path.is_file():
                with suppress(OSError), path.open("rb") as file:
                    # A name of other bytes than UTF-8 would go over no wire.
                    name = path.relative_to(root).as_posix().encode(errors="replace").decode()
                    found[name] = file.read(MOST_BYTES).decode(errors="replace").splitlines()
    return found


def printed(command: str, files: Files, workdir: str) -> str:
    """What a looking command prints; nothing for any other."""
    if part := _PART.fullmatch(command):
        lines = _lines(part["file"], files)
        if part["head"]:
            lines = lines[: int(part["head"])]
        elif part["tail"]:
            lines = lines[-int(part["tail"]) :]
        else:
            lines = lines[int(part["first"]) - 1 : int(part["last"])]
        return _text(lines)
    if count := _COUNT.fullmatch(command):
        return f"{len(_lines(count['file'], files))} {count['file']}\n"
    if search := _SEARCH.fullmatch(command):
        word = shlex.split(search["word"])[0]
        hits = (
            f"./{name}:{number}:{line}"
            for name, lines in files.items()
            for number, line in enumerate(lines, start=1)
            if word in line
        )
        return _text(sorted(hits)[: int(search["most"])])
    listing = sorted(f"./{name}" for name in files)
    top = sorted({name.split("/", 1)[0] for name in files})
    if command.startswith("pwd; ls"):
        return _text([workdir, *top])
    if command.startswith("find ."):
        return _text(listing[:50])
    if command.startswith("ls -1A; find ."):
        return _text([*top, *listing[-50:]])
    return ""


class PaperBackend:
    """Implements harbor_tasks.sandbox.Backend."""

    name = "paper"
    described = "none: no command runs"
    isolated = True
    copies = False
    warning: str | None = None

    async def probe(self) -> None:
        pass

    @asynccontextmanager
    async def start(self, task: Task, *, allow_host_network: bool = False) -> AsyncIterator["PaperSandbox"]:
        yield PaperSandbox(environment_files(task), task.name)

    def ahead(
        self, tasks: Sequence[Task], concurrency: int, told: Callable[[str], None]
    ) -> AbstractAsyncContextManager[None]:
        return nullcontext()

    def copied(
        self, task: Task, sandbox: Sandbox, *, allow_host_network: bool = False
    ) -> AbstractAsyncContextManager[Copy]:
        raise SandboxBroken("on paper there is nothing to copy")

    def restored(
        self, task: Task, files: CopiedFiles, layout: Layout, *, allow_host_network: bool = False
    ) -> AbstractAsyncContextManager[Sandbox]:
        raise StateUnfit("on paper there is nothing to restore")

    async def missing(self, requires: tuple[str, ...]) -> tuple[str, ...]:
        return ()


class PaperSandbox:
    """Implements harbor_tasks.sandbox.Sandbox; its verifier finds no reward."""

    backend = PaperBackend.name
    workdir = "/app"
    notes: tuple[str, ...] = ()

    def __init__(self, files: Files, task: str = "") -> None:
        self._files, self._task = files, task
        self._typed = ""
        self._left: frozenset[str] = frozenset()

    def hear(self, command: str) -> None:
        """Keeps the script that is typed, and what it leaves once it is run."""
        if written := _WRITE.fullmatch(command):
            before = self._typed if written["how"] == ">>" else ""
            self._typed = before + (written["lines"] or "")
            if written["cut"]:
                self._typed = self._typed.removesuffix("\n")
        elif command == RUN:
            self._left = left_by(self._task, self._typed.encode())

    async def exec(
        self,
        command: str,
        *,
        timeout_s: float,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
    ) -> Output:
        return _output("")

    async def shell(self, env: Mapping[str, str] | None = None, user: str | None = None) -> "PaperShell":
        return PaperShell(self._files, self.workdir, self.hear)

    async def upload(self, source: Path, target: str) -> None:
        pass

    async def download(self, source: str, target: Path) -> None:
        if source != self.workdir:
            raise FileNotFoundError(source)
        await asyncio.to_thread(_write_copy, target, self._left, learned_lines(self._task))

    async def read(self, path: str, *, limit: int = OUTPUT_LIMIT) -> bytes | None:
        return None

    async def read_all(self, limits: Mapping[str, int]) -> tuple[bytes | None, ...]:
        return (None,) * len(limits)


class PaperShell:
    """Implements harbor_tasks.sandbox.Shell."""

    def __init__(self, files: Files, workdir: str, hear: Callable[[str], None]) -> None:
        self._files, self._workdir, self._hear = files, workdir, hear

    async def run(self, command: str, *, timeout_s: float, keep: bool = True) -> Output:
        self._hear(command)
        return _output(printed(command, self._files, self._workdir))

    async def close(self) -> None:
        pass


def _write_copy(target: Path, left: frozenset[str], known: frozenset[str]) -> None:
    """Files whose diff against a copy of before, when nothing was `left`, has the lines `left`."""
    target.mkdir(parents=True)
    removed = [line[1:] for line in sorted(known - left) if line.startswith("-")]
    added = [line[1:] for line in sorted(left) if line.startswith("+")]
    (target / "removed").write_text(_text(removed), encoding="utf-8")
    for start in range(0, len(added), _LINES_A_FILE):
        (target / f"added-{start}").write_text(_text(added[start : start + _LINES_A_FILE]), encoding="utf-8")
    for number, line in enumerate(sorted(left)):
        if found := _BINARY.fullmatch(line):
            path = target / found["name"]
            if path.is_relative_to(target) and ".." not in path.parts:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(b"\0%d" % number)


def _lines(quoted: str, files: Files) -> list[str]:
    try:
        names = shlex.split(quoted)
    except ValueError:
        return []
    return list(files.get(names[0].removeprefix("./"), ())) if names else []


def _text(lines: Sequence[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _output(text: str) -> Output:
    content = text.encode()
    return Output(0, content[:OUTPUT_LIMIT].decode(errors="replace"), len(content), False, 0.0)
