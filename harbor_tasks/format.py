"""Reads task directories in Harbor's format: task.toml, instruction.md, environment/, tests/, solution/, audit/wrong/.

What is wrong with a directory raises TaskInvalid in one line. What is right but beyond this project loads, and
`Task.unsupported` names it, so that a run can refuse that one task and go on with the others.
"""

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from harbor_tasks.config import TaskConfig, unknown_fields
from harbor_tasks.digest import tree_digest
from harbor_tasks.errors import TaskInvalid, TaskRefused

TEXT_LIMIT = 1 << 20
"""Bytes of task.toml and of instruction.md that are accepted."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_REQUIREMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9+._-]*(\s*(>=|<=|==|!=|~=|>|<)\s*[0-9]+(\.[0-9]+)*(,(?=.)|$))*")
_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_COMPOSE = ("docker-compose.yaml", "docker-compose.yml")

_EXPECTED = {
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "string_type": "text in quotes",
    "bool_type": "true or false",
    "dict_type": "a table of keys and values",
    "model_type": "a table",
    "tuple_type": "a list",
    "missing": "a value (the key is missing)",
}


@dataclass(frozen=True)
class Task:
    """One task directory as it stood when it was loaded.

    `name` is the directory's name and safe as an id and as a file name. `instruction` is empty only for a multi-step
    task. `wrong` are the audit's wrong solutions, in name order. `digest` covers every file (`tree_digest`).
    """

    name: str
    path: Path
    instruction: str
    config: TaskConfig
    dockerfile: Path | None
    tests: Path
    solution: Path | None
    wrong: tuple[Path, ...]
    requires: tuple[str, ...]
    category: str | None
    digest: str
    unknown_fields: tuple[str, ...]

    @property
    def bundled(self) -> bool:
        """It was written here: its files may run without isolation where no sandbox can start."""
        return self.path.parent == bundled_tasks()

    def unsupported(self) -> tuple[str, ...]:
        """What the task asks for and this project cannot do, a phrase each; empty when it can be run."""
        config = self.config
        found = []
        if config.steps:
            found.append(f"steps: a task of {len(config.steps)} steps (single-step tasks only)")
        if config.verifier.separate:
            found.append("verifier.environment_mode: a separate verifier (the shared one only)")
        if config.verifier.collect:
            found.append("verifier.collect: commands that collect artifacts before verification")
        found += [
            f"environment/{name}: several services (a Dockerfile only)"
            for name in _COMPOSE
            if (self.path / "environment" / name).exists()
        ]
        if config.environment.os != "linux":
            found.append(f"environment.os: {config.environment.os} (linux only)")
        if config.environment.gpus:
            found.append(f"environment.gpus: {config.environment.gpus} GPUs")
        if config.environment.tpu is not None:
            found.append("environment.tpu: a TPU")
        if config.environment.mcp_servers:
            found.append("environment.mcp_servers: tools served beside the task")
        if config.environment.skills_dir is not None:
            found.append("environment.skills_dir: skills for the agent")
        if config.environment.healthcheck is not None:
            found.append("environment.healthcheck: a service to wait for")
        if (self.path / "trajectory.json").exists():
            found.append("trajectory.json: a conversation that began before the task")
        for table, env in (
            ("environment", config.environment.env),
            ("verifier", config.verifier.env),
            ("solution", config.solution.env),
        ):
            try:
                expand(env, table=table)
            except TaskRefused as refused:
                found.append(str(refused))
        return tuple(found)


def bundled_tasks() -> Path:
    """The directory of the tasks that come with this package."""
    return Path(__file__).resolve().parent / "tasks"


def load_tasks(path: Path) -> tuple[list[Task], list[TaskInvalid]]:
    """The tasks at `path`, in name order: the directory itself when it has a task.toml, else each child directory.

    Children that are no valid task come back as exceptions, one each; names with a leading dot (.git) and loose files
    are no children. Raises TaskInvalid when `path` is no directory or holds no child, or is itself an invalid task.
    """
    try:
        if not path.is_dir():
            raise TaskInvalid(f"{path}: expected a task directory or a directory of tasks, found none: check the path")
        if (path / "task.toml").exists():
            return [load_task(path)], []
        children = sorted(child for child in path.iterdir() if child.is_dir() and not child.name.startswith("."))
    except OSError as error:
        raise TaskInvalid(f"{path}: cannot be read ({error.strerror}): mend its mode or the path") from None
    if not children:
        raise TaskInvalid(f"{path}: no task.toml here and no directory that could hold one: name a task's directory")
    tasks: list[Task] = []
    invalid: list[TaskInvalid] = []
    for child in children:
        try:
            tasks.append(load_task(child))
        except TaskInvalid as error:
            invalid.append(error)
    return tasks, invalid


def load_task(path: Path) -> Task:
    """Reads one task directory. Raises TaskInvalid: one line, naming file, field, what was expected and the mend."""
    try:
        return _load(path)
    except OSError as error:
        raise TaskInvalid(
            f"task {path.name}: {error.filename} cannot be read ({error.strerror}): mend its mode"
        ) from None


def _load(path: Path) -> Task:
    given = Path(os.path.abspath(path))
    name = given.name
    if not _NAME.fullmatch(name):
        raise TaskInvalid(
            f"task {name!r}: the directory's name must be letters, digits, '.', '_' and '-' (at most 128), "
            "beginning with a letter or digit: rename it"
        )
    if not given.is_dir():
        raise TaskInvalid(f"task {name}: {path} is no directory: check the path")
    root = given.resolve()
    config = _config(name, root)
    multi_step = bool(config.steps)
    if not multi_step:
        _need_file(name, root, "instruction.md", "write there what the agent is to do")
        if config.environment.os == "linux":
            _need_file(
                name, root, "tests/test.sh", "write the verifier: it puts a number into /logs/verifier/reward.txt"
            )
    instruction = ""
    if (root / "instruction.md").is_file():
        instruction = _text(name, root, "instruction.md")
        if not instruction.strip():
            raise TaskInvalid(f"task {name}: instruction.md is empty: write there what the agent is to do")
    dockerfile = root / "environment" / "Dockerfile"
    compose = any((root / "environment" / compose).is_file() for compose in _COMPOSE)
    if not (dockerfile.is_file() or compose or config.environment.docker_image):
        if dockerfile.exists():
            raise TaskInvalid(f"task {name}: environment/Dockerfile is a directory, expected a file: write it anew")
        raise TaskInvalid(
            f"task {name}: environment/Dockerfile is missing: write it, or name an image in [environment] docker_image"
        )
    solution = root / "solution"
    if solution.is_dir() and not multi_step:
        _need_file(name, root, "solution/solve.sh", "write it, or remove the directory solution/")
    try:
        digest = tree_digest(root)
    except TaskInvalid as error:
        raise TaskInvalid(f"task {name}: {error}") from None
    category = config.metadata.get("category")
    return Task(
        name=name,
        path=root,
        instruction=instruction,
        config=config,
        dockerfile=dockerfile if dockerfile.is_file() else None,
        tests=root / "tests",
        solution=solution if solution.is_dir() else None,
        wrong=tuple(sorted(root.glob("audit/wrong/*.sh"))),
        requires=_requires(name, config.metadata.get("requires", [])),
        category=category if isinstance(category, str) else None,
        digest=digest,
        unknown_fields=unknown_fields(config),
    )


def expand(env: Mapping[str, str], *, table: str) -> dict[str, str]:
    """`${NAME:-default}` replaced by its default, in the values of `[table] env`.

    Variables of the host never enter a sandbox: whatever runs there could print them. `${NAME}` without a default
    therefore raises TaskRefused.
    """
    expanded = {}
    for key, value in env.items():
        for reference in _REFERENCE.finditer(value):
            if reference[2] is None:
                raise TaskRefused(
                    f"{table}.env.{key}: the host's variable {reference[1]} (never handed into a sandbox; "
                    f"write ${{{reference[1]}:-default}})"
                )
        expanded[key] = _REFERENCE.sub(lambda reference: reference[2], value)
    return expanded


def _config(name: str, root: Path) -> TaskConfig:
    _need_file(name, root, "task.toml", "write it (an empty file takes every default)")
    try:
        data = tomllib.loads(_text(name, root, "task.toml"))
    except (ValueError, RecursionError) as error:
        # tomllib lets two faults through that are no TOMLDecodeError: numbers of thousands of digits, deep nesting.
        raise TaskInvalid(f"task {name}: task.toml is no TOML: {error}: mend that line") from None
    try:
        return TaskConfig.model_validate(data)
    except ValidationError as error:
        raise TaskInvalid(f"task {name}: task.toml: {_first(error)}") from None


def _first(error: ValidationError) -> str:
    """The first fault in words, and how many more there are."""
    details = error.errors(include_url=False)
    first = details[0]
    field = ".".join(str(part) for part in first["loc"]) or "root"
    got = "" if first["type"] in ("missing", "value_error") else f", got {_short(first['input'])}"
    expected = _EXPECTED.get(first["type"])
    if expected is None:
        expected = first["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
        expected = expected.removeprefix("String should ")
    more = f" (and {len(details) - 1} more)" if len(details) > 1 else ""
    return f"{field}: expected {expected}{got}: mend this value{more}"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _requires(name: str, value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(item, str) and _REQUIREMENT.fullmatch(item) for item in value):
        raise TaskInvalid(
            f"task {name}: task.toml: metadata.requires: expected a list of programs such as "
            f'["python>=3.9", "git"], got {_short(value)}: mend this value'
        )
    return tuple(value)


def _need_file(name: str, root: Path, relative: str, mend: str) -> None:
    if (root / relative).is_dir():
        raise TaskInvalid(f"task {name}: {relative} is a directory, expected a file: {mend}")
    if not (root / relative).is_file():
        raise TaskInvalid(f"task {name}: {relative} is missing: {mend}")


def _text(name: str, root: Path, relative: str) -> str:
    try:
        with (root / relative).open("rb") as stream:
            data = stream.read(TEXT_LIMIT + 1)
    except OSError as error:
        raise TaskInvalid(f"task {name}: {relative} cannot be read ({error.strerror}): mend its mode") from None
    if len(data) > TEXT_LIMIT:
        raise TaskInvalid(f"task {name}: {relative} is larger than {TEXT_LIMIT} bytes: shorten it")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise TaskInvalid(f"task {name}: {relative} is not UTF-8 (byte {error.start}): save it as UTF-8") from None
