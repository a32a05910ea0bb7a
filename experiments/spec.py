"""An experiment as a person writes it: one YAML file, checked for its shape here.

Whether the names in it exist (topologies, models, tasks, prices) is found out by `experiments.loading`. Every mistake
is one line: file, line, field, what was expected and how to mend it.
"""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import yaml
from pydantic import AfterValidator, AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from agents.limits import LOOP, TellTime
from agents.strict_yaml import parse, read_file
from experiments.budget import MOST_USD
from experiments.errors import SpecError
from experiments.spec_mistakes import SPECS, Place, first_mistake, kind_of, mistake

DEFAULT_EPOCH = datetime(2026, 11, 24, 12, 0, tzinfo=UTC)
"""Where virtual time begins unless the spec says otherwise: fixed, or peak-hour prices would change with the hour."""

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
Sandbox = Literal["auto", "docker", "bubblewrap", "host"]
SANDBOXES: tuple[Sandbox, ...] = get_args(Sandbox)

Name = Annotated[str, Field(pattern=rf"^{NAME.pattern}$")]
Pattern = Annotated[str, Field(min_length=1, max_length=500)]
Switch = Annotated[bool, Field(strict=True)]
Count = Annotated[int, Field(ge=1, le=10_000_000, strict=True)]
TokenCount = Annotated[int, Field(ge=1, le=1_000_000_000_000, strict=True)]
YEARS = (2000, 2100)
"""First and last year of a moment in a spec: beyond them no clock and no price list can be computed with."""


def _in_years(value: datetime) -> datetime:
    if not YEARS[0] <= value.year <= YEARS[1]:
        raise ValueError(f"expected a date-time of the years {YEARS[0]} to {YEARS[1]}, found {value.isoformat()}")
    return value


def _dollars(value: object) -> object:
    # pydantic would take `true` for one dollar.
    return str(value) if isinstance(value, bool) else value


