"""The beginning of a request body: the settings that an entry and its role ask for."""

from collections.abc import Mapping

import orjson

Settings = dict[str, object]


def begin(settings: Settings, extra: Mapping[str, object]) -> bytes:
    """The settings as the open beginning of a JSON object: `{"model":...,`.

    `extra` is laid over them: an object's fields over those of the object under that name, null takes a setting out,
    and anything else replaces it.
    """
    laid = dict(settings)
    for name, value in extra.items():
        under = laid.get(name)
        if value is None:
            laid.pop(name, None)
        elif isinstance(under, dict) and isinstance(value, dict):
            laid[name] = {**under, **value}
        else:
            laid[name] = value
    return orjson.dumps(laid)[:-1] + b","


def filled(text: str) -> str:
    """`text`, or a word for it: providers refuse a text block that is blank."""
    return text if text and not text.isspace() else "(empty)"
