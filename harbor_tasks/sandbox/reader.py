"""Walks a Dockerfile's instructions and turns them into steps, or refuses them by their line."""

import json
import posixpath
import re
import shlex
from collections.abc import Iterable
from pathlib import Path

from harbor_tasks.dockerfile import Instruction, read, refused, words
from harbor_tasks.errors import TaskRefused
from harbor_tasks.requires import Requirement
from harbor_tasks.sandbox.packages import installs, requirement_lines, requirement_of
from harbor_tasks.sandbox.plan import BASE_ENV, DEFAULT_WORKDIR, Copy, MakeFolder, Run, Step

_SYSTEM = {"usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "etc", "proc", "dev", "sys", "run", "boot"}
_NAMED_FOLDER = re.compile(r"(?<![\w.)}/-])/([A-Za-z0-9_][A-Za-z0-9_.-]*)")
_IGNORED = {"CMD", "ENTRYPOINT", "EXPOSE", "LABEL", "MAINTAINER", "STOPSIGNAL"}
_MOST_LISTED = 1000
_ARCHIVE = re.compile(r".*\.(tar|tar\.gz|tgz|tar\.bz2|tbz2|tar\.xz|txz)")


class Reader:
    """Keeps what later instructions depend on: the working directory, variables, and the files brought so far."""

    def __init__(self, context: Path, requires: Iterable[str]) -> None:
        self.context = context.resolve()
        self.declared = {found.name for text in requires if (found := Requirement.parse(text))}
        self.workdir = DEFAULT_WORKDIR
        self.env: dict[str, str] = dict(BASE_ENV)
        self.arguments: dict[str, str] = {}
        self.folders: list[str] = []
        self.steps: list[Step] = []
        self.pins: list[tuple[int, str, str]] = []
        self.notes: list[str] = []
        self._brought: dict[str, Path] = {}
        self._stages = 0

    def read(self, instructions: Iterable[Instruction]) -> None:
        for instruction in instructions:
            line, op, value = instruction.line, instruction.op, instruction.value
            if op in _IGNORED:
                continue
            match op:
                case "FROM":
                    self._stages += 1
                    if self._stages > 1:
                        raise refused(line, "a second FROM: builds of several stages are not supported")
                case "WORKDIR":
                    self._workdir(line, value)
                case "ENV":
                    self._env(line, value)
                case "ARG":
                    self._arg(line, value)
                case "USER":
                    if value.partition(":")[0] not in ("root", "0"):
                        self.notes.append(f"USER {value}: every command runs as the sandbox's one user")
                case "COPY" | "ADD":
                    self._copy(line, op, value)
                case "RUN":
                    self._run(line, value)
                case "HEALTHCHECK":
                    self.notes.append("HEALTHCHECK not run")
                case _:
                    raise refused(line, f"{op} is not supported")

    def folder(self, path: str, where: str) -> None:
        """Makes sure that the top folder of an absolute path will be there and writable."""
        top = path.strip("/").partition("/")[0]
        if not top or top in _SYSTEM:
            raise TaskRefused(f"{where}: {path} belongs to the system, which is read-only here")
        if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", top):
            raise TaskRefused(f"{where}: {path}: the folder's name must be letters, digits, '.', '_' and '-'")
        if top not in self.folders:
            self.folders.append(top)

    def _variables(self) -> dict[str, str]:
        return {**self.arguments, **self.env}

    def _absolute(self, path: str) -> str:
        return posixpath.normpath(posixpath.join(self.workdir, path))

    def _workdir(self, line: int, value: str) -> None:
        path = words(value, self._variables(), line)
        if len(path) != 1:
            raise refused(line, f"WORKDIR takes one path, found {value!r}")
        self.workdir = self._absolute(path[0])
        self.folder(self.workdir, f"Dockerfile line {line}")
        self.steps.append(MakeFolder(line, self.workdir))

    def _env(self, line: int, value: str) -> None:
        variables = self._variables()
        pairs = words(value, variables, line)
        if not pairs:
            raise refused(line, "ENV takes NAME=value")
        if "=" not in pairs[0]:
            # The old spelling: one name, then its value to the end of the line.
            pairs = [pairs[0] + "=" + " ".join(pairs[1:])]
        for pair in pairs:
            name, equals, text = pair.partition("=")
            if not equals or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
                raise refused(line, f"ENV takes NAME=value, found {pair!r}")
            self.env[name] = text
            self._mentioned(text)

    def _arg(self, line: int, value: str) -> None:
        for pair in words(value, self._variables(), line):
            name, equals, text = pair.partition("=")
            if equals:
                self.arguments[name] = text

    def _copy(self, line: int, op: str, value: str) -> None:
        paths, mode = self._copy_words(line, op, value)
        if len(paths) < 2:
            raise refused(line, f"{op} takes sources and a target")
        *patterns, given = paths
        sources = [source for pattern in patterns for source in self._sources(line, op, pattern)]
        target = self._absolute(given)
        self.folder(target, f"Dockerfile line {line}")
        into = len(sources) > 1 or given.endswith(("/", "/.")) or given == "." or sources[0].is_dir()
        extract = op == "ADD" and any(_ARCHIVE.fullmatch(source.name) for source in sources)
        if extract and len(sources) > 1:
            raise refused(line, "ADD of an archive among other sources is not supported: one ADD for each")
        self.steps.append(Copy(line, tuple(sources), target, into or extract, mode, extract))
        self._remember(sources, target, into)

    def _copy_words(self, line: int, op: str, value: str) -> tuple[list[str], int | None]:
        mode = None
        while value.startswith("--"):
            flag, _, value = value.partition(" ")
            value = value.lstrip()
            name, _, setting = flag.partition("=")
            if name == "--chmod" and re.fullmatch(r"[0-7]{3,4}", setting):
                mode = int(setting, 8)
            elif name == "--chown":
                if setting.partition(":")[0] not in ("root", "0"):
                    self.notes.append(f"{op} {flag}: every file belongs to the sandbox's one user")
            else:
                raise refused(line, f"{op} {flag} is not supported")
        listed = _json_list(value)
        if listed is None:
            return words(value, self._variables(), line), mode
        if len(listed) > _MOST_LISTED:
            raise refused(line, f"{op} of more than {_MOST_LISTED:,} sources: bring their folder")
        return [word for item in listed for word in words(item, self._variables(), line, split=False)], mode

    def _sources(self, line: int, op: str, pattern: str) -> list[Path]:
        if re.match(r"[a-z+]+://|git@", pattern):
            raise refused(line, f"{op} of {pattern}: nothing is fetched here; put the file into environment/")
        relative = posixpath.normpath(pattern.lstrip("/") or ".")
        if relative.startswith(".."):
            raise refused(line, f"{op} of {pattern}: it leads out of environment/")
        ignore = self.context / ".dockerignore"
        if ignore.is_file() and any(text.strip() and text[0] != "#" for text in read(ignore).splitlines()):
            raise refused(line, f"{op} under a .dockerignore is not supported: remove environment/.dockerignore")
        found = [self.context / relative]
        if re.search(r"[*?\[]", relative):
            found = sorted(self.context.glob(relative))
        sources = []
        for path in found:
            source = path.resolve()
            if not source.is_relative_to(self.context):
                raise refused(line, f"{op} of {pattern}: it leads out of environment/")
            if not source.exists():
                raise refused(line, f"{op} of {pattern}: no such file in environment/")
            # A link at the top is followed, as Docker does, but keeps its own name.
            sources.append(source if source.is_dir() else path)
        if not sources:
            raise refused(line, f"{op} of {pattern}: no such file in environment/")
        return sources

    def _remember(self, sources: Iterable[Path], target: str, into: bool) -> None:
        """Where files stand inside, so that `pip install -r` can be read before anything runs."""
        for source in sources:
            if source.is_dir():
                for path in source.rglob("*.txt"):
                    self._brought[posixpath.join(target, path.relative_to(source).as_posix())] = path
            else:
                self._brought[posixpath.join(target, source.name)] = source
                if not into:
                    self._brought[target] = source

    def _run(self, line: int, value: str) -> None:
        if value.startswith("--"):
            raise refused(line, f"RUN {value.partition(' ')[0]} is not supported")
        listed = _json_list(value)
        command = value if listed is None else shlex.join(listed)
        found = installs(command)
        packages = list(found.packages)
        for name in found.files:
            path = self._brought.get(self._absolute(name))
            if path is None:
                raise refused(line, f"pip install -r {name}: not a file that a COPY above brings")
            packages += requirement_lines(read(path))
        for package in packages:
            self._install(line, package)
        self._mentioned(command)
        if found.rest.strip():
            self.steps.append(Run(line, found.rest, self.workdir, self._variables()))

    def _install(self, line: int, package: str) -> None:
        requirement = Requirement.parse(package)
        if requirement is not None and requirement.name in self.declared:
            if requirement.bounds:
                self.pins.append((line, package, package))
            return
        name = requirement_of(package)
        if name not in self.declared:
            raise refused(line, f"it installs {package}, which task.toml [metadata] requires does not declare")
        if "=" in package:
            self.notes.append(f"{package}: the version inside is the host's")

    def _mentioned(self, text: str) -> None:
        """A line that names /data expects to write there. A folder too many does no harm."""
        for match in _NAMED_FOLDER.finditer(text):
            top = match[1]
            if top not in _SYSTEM and top not in self.folders and len(self.folders) < 64:
                self.folders.append(top)


def _json_list(value: str) -> list[str] | None:
    """The exec form: a JSON list of strings; None for the shell form."""
    if not value.startswith("["):
        return None
    try:
        listed = json.loads(value)
    except ValueError:
        return None
    return listed if isinstance(listed, list) and all(isinstance(item, str) for item in listed) else None
