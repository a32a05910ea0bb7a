"""JSON as a person hands it over: one object has one value under one name, or it contradicts itself."""

import json
from collections.abc import Callable
from decimal import Decimal
from functools import cache

from cost_model.errors import DocumentError
from cost_model.usage.fields import shown


def load_json(text: str, *, constant: Callable[[str], object] | None = None) -> object:
    """The value; fractions become Decimal, NaN and infinities what `constant` makes of them.

    Raises DocumentError where a name comes twice in one object with different values (JSON leaves open which of them
    holds), else what the `json` module raises.
    """
    return _decoder(constant).decode(text)


@cache
def _decoder(constant: Callable[[str], object] | None) -> json.JSONDecoder:
    return json.JSONDecoder(parse_float=Decimal, parse_constant=constant, object_pairs_hook=_object)


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    made = dict(pairs)
    if len(made) < len(pairs):
        for name, value in pairs:
            if type(value) is not type(made[name]) or value != made[name]:
                raise DocumentError(
                    f"{shown(name)} stands twice in one object, as {shown(value)} and as {shown(made[name])}: "
                    "leave the right one"
                )
    return made
