"""One LangGraph graph of roles a file. May use agents; knows nothing of caches, money, sandboxes or transcripts.

find("planner_worker")   the topology of that name
names()                  what there is, without loading any of it
play(topology, stage)    runs the graph until a role hands over to nobody
mermaid(topology)        the drawing
"""

from topologies.contract import Stage, Topology, mermaid, play
from topologies.errors import ParametersInvalid, TopologyError, UnknownTopology
from topologies.shelf import find, names

__all__ = [
    "ParametersInvalid",
    "Stage",
    "Topology",
    "TopologyError",
    "UnknownTopology",
    "find",
    "mermaid",
    "names",
    "play",
]
