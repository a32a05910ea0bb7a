"""A topology's graph as a picture: who works at each node, and which hand-over takes each edge.

Laid out by Graphviz, on this machine: nothing is sent anywhere. The library `pygraphviz` brings it along; without it,
the program `dot` of the system is taken.
"""

import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any, Literal

from agents.handover import HandoverForm, HandoverTool
from topologies.contract import Topology
from topologies.errors import DrawingFailed
from topologies.visits import visits

if TYPE_CHECKING:
    from langgraph.graph import StateGraph

Picture = Literal["svg", "png"]

SECONDS = 60
START, END = "__start__", "__end__"
INK, PALE = "#334155", "#64748b"
FILLS = ("#dbeafe", "#dcfce7", "#fef3c7", "#fce7f3", "#ede9fe", "#e2e8f0")
"""By the place of a role in its topology; a node of no known role is white."""

_PILL = 'shape=box, margin="0.16,0.05", height=0.1, width=0.1, fontsize=11'

_DRAW = (
    "import sys, pygraphviz as g; "
    "sys.stdout.buffer.write(g.AGraph(string=sys.stdin.read()).draw(format=sys.argv[1], prog='dot'))"
)


def draw(topology: Topology, picture: Picture) -> bytes:
    """An SVG or PNG file. Raises DrawingFailed, one line, where there is no Graphviz or it fails.

    In a process of its own: a library in C could take ours down, and it writes to standard error as it likes.
    """
    if importlib.util.find_spec("pygraphviz") is not None:
        command = [sys.executable, "-P", "-c", _DRAW, picture]
    elif program := shutil.which("dot"):
        command = [program, f"-T{picture}"]
    else:
        raise DrawingFailed(
            "pictures are drawn by Graphviz, which is not installed: `pip install pygraphviz`, or your system's "
            "package `graphviz`; --format mermaid needs neither"
        )
    try:
        done = subprocess.run(command, input=dot(topology, picture).encode(), capture_output=True, timeout=SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DrawingFailed(f"Graphviz did not draw '{topology.name}' ({error})") from None
    if done.returncode or not done.stdout:
        reason = done.stderr.decode(errors="replace").strip().splitlines() or ["it wrote nothing"]
        raise DrawingFailed(f"Graphviz did not draw '{topology.name}': {reason[-1][:300]}")
    return done.stdout


def dot(topology: Topology, picture: Picture = "svg") -> str:
    """The graph in Graphviz's language. An SVG has points for pixels, a PNG twice as many pixels."""
    graph = topology.build()
    drawn = graph.compile(name=topology.name).get_graph()
    working = {node: _roles(topology, graph, node) for node in graph.nodes}
    ids = {node: f"n{number}" for number, node in enumerate(drawn.nodes)}
    dpi = 144 if picture == "png" else 72
    font = 'fontname="Helvetica,Arial,DejaVu Sans,sans-serif"'
    lines = [
        f'digraph "{topology.name}" {{',
        f"  graph [rankdir=TB, bgcolor=white, pad=0.2, nodesep=0.7, ranksep=0.5, dpi={dpi}]",
        f'  node [{font}, fontsize=14, fontcolor="{INK}", color="{INK}"]',
        f'  edge [{font}, fontsize=11, fontcolor="{PALE}", color="{PALE}", arrowsize=0.7]',
    ]
    lines += [f"  {ids[node]} [{_node(topology, node, working.get(node, []))}]" for node in drawn.nodes]
    for edge in drawn.edges:
        ways = _ways(topology, working.get(edge.source, []), working.get(edge.target, []), edge.target)
        label = f" [label=<&nbsp;{escape(', '.join(ways))}&nbsp;>]" if ways else ""
        lines.append(f"  {ids[edge.source]} -> {ids[edge.target]}{label}")
    return "\n".join([*lines, "}", ""])


def _node(topology: Topology, node: str, roles: Sequence[str]) -> str:
    if node == START:
        return f'{_PILL}, style="rounded,filled", fillcolor="{INK}", fontcolor=white, label="start", tooltip="start"'
    if node == END:
        return f'{_PILL}, style="rounded,filled", fillcolor=white, penwidth=2, label="end", tooltip="end"'
    names = [role.name for role in topology.roles]
    fill = FILLS[names.index(roles[0]) % len(FILLS)] if roles else "white"
    below = f'<br/><font point-size="11" color="{PALE}">{escape(", ".join(roles))}</font>' if roles else ""
    return (
        f'shape=box, penwidth=0.8, style="rounded,filled", fillcolor="{fill}", margin="0.22,0.11", '
        f"tooltip=<{escape(node)}>, label=<<b>{escape(node)}</b>{below}>"
    )


def _roles(topology: Topology, graph: "StateGraph[Any, Any, Any, Any]", node: str) -> list[str]:
    """Those that the node visits; a role of its name where its source names none."""
    names = [role.name for role in topology.roles]
    found = [role for role, _ in visits(graph, node) if role in names]
    return list(dict.fromkeys(found or [role for role in names if role == node]))


def _ways(topology: Topology, givers: Sequence[str], takers: Sequence[str], target: str) -> list[str]:
    """The hand-overs that take an edge."""
    receivers: list[str | None] = [None] if target == END else list(takers)
    return list(
        dict.fromkeys(
            each.name
            for role in topology.roles
            if role.name in givers
            for each in role.handovers
            if receivers and (each.to_role in receivers or _chooses(each))
        )
    )


def _chooses(handover: HandoverTool) -> bool:
    """Whether who gets it depends on what the model wrote."""
    return handover.form is not None and handover.form.receiver is not HandoverForm.receiver