Threshold = Annotated[Decimal, Field(ge=Decimal("0.000001"), le=1_000_000, allow_inf_nan=False)]
Moment = Annotated[AwareDatetime, AfterValidator(_in_years)]
Dollars = Annotated[Decimal, BeforeValidator(_dollars), Field(gt=0, le=MOST_USD, allow_inf_nan=False)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class KeepAliveSpec(_Part):
    """While the role waits, its last request is sent again every `every_s` seconds, `most` times in one wait (None: as
    often as it takes), so that its cache lives on."""

    every_s: Annotated[float, Field(ge=1, le=86_400, allow_inf_nan=False, strict=True)]
    most: Count | None = None


class CommandPolicySpec(_Part):
    """Which commands a role may run: none that matches a pattern of `deny`, with `allow` none but those that match one,
    with `read_only` none but such as only look. A pattern is a command's words, with `*` and `?` in them."""

    deny: Annotated[list[Pattern], Field(max_length=200)] = []
    allow: Annotated[list[Pattern], Field(min_length=1, max_length=200)] | None = None
    read_only: Annotated[bool, Field(strict=True)] = False


class ContextSpec(_Part):
    """What a role forgets once an answer and its prompt had more than `above_tokens`. truncate: of all but the newest
    `keep_last` tool results, what is beyond `keep_bytes`; clear: all of them; compact: what is older than the newest
    `keep_last` answers, for a summary that the model writes. The first two wait until `at_least_bytes` can go at once.
    none: nothing, and nothing else is said."""

    policy: Literal["none", "truncate", "clear", "compact"]
    above_tokens: Count | None = None
    keep_last: Annotated[int, Field(ge=1, le=10_000, strict=True)] | None = None
    keep_bytes: Annotated[int, Field(ge=0, le=10_000_000, strict=True)] | None = None
    at_least_bytes: Annotated[int, Field(ge=0, le=10_000_000, strict=True)] | None = None


class RoleSpec(_Part):
    """`model` is a name of the registry. `lifetime` asks the provider's cache for it ("5m", "1h", "30m", ...), `effort`
    is one of the model's own words; None takes the provider's default, of the temperature too. `prompt` is a Markdown
    file, relative to the spec, and `tools` are the names of those it has besides its hand-overs; None: the topology's
    own. `max_turns`, `max_output_tokens`, `max_usd` and `max_tokens` limit this role beside the experiment's.
    `command_policy` says which commands it may run (None: all), `context` what it forgets on purpose."""

    model: str
    lifetime: str | None = None
    effort: str | None = None
    temperature: Annotated[float, Field(ge=0, le=2, strict=True)] | None = None
    keep_alive: KeepAliveSpec | None = None
    prompt: str | None = None
    tools: list[str] | None = None
    max_turns: Count | None = None
    max_output_tokens: Count | None = None
    command_policy: CommandPolicySpec | None = None
    max_usd: Dollars | None = None
    max_tokens: TokenCount | None = None
    context: ContextSpec | None = None


def _role(value: object) -> object:
    return {"model": value} if isinstance(value, str) else value


class ArmSpec(_Part):
    """One arrangement of models: a topology, who plays each of its roles, and the topology's own parameters."""

    name: Name
    topology: str
    roles: dict[str, Annotated[RoleSpec, BeforeValidator(_role)]]
    parameters: dict[str, Any] = {}


class LimitsSpec(_Part):
    """What a trial may use: turns of each role over all its visits, seconds a command, tokens an answer (None: the
    model's own limit), dollars and tokens of all its calls (None: no limit).

    A role that gets the same from the same command `loop_after` times in a row goes round in circles, which ends the
    trial. `tell_time`: when the roles are told how much of the task's own time is left.
    """

    max_turns: Count = 100
    command_timeout_s: Annotated[float, Field(gt=0, le=86_400, strict=True)] = 60
    max_output_tokens: Count | None = None
    max_usd: Dollars | None = None
    max_tokens: TokenCount | None = None
    loop_after: Annotated[int, Field(ge=2, le=100, strict=True)] = LOOP
    tell_time: TellTime = "late"


class Spec(_Part):
    """`tasks` holds "bundled", "bundled/<name>" or paths relative to the spec file, as are the further registry (YAML)
    and price (TOML) files in `models` and `prices`. `prices_at` fixes the price of every call to one moment; without
    it a call is priced at its own time. `budget_usd` is what the experiment may spend over all its runs; real models
    that cost money need one. `shadow_verify`: what a reviewer judges is verified on a copy, so that the truth of its
    verdict is known. `keep_states`: what a reviewer judges is kept as an archive beside the database."""

    name: Name
    description: str = ""
    tasks: Annotated[list[str], Field(min_length=1)]
    arms: Annotated[list[ArmSpec], Field(min_length=1)]
    repeats: Annotated[int, Field(ge=1, le=10_000, strict=True)] = 1
    seed: Annotated[int, Field(ge=-(2**63), le=2**63 - 1, strict=True)] = 0
    sandbox: Sandbox = "auto"
    concurrency: Annotated[int, Field(ge=1, le=1024, strict=True)] = 8
    limits: LimitsSpec = LimitsSpec()
    pass_threshold: Threshold = Decimal("1.0")
    virtual_epoch: Moment = DEFAULT_EPOCH
    prices_at: Moment | None = None
    budget_usd: Dollars | None = None
    shadow_verify: Switch = False
    keep_states: Switch = True
    models: list[str] = []
    prices: list[str] = []


@dataclass(frozen=True)
class SpecFile:
    """A parsed spec and where its fields stand, so that a later finding can name the line too."""

    path: Path
    root: yaml.Node
    spec: Spec

    @cached_property
    def folder(self) -> Path:
        return self.path.resolve().parent

    def error(self, at: Place, message: str) -> SpecError:
        """The one line of a mistake in the field `at`, ready to be raised."""
        return mistake(self.path, self.root, at, message)

    @contextmanager
    def blaming(self, at: Place, *errors: type[Exception]) -> Iterator[None]:
        """What goes wrong inside is a mistake in the field `at`, in its own words."""
        try:
            yield
        except errors as error:
            raise self.error(at, str(error)) from None


def read_spec(path: Path) -> SpecFile:
    """Raises SpecError, one line, for a file that is not readable, not YAML or not of the right shape."""
    root, raw = parse(str(path), read_file(path, SPECS), SPECS)
    if root is None:
        raise SpecError(f"{path}: the file is empty; expected name, tasks and arms")
    if not isinstance(raw, dict):
        raise SpecError(f"{path}: expected a mapping with name, tasks and arms at the top, found {kind_of(raw)}")
    try:
        spec = Spec.model_validate(raw)
    except ValidationError as error:
        raise first_mistake(path, root, error, _fields) from None
    found = SpecFile(path, root, spec)
    first: dict[str, int] = {}
    for index, arm in enumerate(spec.arms):
        if arm.name in first:
            raise found.error(
                ("arms", index, "name"),
                f"duplicate arm {arm.name!r}: arms[{first[arm.name]}] has this name; give each arm its own",
            )
        first[arm.name] = index
    return found


_OF_ROLE: dict[str, type[BaseModel]] = {
    "keep_alive": KeepAliveSpec,
    "command_policy": CommandPolicySpec,
    "context": ContextSpec,
}


def _fields(at: Place) -> Iterable[str]:
    """Those of the mapping in which the field `at` stands."""
    part: type[BaseModel] = Spec
    if at[0] == "limits":
        part = LimitsSpec
    elif at[0] == "arms":
        inner = next((form for name, form in _OF_ROLE.items() if name in at[4:-1]), RoleSpec)
        part = ArmSpec if len(at) <= 3 else inner
    return part.model_fields
