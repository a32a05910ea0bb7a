"""Whether the names that we import are ours: where two installed packages own one, the last installed wins."""

import importlib.util
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import packages_distributions
from pathlib import Path

from experiments.doctor import Line

OWN = ("agents", "cost_model", "experiments", "fullchain", "harbor_tasks", "topologies")
DISTRIBUTION = "fullchain"


def names(owners: Mapping[str, Sequence[str]] | None = None) -> Iterator[Line]:
    """`owners`: the installed packages by the top-level names that they own; None asks this Python."""
    version = ".".join(map(str, sys.version_info[:3]))
    yield Line("ok", "python", f"{version} at {sys.executable}")
    owners = packages_distributions() if owners is None else owners
    root = Path(__file__).parents[2]
    faults = list(_faults(owners, root))
    for told in faults:
        yield Line("off", "names", told)
    if not faults:
        yield Line("ok", "names", f"{', '.join(OWN)} are fullchain's alone, at {root}")


def _faults(owners: Mapping[str, Sequence[str]], root: Path) -> Iterator[str]:
    for name in OWN:
        others = sorted({owner for owner in owners.get(name, ()) if owner.lower() != DISTRIBUTION})
        if others:
            yield (
                f"the package {', '.join(others)} owns the name {name} too: `pip uninstall {' '.join(others)}` and "
                "install fullchain anew, or give it a virtual environment of its own"
            )
        found = importlib.util.find_spec(name)
        origin = None if found is None or found.origin is None else Path(found.origin).resolve()
        if origin is None or root.resolve() not in origin.parents:
            yield (
                f"{name} is imported from {origin or 'nowhere'} and not from {root}: leave the folder that hides it, "
                "or take it out of PYTHONPATH"
            )
