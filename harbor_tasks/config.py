"""The whole of Harbor's task.toml as pydantic models, in its old and its new spelling.

This module knows nothing of files: `harbor_tasks.format` reads the directory around it. Unknown keys are kept in
`model_extra` of their table, so that `unknown_fields` can name them; `[metadata]` is free.
"""

import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
SecondsOrZero = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Megabytes = Annotated[int, Field(gt=0)]
User = Annotated[str, BeforeValidator(lambda given: str(given) if type(given) is int else given)]
"""A name or a number, as a text; behind a colon the group where it is not the user's own."""
NetworkMode = Literal["public", "no-network", "allowlist"]

_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([KMGT])i?B?\s*", re.IGNORECASE)
_MEGABYTES = {"K": 1 / 1024, "M": 1, "G": 1024, "T": 1024 * 1024}


class _Table(BaseModel):
    model_config = ConfigDict(extra="allow", frozen=True)


class Author(_Table):
    name: str
    email: str | None = None


class Identity(_Table):
    """[task]"""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*$")
    version: str | None = None
    description: str = ""
    authors: tuple[Author, ...] = ()
    keywords: tuple[str, ...] = ()


class AgentConfig(_Table):
    """[agent]. Without `timeout_sec` there is no limit."""

    timeout_sec: Seconds | None = None
    user: User | None = None
    network_mode: NetworkMode | None = None
    allowed_hosts: tuple[str, ...] = ()


class Healthcheck(_Table):
    command: str
    interval_sec: Seconds = 5.0
    timeout_sec: Seconds = 30.0
    start_period_sec: SecondsOrZero = 0.0
    start_interval_sec: Seconds = 5.0
    retries: int = Field(default=3, ge=1)


class McpServer(_Table):
    name: str


class EnvironmentConfig(_Table):
    """[environment]. `memory = "2G"`, `storage = "10G"` and `allow_internet` are read as the new spelling."""

    build_timeout_sec: Seconds = 600.0
    docker_image: str | None = None
    os: Literal["linux", "windows"] = "linux"
    workdir: str | None = None
    skills_dir: str | None = None
    env: dict[str, str] = Field(default_factory=dict)
    cpus: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    memory_mb: Megabytes | None = None
    storage_mb: Megabytes | None = None
    gpus: int = Field(default=0, ge=0)
    gpu_types: tuple[str, ...] | None = None
    tpu: object = None
    network_mode: NetworkMode = "public"
    allowed_hosts: tuple[str, ...] = ()
    mcp_servers: tuple[McpServer, ...] = ()
    healthcheck: Healthcheck | None = None

    @field_validator("workdir")
    @classmethod
    def _absolute(cls, value: str | None) -> str | None:
        if value is not None and not value.startswith("/"):
            raise ValueError(f'an absolute path such as "/app", got {value!r}')
        return value

    @model_validator(mode="before")
    @classmethod
    def _old_spelling(cls, data: object) -> object:
        if not isinstance(data, dict):
            return data
        table = dict(data)
        for old, new in (("memory", "memory_mb"), ("storage", "storage_mb")):
            if old in table:
                _rename(table, old, new, _megabytes(old, table[old]))
        if "allow_internet" in table:
            allowed = table["allow_internet"]
            if not isinstance(allowed, bool):
                raise ValueError(f"allow_internet = true or false, got {allowed!r}")
            # An allowlist is a narrower yes: the two do not contradict each other.
            if allowed and table.get("network_mode") == "allowlist":
                del table["allow_internet"]
            else:
                _rename(table, "allow_internet", "network_mode", "public" if allowed else "no-network")
        return table


class Collect(_Table):
    command: str
    service: str = "main"
    timeout_sec: Seconds = 60.0
    user: User | None = None


class VerifierConfig(_Table):
    """[verifier]. An `environment` table of its own implies the separate mode."""

    timeout_sec: Seconds = 600.0
    env: dict[str, str] = Field(default_factory=dict)
    user: User | None = None
    network_mode: NetworkMode | None = None
    allowed_hosts: tuple[str, ...] = ()
    environment_mode: Literal["shared", "separate"] = "shared"
    environment: EnvironmentConfig | None = None
    collect: tuple[Collect, ...] = ()

    @property
    def separate(self) -> bool:
        return self.environment is not None or self.environment_mode == "separate"


class SolutionConfig(_Table):
    """[solution]"""

    env: dict[str, str] = Field(default_factory=dict)


class Artifact(_Table):
    source: str
    destination: str | None = None
    exclude: tuple[str, ...] = ()
    service: str | None = None


class StepConfig(_Table):
    """[[steps]]"""

    name: str
    agent: AgentConfig = AgentConfig()
    verifier: VerifierConfig = VerifierConfig()
    min_reward: float | dict[str, float] | None = None
    healthcheck: Healthcheck | None = None
    artifacts: tuple[str | Artifact, ...] = ()


class TaskConfig(_Table):
    """task.toml: root keys and tables, defaults as Harbor's."""

    schema_version: str = "1.4"
    source: str | None = None
    multi_step_reward_strategy: Literal["mean", "final"] = "mean"
    artifacts: tuple[str | Artifact, ...] = ()
    task: Identity | None = None
    metadata: dict[str, Any] = Field(default_factory=dict)
    agent: AgentConfig = AgentConfig()
    verifier: VerifierConfig = VerifierConfig()
    environment: EnvironmentConfig = EnvironmentConfig()
    solution: SolutionConfig = SolutionConfig()
    steps: tuple[StepConfig, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _old_spelling(cls, data: object) -> object:
        if not isinstance(data, dict) or "version" not in data:
            return data
        table = dict(data)
        _rename(table, "version", "schema_version", table["version"])
        return table

    @model_validator(mode="after")
    def _distinct_steps(self) -> Self:
        names = [step.name for step in self.steps]
        if repeated := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"steps with names of their own, got {repeated[0]!r} twice")
        return self


def unknown_fields(config: TaskConfig) -> tuple[str, ...]:
    """Dotted names of the keys that Harbor does not define, sorted."""
    return tuple(sorted(_unknown(config, "")))


def _unknown(table: BaseModel, prefix: str) -> Iterator[str]:
    for name in table.model_extra or {}:
        yield prefix + name
    for name in type(table).model_fields:
        value = getattr(table, name)
        if isinstance(value, BaseModel):
            yield from _unknown(value, f"{prefix}{name}.")
        elif isinstance(value, tuple):
            for index, item in enumerate(value):
                if isinstance(item, BaseModel):
                    yield from _unknown(item, f"{prefix}{name}.{index}.")


def _rename(table: dict[str, object], old: str, new: str, value: object) -> None:
    if new in table and table[new] != value:
        raise ValueError(f"{old} and {new} to agree, got {table[old]!r} and {table[new]!r}: keep {new} alone")
    del table[old]
    table[new] = value


def _megabytes(name: str, value: object) -> int:
    match = _SIZE.fullmatch(value) if isinstance(value, str) and len(value) < 40 else None
    if match is None:
        raise ValueError(f'{name} = a size such as "512M" or "2G", got {value!r} (new spelling: {name}_mb = 2048)')
    return max(1, int(float(match[1]) * _MEGABYTES[match[2].upper()]))
