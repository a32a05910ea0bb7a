"""One LangGraph graph of roles a file. May use agents; knows nothing of caches, money, sandboxes or transcripts.

find("planner_worker")   the topology of that name: of this folder, or of an installed package
find("mine.py", folder)  the one in a file of the user's own
names()                  what there is, without loading any of it
play(topology, stage)    runs the graph until a role hands over to nobody
mermaid(topology)        the drawing as text; topologies.drawing makes pictures
describe(topology)       its roles and parameters, JSON-able
"""

from topologies.contract import Stage, Topology, mermaid, play
from topologies.description import describe
from topologies.errors import (
    DrawingFailed,
    ParametersInvalid,
    PriceRatioUnknown,
    TopologyError,
    TopologyInvalid,
    UnknownRole,
    UnknownTopology,
)
from topologies.shelf import find, names

__all__ = [
    "DrawingFailed",
    "ParametersInvalid",
    "PriceRatioUnknown",
    "Stage",
    "Topology",
    "TopologyError",
    "TopologyInvalid",
    "UnknownRole",
    "UnknownTopology",
    "describe",
    "find",
    "mermaid",
    "names",
    "play",
]
