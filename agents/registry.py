"""Which models there are: the shipped models.yaml and the files of the user, later ones winning.

A file says little: what an entry leaves out comes from the entry that it is `like`, else from a known entry of the same
provider and model, and then from what its provider has in common (`providers:`).
"""

import copy
import difflib
import functools
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from agents.errors import RegistryError
from agents.model_entry import ModelEntry, ModelLimits
from agents.strict_yaml import LIMIT, MODELS, read_file, read_yaml

__all__ = ["PLACEHOLDER_KEY", "ModelEntry", "ModelLimits", "find_model", "key_of", "load_models", "load_providers"]

_VISIBLE = re.compile(r"[!-~]+")
"""What a key is made of: with anything else it fits into no header."""

PLACEHOLDER_KEY = "none"
"""Sent where no key is needed: the SDKs insist on one."""


@dataclass(frozen=True, slots=True)
class _Fields:
    """What an entry was made of: its own fields, with those that it took from another, over those of its provider."""

    own: dict[str, Any] = field(default_factory=dict)
    common: dict[str, Any] = field(default_factory=dict)

    @property
    def complete(self) -> dict[str, Any]:
        common = dict(self.common)
        if isinstance(common.get("price"), str):
            common["price"] = common["price"].replace("{model}", str(self.own.get("model")))
        return _over(common, self.own)


@dataclass(slots=True)
class _Known:
    """What has been read so far."""

    models: dict[str, ModelEntry] = field(default_factory=dict)
    fields: dict[str, _Fields] = field(default_factory=dict)
    providers: dict[str, dict[str, Any]] = field(default_factory=dict)


def load_models(extra: Sequence[Path] = (), *, draft: tuple[Path, str] | None = None) -> dict[str, ModelEntry]:
    """By name. `draft` is a file with what it would hold; it is read last, in place of what stands there.

    Raises RegistryError, one line naming file, model and field, when a file is not what it must be."""
    return _load(extra, draft).models


def load_providers(extra: Sequence[Path] = ()) -> dict[str, dict[str, Any]]:
    """What the models of each provider have in common, by its name: fields of ModelEntry. Raises RegistryError."""
    return _load(extra, None).providers


def _load(extra: Sequence[Path], draft: tuple[Path, str] | None) -> _Known:
    shipped = _shipped()
    known = _Known(dict(shipped.models), dict(shipped.fields), copy.deepcopy(shipped.providers))
    for path in extra:
        if draft is not None and path.absolute() == draft[0].absolute():
            continue
        _read(known, str(path), read_file(path, MODELS))
    if draft is not None:
        if len(draft[1].encode()) > LIMIT:
            raise MODELS.told(draft[0], MODELS.too_long)
        _read(known, str(draft[0]), draft[1])
    return known


@functools.cache
def _shipped() -> _Known:
    # Reading it takes 70 ms, and one command may ask several times.
    known = _Known()
    _read(known, "models.yaml", files("agents").joinpath("models.yaml").read_text(encoding="utf-8"))
    return known


def find_model(models: Mapping[str, ModelEntry], name: str) -> ModelEntry:
    """Raises RegistryError, with the nearest names, for a model that is not there."""
    if name in models:
        return models[name]
    near = difflib.get_close_matches(name, models, n=3, cutoff=0.5)
    hint = f"did you mean {_or(near)}?" if near else "`fullchain models list` names all"
    raise RegistryError(f"unknown model {name!r}: {hint} (a models file of your own can add it)")


def key_of(entry: ModelEntry) -> str:
    """The key from the environment. Raises RegistryError naming the variable that is missing or holds no key."""
    if entry.key_variable is None:
        return PLACEHOLDER_KEY
    key = os.environ.get(entry.key_variable, "").strip()
    if not key:
        raise RegistryError(f"model {entry.name}: set the environment variable {entry.key_variable} to your key")
    if not _VISIBLE.fullmatch(key):
        raise RegistryError(
            f"model {entry.name}: what is in {entry.key_variable} is no key: a line break, a space or a character "
            "beyond ASCII stands within it; copy the key anew, alone and on one line"
        )
    return key


def _read(known: _Known, source: str, written: str) -> None:
    read = read_yaml(source, written)
    document = read if isinstance(read, dict) else {}
    entries = document.get("models")
    if not isinstance(entries, dict) or not set(document) <= {"models", "providers"}:
        raise RegistryError(
            f"{source}: expected `models:` with an entry under each model's name (and, if need be, `providers:` with "
            "what their models have in common)"
        )
    providers = document.get("providers", {})
    if not isinstance(providers, dict):
        raise RegistryError(f"{source}: providers: expected fields under each provider's name")
    for name, fields in providers.items():
        known.providers[str(name)] = _provider(source, str(name), fields)
    for name, fields in entries.items():
        _entry(known, source, str(name), fields)


