"""What a tool takes: a pydantic model gives the JSON Schema that the provider is sent and reads what the model wrote.

What a model wrote is hostile: only the declared fields are read, their types are strict, and a problem is told in words
that it can mend.
"""

from collections.abc import Mapping
from functools import lru_cache

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model


class Arguments(BaseModel):
    """Base of all forms. Further fields are overlooked: models add some that nobody asked for."""

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)


class Unfit(Exception):
    """The arguments do not fit their form; the message says what is wrong."""


@lru_cache(maxsize=256)
def text_form(parameter: str, description: str) -> type[Arguments]:
    """The form of a tool that takes one text."""
    field = (str, Field(description=description))
    return create_model("Text", __base__=Arguments, **{parameter: field})  # type: ignore[call-overload,no-any-return]  # pydantic types no computed names


@lru_cache(maxsize=256)
def text_of(form: type[Arguments]) -> str | None:
    """The one parameter of a form that is a single text; None of any other form."""
    names = list(form.model_fields)
    return names[0] if len(names) == 1 and form.model_fields[names[0]].annotation is str else None


@lru_cache(maxsize=256)
def schema_of(form: type[Arguments]) -> dict[str, object]:
    """Its JSON Schema: no titles, no references, keys in an order that never changes. Not to be written to."""
    whole = form.model_json_schema()
    return _plain(whole, whole.get("$defs", {}))


def read(form: type[Arguments], given: Mapping[str, object] | None) -> Arguments:
    """Raises Unfit; `given` None is what was no JSON object at all."""
    text = text_of(form)
    if given is None or (text is not None and not isinstance(given.get(text), str)):
        raise Unfit(f"the arguments must be a JSON object with {_wanted(form)}")
    try:
        return form.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise Unfit(f"the argument {where!r}: {first['msg']}; expected {_wanted(form)}") from None


def _wanted(form: type[Arguments]) -> str:
    if text := text_of(form):
        return f"the string {text!r}"
    needed = [name for name, field in form.model_fields.items() if field.is_required()]
    further = [name for name in form.model_fields if name not in needed]
    return ", ".join(map(repr, needed)) + (f", and if you like {', '.join(map(repr, further))}" if further else "")


def _plain(part: Mapping[str, object], defined: Mapping[str, Mapping[str, object]]) -> dict[str, object]:
    """What a provider needs of a schema, the type first."""
    if isinstance(reference := part.get("$ref"), str):
        return _plain(defined[reference.removeprefix("#/$defs/")], defined)
    kept: dict[str, object] = {"type": part["type"]} if "type" in part else {}
    for name in ("description", "enum", "minimum", "maximum", "maxItems", "maxLength", "anyOf", "items", "properties"):
        value = part.get(name)
        if value is None or (name == "description" and "properties" in part):
            continue
        if name == "properties" and isinstance(value, dict):
            kept[name] = {field: _plain(inner, defined) for field, inner in value.items()}
        elif name == "items" and isinstance(value, dict):
            kept[name] = _plain(value, defined)
        elif name == "anyOf" and isinstance(value, list):
            kept[name] = [_plain(each, defined) for each in value]
        else:
            kept[name] = value
    if "properties" in kept:
        kept["required"] = part.get("required", [])
        kept["additionalProperties"] = False
    return kept
