"""An experiment as a person writes it: one YAML file, checked for its shape here.

Whether the names in it exist (topologies, models, tasks, prices) is found out by `experiments.experiment`. Every
mistake is one line: file, line, field, what was expected and how to mend it.
"""

import difflib
import re
from collections.abc import Hashable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import yaml
from pydantic import AfterValidator, AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from experiments.budget import MOST_USD
from experiments.errors import SpecError

SPEC_LIMIT = 1_000_000
"""Bytes of a spec file that are read; a longer file is not a spec."""

DEFAULT_EPOCH = datetime(2026, 11, 24, 12, 0, tzinfo=UTC)
"""Where virtual time begins unless the spec says otherwise: fixed, or peak-hour prices would change with the hour."""

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
Sandbox = Literal["auto", "bubblewrap", "host"]
SANDBOXES: tuple[Sandbox, ...] = get_args(Sandbox)
_TOO_DEEP = "{}: nested too deep; a spec is a few levels of mappings and lists"

Name = Annotated[str, Field(pattern=rf"^{NAME.pattern}$")]
Count = Annotated[int, Field(ge=1, le=10_000_000, strict=True)]
YEARS = (2000, 2100)
"""First and last year of a moment in a spec: beyond them no clock and no price list can be computed with."""


def _in_years(value: datetime) -> datetime:
    if not YEARS[0] <= value.year <= YEARS[1]:
        raise ValueError(f"expected a date-time of the years {YEARS[0]} to {YEARS[1]}, found {value.isoformat()}")
    return value


Threshold = Annotated[Decimal, Field(ge=Decimal("0.000001"), le=1_000_000, allow_inf_nan=False)]
Moment = Annotated[AwareDatetime, AfterValidator(_in_years)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class RoleSpec(_Part):
    """`model` is a name of the registry. `lifetime` asks the provider's cache for it ("5m", "1h", "30m", ...), `effort`
    is one of the model's own words; None takes the provider's default, of the temperature too."""

    model: str
    lifetime: str | None = None
    effort: str | None = None
    temperature: Annotated[float, Field(ge=0, le=2, strict=True)] | None = None


def _dollars(value: object) -> object:
    # pydantic would take `true` for one dollar.
    return str(value) if isinstance(value, bool) else value


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
    model's own limit)."""

    max_turns: Count = 100
    command_timeout_s: Annotated[float, Field(gt=0, le=86_400)] = 60
    max_output_tokens: Count | None = None


class Spec(_Part):
    """`tasks` holds "bundled", "bundled/<name>" or paths relative to the spec file, as are the further registry (YAML)
    and price (TOML) files in `models` and `prices`. `prices_at` fixes the price of every call to one moment; without
    it a call is priced at its own time. `budget_usd` is what the experiment may spend over all its runs; real models
    that cost money need one."""

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
    budget_usd: Annotated[Decimal, BeforeValidator(_dollars), Field(gt=0, le=MOST_USD, allow_inf_nan=False)] | None = (
        None
    )
    models: list[str] = []
    prices: list[str] = []


class SpecFile:
    """A parsed spec and where its fields stand, so that a later finding can name the line too."""

    def __init__(self, path: Path, root: yaml.Node, spec: Spec) -> None:
        self.path = path
        self._root = root
        self.spec = spec

    @cached_property
    def folder(self) -> Path:
        return self.path.resolve().parent

    def error(self, at: Sequence[str | int], message: str) -> SpecError:
        """The one line of a mistake in the field `at`, ready to be raised."""
        return SpecError(_line(self.path, self._root, at, message))


def read_spec(path: Path) -> SpecFile:
    """Raises SpecError, one line, for a file that is not readable, not YAML or not of the right shape."""
    root = _compose(path)
    try:
        raw = _Loader.plain(root)
    except yaml.MarkedYAMLError as error:
        raise SpecError(_yaml_line(path, error)) from None
    except RecursionError:
        raise SpecError(_TOO_DEEP.format(path)) from None
    if not isinstance(raw, dict):
        raise SpecError(f"{path}: expected a mapping with name, tasks and arms at the top, found {_kind(raw)}")
    try:
        spec = Spec.model_validate(raw)
    except ValidationError as error:
        raise SpecError(_first(path, root, error)) from None
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


def near(word: str, known: Sequence[str]) -> str:
    """The tail of a message about an unknown word: the nearest known ones, or all of them when none is near."""
    close = difflib.get_close_matches(word, known, n=3, cutoff=0.6)
    if close:
        return f"did you mean {' or '.join(repr(name) for name in close)}?"
    return f"known: {', '.join(known) or 'none'}"


class _Loader(yaml.SafeLoader):
    """YAML in which a key that stands twice is an error: silently keeping the last one would change an experiment.

    What looks like a date or a number and is none stays text, so that its field refuses it by name.
    """

    @classmethod
    def plain(cls, root: yaml.Node) -> object:
        loader = cls("")
        try:
            return loader.construct_document(root)
        finally:
            loader.dispose()

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except ValueError:
            if not isinstance(node, yaml.ScalarNode):
                raise
            self.recursive_objects.pop(node, None)
            return node.value

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                if key.value in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"the key {key.value!r} stands twice; keep one of them", key.start_mark
                    )
                seen.add(key.value)
        return super().construct_mapping(node, deep)


