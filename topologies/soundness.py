"""What must hold of a topology of somebody's own before a call is paid for."""

import re
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel
from pydantic.errors import PydanticUserError
from pydantic_core import PydanticSerializationError

from agents.handover import HandoverForm, HandoverTool, RoleDesign
from agents.tools import handover_tool
from agents.tools.shelf import SHELF
from topologies.contract import Topology
from topologies.visits import visits

if TYPE_CHECKING:
    from langgraph.graph import StateGraph

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


class Unsound(Exception):
    """Says what is wrong and how to mend it; `line` of the topology's file where it is known."""

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message)
        self.line = line


def check(topology: object) -> Topology:
    """Raises Unsound, and whatever code of the topology's own raises that is run for it (`build`, its validators)."""
    if not isinstance(topology, Topology):
        raise Unsound(f"TOPOLOGY is of type {type(topology).__name__}; expected a topologies.Topology")
    if not _is_name(topology.name):
        raise Unsound(f"the name {topology.name!r} is no name; expected letters, digits, '_' and '-'")
    if not isinstance(topology.summary, str):
        raise Unsound(f"summary is of type {type(topology.summary).__name__}; expected a line of text")
    _check_roles(topology)
    _check_parameters(topology)
    _check_graph(topology)
    return topology


def _check_roles(topology: Topology) -> None:
    if not isinstance(topology.roles, tuple) or not topology.roles:
        raise Unsound("roles must be a tuple of at least one RoleDesign: roles=(RoleDesign(...),)")
    for role in topology.roles:
        if not isinstance(role, RoleDesign):
            raise Unsound(f"roles holds something of type {type(role).__name__}; expected RoleDesign(...)")
        if not _is_name(role.name):
            raise Unsound(f"the role's name {role.name!r} is no name; expected letters, digits, '_' and '-'")
    names = [role.name for role in topology.roles]
    if twice := _twice(names):
        raise Unsound(f"two roles are named {twice!r}; give each a name of its own")
    for role in topology.roles:
        _check_role(role, names)


def _check_role(role: RoleDesign, names: list[str]) -> None:
    if not isinstance(role.prompt, str) or not role.prompt:
        raise Unsound(f"role {role.name!r}: prompt must name a Markdown file beside the topology, such as 'writer.md'")
    if not isinstance(role.tools, tuple) or not all(tool in SHELF for tool in role.tools):
        raise Unsound(f"role {role.name!r}: tools must be a tuple of these names: {', '.join(SHELF)}")
    if not isinstance(role.handovers, tuple) or not all(isinstance(each, HandoverTool) for each in role.handovers):
        raise Unsound(f"role {role.name!r}: handovers must be a tuple of HandoverTool: handovers=(SUBMIT,)")
    if not role.handovers:
        raise Unsound(f"role {role.name!r} has no hand-over, so its visits could never end; give it one")
    if twice := _twice([*role.tools, *(each.name for each in role.handovers)]):
        raise Unsound(f"role {role.name!r} has two tools named {twice!r}; give each a name of its own")
    for each in role.handovers:
        at = f"role {role.name!r}, hand-over {each.name!r}"
        if not _is_name(each.name):
            raise Unsound(f"{at}: is no name; expected letters, digits, '_' and '-'")
        if each.to_role is not None and each.to_role not in names:
            raise Unsound(
                f"{at}: there is no role {each.to_role!r}; the roles: {', '.join(names)} (None ends the chain)"
            )
        if each.form is None and not str(each.parameter).isidentifier():
            raise Unsound(f"{at}: takes nothing; name its text (parameter='report'), or give it a form")
        if each.form is not None and not (isinstance(each.form, type) and issubclass(each.form, HandoverForm)):
            raise Unsound(f"{at}: form must be a class that inherits from agents.handover.HandoverForm")
        _ = handover_tool(each).schema


def _check_parameters(topology: Topology) -> None:
    form = topology.parameters
    if not (isinstance(form, type) and issubclass(form, BaseModel)):
        raise Unsound("parameters must be a class that inherits from pydantic.BaseModel")
    needed = [name for name, field in form.model_fields.items() if field.is_required()]
    if needed:
        raise Unsound(f"the parameter {needed[0]!r} has no default; give it one, so that a spec can leave it out")
    if form.model_config.get("extra") != "forbid":
        raise Unsound(
            f"{form.__name__} overlooks misspelt parameters; add model_config = ConfigDict(extra='forbid', frozen=True)"
        )
    defaults = form()
    try:
        defaults.model_dump(mode="json")
        form.model_json_schema()
    except (PydanticUserError, PydanticSerializationError) as error:
        reason = str(error).partition("\n")[0]
        raise Unsound(f"{form.__name__} must hold what a spec can say: texts, numbers, lists ({reason})") from None


def _check_graph(topology: Topology) -> None:
    from langgraph.graph import StateGraph

    graph = topology.build()
    if not isinstance(graph, StateGraph):
        raise Unsound(f"build() returns a {type(graph).__name__}; expected a StateGraph that is not yet compiled")
    if "message" not in graph.channels:
        raise Unsound("the graph's state has no key 'message', which holds the task's text at the start")
    _check_visits(topology, graph)
    try:
        graph.compile(name=topology.name).get_graph()
    except ValueError as error:
        raise Unsound(f"the graph does not compile: {' '.join(str(error).split())}") from None


def _check_visits(topology: Topology, graph: "StateGraph[Any, Any, Any, Any]") -> None:
    names = [role.name for role in topology.roles]
    for node in graph.nodes:
        for role, line in visits(graph, node):
            if role not in names:
                raise Unsound(
                    f"node {node!r} visits the role {role!r}, which is none; the roles: {', '.join(names)}", line
                )


def _is_name(value: object) -> bool:
    return isinstance(value, str) and NAME.fullmatch(value) is not None


def _twice(names: list[str]) -> str | None:
    return next((name for index, name in enumerate(names) if name in names[:index]), None)
