"""Finds topologies: every file of this folder that holds a TOPOLOGY is one, under the file's name."""

import importlib
import pkgutil
from difflib import get_close_matches

import topologies
from topologies.contract import Topology
from topologies.errors import UnknownTopology

_FRAME = {"contract", "errors", "shelf"}


def names() -> list[str]:
    """Sorted names, read from the folder: nothing is imported, since LangGraph costs about a second."""
    return sorted(module.name for module in pkgutil.iter_modules(topologies.__path__) if module.name not in _FRAME)


def find(name: str) -> Topology:
    """Raises UnknownTopology, which lists what there is."""
    if name not in names():
        near = get_close_matches(name, names(), n=1)
        hint = f"did you mean '{near[0]}'? " if near else ""
        raise UnknownTopology(f"topology '{name}' is unknown: {hint}there are {', '.join(names())}")
    topology: Topology = importlib.import_module(f"topologies.{name}").TOPOLOGY
    return topology