def _compose(path: Path) -> yaml.Node:
    try:
        with path.open("rb") as file:
            content = file.read(SPEC_LIMIT + 1)
        if len(content) > SPEC_LIMIT:
            raise SpecError(f"{path}: longer than {SPEC_LIMIT} bytes; a spec is a short YAML file")
        root = yaml.compose(content.decode(), Loader=_Loader)
    except FileNotFoundError:
        raise SpecError(f"{path}: no such spec file; give a path, or the name of a shipped spec") from None
    except OSError as error:
        raise SpecError(f"{path}: cannot be read ({error.strerror}); give a readable YAML file") from None
    except UnicodeDecodeError as error:
        raise SpecError(f"{path}: not UTF-8 text (byte {error.start}); save the file as UTF-8") from None
    except yaml.MarkedYAMLError as error:
        raise SpecError(_yaml_line(path, error)) from None
    except yaml.YAMLError as error:
        raise SpecError(f"{path}: malformed YAML: {' '.join(str(error).split())}") from None
    except (ValueError, OverflowError) as error:
        raise SpecError(f"{path}: malformed YAML: {error}; write that character itself") from None
    except RecursionError:
        raise SpecError(_TOO_DEEP.format(path)) from None
    if root is None:
        raise SpecError(f"{path}: the file is empty; expected name, tasks and arms")
    return root


def _yaml_line(path: Path, error: yaml.MarkedYAMLError) -> str:
    mark = error.problem_mark or error.context_mark
    where = f"{path}:{mark.line + 1}" if mark else str(path)
    return f"{where}: malformed YAML: {error.problem or error.context or 'cannot be parsed'}"


def _line(path: Path, root: yaml.Node, at: Sequence[str | int], message: str) -> str:
    field = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in at).lstrip(".")
    return f"{path}:{_find(root, at)}: {field}: {message}" if field else f"{path}: {message}"


def _find(node: yaml.Node, at: Sequence[str | int]) -> int:
    """The line on which the field stands, or the nearest thing above it that is in the file. Counts from 1."""
    line = node.start_mark.line + 1
    for step in at:
        if isinstance(node, yaml.MappingNode):
            inside = {key.value: (key, value) for key, value in node.value if isinstance(key, yaml.ScalarNode)}
            if step not in inside:
                break
            key, node = inside[str(step)]
            line = key.start_mark.line + 1
        elif isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
            node = node.value[step]
            line = node.start_mark.line + 1
        else:
            break
    return line


def _first(path: Path, root: yaml.Node, error: ValidationError) -> str:
    found = error.errors(include_url=False)
    # An unknown field is mostly a misspelt one, and then explains a field that seems to be missing.
    wrong = next((each for each in found if each["type"] == "extra_forbidden"), found[0])
    at = tuple(wrong["loc"])
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    return _line(path, root, at, _words(wrong["type"], wrong["msg"], at, wrong["input"], wrong.get("ctx", {})) + more)


def _words(kind: str, message: str, at: tuple[str | int, ...], value: object, context: Mapping[str, object]) -> str:
    if kind == "extra_forbidden":
        return f"unknown field; {near(str(at[-1]), list(_owner(at).model_fields))}"
    if kind == "missing":
        return f"missing; add it ({_example(str(at[-1]))})"
    if kind == "string_pattern_mismatch":
        return (
            f"{_shown(value)} is no name; expected letters, digits, '.', '_' and '-', beginning with a letter or digit"
        )
    if kind == "timezone_aware":
        return f"{_shown(value)} has no time zone; expected a date-time like 2026-11-24T12:00:00Z"
    if kind == "too_short":
        return "is empty; name at least one"
    if kind == "literal_error":
        return f"{_shown(value)} is not known; expected {context.get('expected')}"
    if kind in _BOUNDS:
        word, limit = _BOUNDS[kind]
        return f"expected {word} {context.get(limit)}, found {_shown(value)}"
    if kind in _EXPECTED:
        example = _EXAMPLES.get(str(at[-1]))
        return f"expected {_EXPECTED[kind]}, found {_shown(value)}" + (f"; write {example}" if example else "")
    if kind == "value_error":
        return message.removeprefix("Value error, ")
    return f"{message[:1].lower()}{message[1:]}, found {_shown(value)}"


def _owner(at: tuple[str | int, ...]) -> type[BaseModel]:
    if at[0] == "limits":
        return LimitsSpec
    if at[0] == "arms":
        return RoleSpec if len(at) > 3 else ArmSpec
    return Spec


def _example(field: str) -> str:
    return _EXAMPLES.get(field, f"{field}: ...")


_EXAMPLES = {
    "name": "name: my-experiment",
    "tasks": "tasks: [bundled]",
    "arms": "arms: a list of {name, topology, roles}",
    "topology": "topology: solo",
    "roles": "roles: {solo: sim-claude-opus-5-5}",
    "model": "model: a name of the registry",
    "limits": "limits: {max_turns: 100}",
    "budget_usd": "budget_usd: 5.00",
}

_BOUNDS = {
    "greater_than_equal": ("at least", "ge"),
    "greater_than": ("more than", "gt"),
    "less_than_equal": ("at most", "le"),
}

_WHOLE, _NUMBER, _MAPPING = "a whole number such as 3", "a number such as 1.5", "a mapping of fields"
_MOMENT = "a date-time like 2026-11-24T12:00:00Z"

_EXPECTED = {
    "int_type": _WHOLE,
    "int_parsing": _WHOLE,
    "int_parsing_size": _WHOLE,
    "int_from_float": _WHOLE,
    "float_type": _NUMBER,
    "float_parsing": _NUMBER,
    "finite_number": _NUMBER,
    "decimal_type": _NUMBER,
    "decimal_parsing": _NUMBER,
    "string_type": "text in quotes",
    "list_type": "a list such as [a, b]",
    "dict_type": _MAPPING,
    "model_type": _MAPPING,
    "datetime_type": _MOMENT,
    "datetime_parsing": _MOMENT,
    "datetime_from_date_parsing": _MOMENT,
    "datetime_object_invalid": _MOMENT,
}


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _kind(value: object) -> str:
    return {list: "a list", str: "text", int: "a number", float: "a number"}.get(type(value), "something else")
