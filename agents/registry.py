"""Which models there are: the shipped models.yaml and the files of the user, later ones winning."""

import difflib
import os
from collections.abc import Hashable, Iterable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, PositiveInt, ValidationError, field_validator, model_validator

from agents.errors import RegistryError
from cost_model.policies import POLICIES

PLACEHOLDER_KEY = "none"
"""Sent where no key is needed: the SDKs insist on one."""


class ModelLimits(BaseModel):
    """Tokens: of one answer, and of prompt and answer together."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    max_output_tokens: PositiveInt
    context_tokens: PositiveInt


class ModelEntry(BaseModel):
    """One model as it can be hired; `price` names a price card, and exactly one of it and `self_hosted` is given."""

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/@-]{0,99}$")
    provider: str = Field(min_length=1)
    protocol: Literal["anthropic_messages", "openai_chat"]
    model: str = Field(min_length=1)
    base_url: str
    key_variable: str | None = None
    price: str | None = None
    self_hosted: bool = False
    cache: str
    limits: ModelLimits
    max_tokens_parameter: Literal["max_tokens", "max_completion_tokens"] | None = None
    """How an OpenAI-compatible server calls the limit of an answer; by default what its provider is known to take."""

    @property
    def simulated(self) -> bool:
        return self.provider == "simulated"

    @property
    def output_limit_parameter(self) -> str:
        default = "max_completion_tokens" if self.provider == "openai" else "max_tokens"
        return self.max_tokens_parameter or default

    @field_validator("base_url")
    @classmethod
    def _is_an_address(cls, value: str) -> str:
        if not value.startswith(("http://", "https://")) or "@" in value:
            raise ValueError("expected an http(s) address without credentials, such as https://api.example.com/v1")
        return value.rstrip("/")

    @field_validator("cache")
    @classmethod
    def _is_a_policy(cls, value: str) -> str:
        if value not in POLICIES:
            raise ValueError(f"unknown cache policy {value!r}; there are {', '.join(sorted(POLICIES))}")
        return value

    @model_validator(mode="after")
    def _is_priced_once(self) -> Self:
        if (self.price is None) is not self.self_hosted:
            raise ValueError(
                "give either `price` (whose prices count) or `self_hosted: true` (tokens cost nothing), and not both"
            )
        return self


def load_models(extra: Sequence[Path] = ()) -> dict[str, ModelEntry]:
    """By name. Raises RegistryError, one line naming file, model and field, when a file is not what it must be."""
    models = _read("models.yaml", files("agents").joinpath("models.yaml").read_text(encoding="utf-8"))
    for path in extra:
        try:
            written = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            raise RegistryError(f"{path}: cannot be read: {reason}") from None
        models |= _read(str(path), written)
    return models


def find_model(models: Mapping[str, ModelEntry], name: str) -> ModelEntry:
    """Raises RegistryError, with the nearest names, for a model that is not there."""
    if name in models:
        return models[name]
    near = difflib.get_close_matches(name, models, n=3, cutoff=0.5)
    hint = f"did you mean {_or(near)}?" if near else f"there are {', '.join(sorted(models))}"
    raise RegistryError(f"unknown model {name!r}: {hint} (a models file of your own can add it)")


def key_of(entry: ModelEntry) -> str:
    """The key from the environment. Raises RegistryError naming the variable that is missing."""
    if entry.key_variable is None:
        return PLACEHOLDER_KEY
    key = os.environ.get(entry.key_variable, "").strip()
    if not key:
        raise RegistryError(f"model {entry.name}: set the environment variable {entry.key_variable} to your key")
    return key


class _StrictLoader(yaml.SafeLoader):
    """Refuses a key that stands twice: the first entry would be lost without a word.

    What looks like a date or a number and is none stays text, so that its field refuses it by name.
    """

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except ValueError:
            if not isinstance(node, yaml.ScalarNode):
                raise
            self.recursive_objects.pop(node, None)
            return node.value

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, object]:
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise yaml.constructor.ConstructorError(None, None, "a key must be a plain name", key.start_mark)
            if key.value in seen:
                raise yaml.constructor.ConstructorError(None, None, f"{key.value!r} stands twice", key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def _read(source: str, written: str) -> dict[str, ModelEntry]:
    try:
        # A SafeLoader that only refuses more.
        document = yaml.load(written, Loader=_StrictLoader)  # noqa: S506
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = "" if mark is None else f" line {mark.line + 1}:"
        raise RegistryError(f"{source}:{where} no valid YAML: {getattr(error, 'problem', None) or error}") from None
    except RecursionError:
        raise RegistryError(f"{source}: nested too deep; give each model its fields under `models:`") from None
    except (ValueError, OverflowError) as error:
        raise RegistryError(f"{source}: no valid YAML: {error}; write that character itself") from None
    entries = document.get("models") if isinstance(document, dict) else None
    if not isinstance(entries, dict) or set(document) != {"models"}:
        raise RegistryError(f"{source}: expected one key `models:` with an entry under each model's name")
    return {str(name): _entry(source, str(name), fields) for name, fields in entries.items()}


def _entry(source: str, name: str, fields: object) -> ModelEntry:
    if not isinstance(fields, dict) or "name" in fields:
        raise RegistryError(f"{source}: models.{name}: expected fields (provider, protocol, ...) and no `name` field")
    try:
        return ModelEntry.model_validate({"name": name, **fields})
    except ValidationError as error:
        raise RegistryError(f"{source}: {_first_fault(name, error)}") from None


def _first_fault(name: str, error: ValidationError) -> str:
    fault = error.errors()[0]
    field = ".".join(str(part) for part in (f"models.{name}", *fault["loc"]))
    if fault["type"] == "extra_forbidden":
        known = [*ModelEntry.model_fields, *ModelLimits.model_fields]
        near = difflib.get_close_matches(str(fault["loc"][-1]), known, n=1)
        return f"{field}: unknown field{f', did you mean {near[0]}?' if near else ''}"
    message = str(fault["msg"]).removeprefix("Value error, ")
    given = "" if isinstance(fault["input"], dict) or fault["type"] == "missing" else f", not {fault['input']!r}"
    return f"{field}: {message}" + ("" if fault["type"] == "value_error" else given)


def _or(names: Iterable[str]) -> str:
    return " or ".join(names)