def _provider(source: str, name: str, fields: object) -> dict[str, Any]:
    where = f"{source}: providers.{name}"
    if not isinstance(fields, dict):
        raise RegistryError(f"{where}: expected fields (base_url, key_variable, protocol, ...)")
    for each in fields:
        if each in ("name", "provider", "model", "like"):
            raise RegistryError(f"{where}.{each}: belongs to a model, not to all models of a provider")
        if each not in ModelEntry.model_fields:
            raise RegistryError(f"{where}.{each}: unknown field{_did_you_mean(str(each))}")
    return dict(fields)


def _entry(known: _Known, source: str, name: str, fields: object) -> None:
    if not isinstance(fields, dict) or "name" in fields:
        raise RegistryError(f"{source}: models.{name}: expected fields (provider, protocol, ...) and no `name` field")
    made_of = _completed(known, f"{source}: models.{name}", {str(key): value for key, value in fields.items()})
    complete = made_of.complete
    try:
        entry = ModelEntry.model_validate({"name": name, **complete})
    except ValidationError as error:
        raise RegistryError(f"{source}: {_first_fault(name, error)}{_hint(known, complete, error)}") from None
    known.models[name] = entry
    known.fields[name] = made_of


def _completed(known: _Known, where: str, given: dict[str, Any]) -> _Fields:
    """The fields of an entry with those that it leaves out."""
    fields = {key: value for key, value in given.items() if key != "like"}
    base = _like(known, where, given["like"]) if "like" in given else _same_model(known, fields)
    own = _over(base.own, fields)
    common = known.providers.get(str(own.get("provider")), base.common)
    inherited = _Fields(base.own, common).complete
    variable = inherited.get("key_variable")
    if variable is not None and "key_variable" not in fields and _elsewhere(fields, inherited):
        raise RegistryError(
            f"{where}.key_variable: is missing: {variable} would be sent to {str(fields['base_url'])[:100]!r}; name "
            "the variable with the key for that address, or write `key_variable: null` where it needs none"
        )
    return _Fields(own, common)


def _like(known: _Known, where: str, name: object) -> _Fields:
    if isinstance(name, str) and name in known.fields:
        return known.fields[name]
    near = difflib.get_close_matches(str(name), known.models, n=1)
    hint = f"did you mean {near[0]}?" if near else "name one that stands before it or is shipped"
    raise RegistryError(f"{where}.like: unknown model {str(name)[:100]!r}; {hint}")


def _same_model(known: _Known, fields: Mapping[str, Any]) -> _Fields:
    """The first known entry of this provider, model and, where one is given, protocol."""
    if "provider" in fields and "model" in fields:
        for name, entry in known.models.items():
            alike = (entry.provider, entry.model) == (fields["provider"], fields["model"])
            if alike and fields.get("protocol", entry.protocol) == entry.protocol:
                return known.fields[name]
    return _Fields()


def _elsewhere(fields: Mapping[str, Any], inherited: Mapping[str, Any]) -> bool:
    """Whether an entry goes to another address than the one that it would inherit."""
    if "base_url" not in fields:
        return False
    return str(fields["base_url"]).rstrip("/") != str(inherited.get("base_url")).rstrip("/")


def _over(under: Mapping[str, Any], fields: dict[str, Any]) -> dict[str, Any]:
    """The fields laid over others. Who says `self_hosted` takes no price from below, and the other way round."""
    hidden = {"self_hosted": "price", "price": "self_hosted"}
    taken = {hidden[key] for key in fields if key in hidden and fields[key]}
    return {key: value for key, value in under.items() if key not in taken} | fields


def _hint(known: _Known, fields: Mapping[str, Any], error: ValidationError) -> str:
    """A provider that nobody knows is the likeliest reason for fields that are missing."""
    provider = fields.get("provider")
    if error.errors()[0]["type"] != "missing" or not isinstance(provider, str) or provider in known.providers:
        return ""
    return f" (provider {provider!r} has no defaults; {', '.join(sorted(known.providers))} have)"


def _first_fault(name: str, error: ValidationError) -> str:
    fault = error.errors()[0]
    # Of a value that may be of several types the list tells each type on its own.
    place = [part for part in fault["loc"] if part in ModelEntry.model_fields or fault["loc"][0] != "extra_body"]
    field = ".".join(str(part) for part in (f"models.{name}", *place))
    if fault["type"] == "extra_forbidden":
        return f"{field}: unknown field{_did_you_mean(str(fault['loc'][-1]))}"
    if fault["type"] == "missing":
        return f"{field}: is missing; add it, or name a `provider` whose defaults have it"
    message = str(fault["msg"]).removeprefix("Value error, ")
    given = "" if isinstance(fault["input"], dict) else f", not {fault['input']!r}"
    return f"{field}: {message}" + ("" if fault["type"] == "value_error" else given)


def _did_you_mean(field: str) -> str:
    near = difflib.get_close_matches(field, [*ModelEntry.model_fields, *ModelLimits.model_fields, "like"], n=1)
    return f", did you mean {near[0]}?" if near else ""


def _or(names: Iterable[str]) -> str:
    return " or ".join(names)
