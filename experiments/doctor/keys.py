"""Which providers have a key in the environment. What is in a variable is never told."""

from collections.abc import Iterator, Mapping

from agents.errors import RegistryError
from agents.model_entry import ModelEntry
from agents.registry import key_of
from experiments.doctor import Line


def keys(models: Mapping[str, ModelEntry]) -> Iterator[Line]:
    """A line a variable that holds something, and one for all that are not set."""
    first = {entry.key_variable: entry for entry in models.values() if entry.key_variable is not None}
    unset = []
    for variable, entry in sorted(first.items()):
        why = lacks(entry)
        if why is None:
            yield Line("ok", "key", f"{variable} is set")
        elif "set the environment variable" in why:
            unset.append(variable)
        else:
            yield Line("off", "key", why)
    if unset:
        yield Line("note", "key", f"not set: {', '.join(unset)} (simulated models need none)")


def lacks(entry: ModelEntry) -> str | None:
    """Why its model cannot be asked as things stand; None when its key is there or none is needed."""
    try:
        key_of(entry)
    except RegistryError as error:
        return str(error)
    return None
