"""Finds topologies by name: every file of this folder that holds a TOPOLOGY, under the file's name; what installed
packages offer; and, by its path, a file of the user's own."""

import importlib
import pkgutil
from difflib import get_close_matches
from pathlib import Path

import topologies
from topologies.contract import Topology
from topologies.errors import TopologyInvalid, UnknownTopology

LONGEST = 1_000
"""Characters of a name or path."""

_FRAME = {
    "contract", "description", "drawing", "errors", "installed", "lost_ways", "own", "picture", "shelf", "soundness",
    "visits",
}  # fmt: skip


def built_in() -> list[str]:
    """Sorted names, read from the folder: nothing is imported, since LangGraph costs about a second."""
    return sorted(module.name for module in pkgutil.iter_modules(topologies.__path__) if module.name not in _FRAME)


def names() -> list[str]:
    """Sorted names of those of this folder and of installed packages. Nothing is imported of either."""
    from topologies.installed import offered

    return sorted({*built_in(), *offered()})


def find(name: str, folder: Path = Path()) -> Topology:
    """The topology of that name, or in the file `name`, which ends in .py and is relative to `folder`.

    Raises UnknownTopology, which lists what there is, and TopologyInvalid, also where two have the name.
    """
    from topologies.installed import load_entry, offered, package

    if len(name) > LONGEST:
        raise UnknownTopology(f"topology '{name[:60]}...' is unknown: {len(name):,} characters are no name and no path")
    if name.endswith(".py"):
        return _of_file(folder / name)
    entries = offered().get(name, [])
    places = [package(entry) for entry in entries]
    if name in built_in():
        places.insert(0, f"fullchain itself (topologies/{name}.py)")
    if len(places) > 1:
        raise TopologyInvalid(
            f"{len(places)} topologies are named '{name}', of {' and of '.join(places)}; uninstall or rename one"
        )
    if entries:
        return load_entry(entries[0])
    if not places:
        near = get_close_matches(name, names(), n=1)
        hint = f"did you mean '{near[0]}'? " if near else ""
        raise UnknownTopology(
            f"topology '{name}' is unknown: {hint}there are {', '.join(names())}; "
            "the path of one of your own ends in .py"
        )
    topology: Topology = importlib.import_module(f"topologies.{name}").TOPOLOGY
    return topology


def _of_file(path: Path) -> Topology:
    from topologies.own import load_file

    topology = load_file(path)
    if topology.name in names():
        raise TopologyInvalid(
            f"{path}: the name {topology.name!r} is taken (`fullchain topologies list`); choose another"
        )
    return topology
