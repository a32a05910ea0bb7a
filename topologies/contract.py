"""What a topology is, what its nodes may see, and how it is played.

A node is one visit of a role. The graph's state holds hand-overs, never transcripts: roles keep their own lanes, and
the ledger sees every call below the SDK. So a run needs no checkpointer, and its state is as small at turn 400 as at 1.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Protocol

from agents.handover import Handover, RoleDesign
from topologies.errors import ParametersInvalid, TopologyError, UnknownRole
from topologies.lost_ways import no_way_lost

if TYPE_CHECKING:
    from langgraph.graph import StateGraph
    from pydantic import BaseModel

SUPERSTEPS = 1_000
"""A graph that has not ended by then loops; LangGraph's own default lets it run ten times as long."""


class Role(Protocol):
    """A role as a node sees it. `agents.crew.hire` makes them."""

    @property
    def name(self) -> str: ...

    async def visit(self, message: str, *, anew: bool = False) -> Handover:
        """Runs the role's turns on its own lane until it hands over; `anew`: on a new one, where only `message` is
        known. Raises agents.errors.VisitEnded when it cannot."""

    async def execute(self, commands: Sequence[str], *, stop: bool) -> list[int]:
        """Runs in its shell the commands that it handed over, without telling it; `stop` at the first that fails.
        Returns the exit codes of those that ran. Raises agents.errors.VisitEnded when time is up."""


async def no_diff() -> str:
    """What a stage answers whose topology did not ask for diffs. Raises TopologyError."""
    raise TopologyError("this topology asks for a diff without saying so: its TOPOLOGY needs diffs=True")


@dataclass(frozen=True, slots=True)
class Stage:
    """All that a graph's nodes may reach: the roles, the topology's parameters and the task's instruction.

    `diff` tells what has changed in the working directory since before the first visit, in a bounded text; it is there
    for topologies with `diffs`.

    A node that fans out into N branches calls `announce(N)` before it returns: then time stands still until each branch
    has begun its visit, and two parallel visits of 200 s take 200 s, not 400 s.
    """

    roles: Mapping[str, Role]
    parameters: Any
    instruction: str
    announce: Callable[[int], None] = lambda branches: None
    diff: Callable[[], Awaitable[str]] = no_diff


RatioOf = Callable[[str, str], Decimal]
"""How many output tokens of the second role cost as much as one of the first. Raises PriceRatioUnknown."""


@dataclass(frozen=True, slots=True)
class Home:
    """Where a topology of somebody's own comes from; found out when it is loaded, never written by its author.

    `code` is what decides, on the side of its code, what happens in a trial: digests by what they are of. `prompts` are
    the texts of its roles' prompts by the names that the designs give them.
    """

    place: str
    code: Mapping[str, str]
    prompts: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Topology:
    """`build` returns the uncompiled graph, whose state has the key `message`; `parameters` validates a spec's.

    `roles` are all that it may have. `cast` says which of them, and in which design, these parameters need (None: all).
    `settle` fills in what the parameters leave to the roles' prices (None: nothing): what it returns is what is played,
    and what the trial's identity knows. `home` is None for those of this folder.
    `diffs`: its nodes ask for diffs, so that the working directory is copied before the first visit.
    """

    name: str
    summary: str
    roles: tuple[RoleDesign, ...]
    parameters: "type[BaseModel]"
    build: "Callable[[], StateGraph[Any, Stage, Any, Any]]"
    cast: Callable[[Any], tuple[RoleDesign, ...]] | None = None
    settle: "Callable[[Any, RatioOf], BaseModel] | None" = None
    diffs: bool = False
    home: Home | None = None

    def prompt(self, name: str) -> str:
        """The text of a prompt that one of its roles names. Raises FileNotFoundError when there is none."""
        from agents.crew import load_prompt

        return load_prompt(name) if self.home is None else self.home.prompts[name]

    def roles_for(self, parameters: object) -> tuple[RoleDesign, ...]:
        """The roles that are played under these checked parameters."""
        return self.roles if self.cast is None else self.cast(parameters)

    def checked(self, parameters: Mapping[str, object]) -> "BaseModel":
        """Raises ParametersInvalid with one line naming the parameter and what was expected."""
        from pydantic import ValidationError

        try:
            return self.parameters.model_validate(dict(parameters))
        except ValidationError as error:
            first = error.errors()[0]
            where = "".join(f".{part}" for part in first["loc"])
            wrong = first["msg"].removeprefix("Value error, ")
            known = ", ".join(self.parameters.model_fields) or "none"
            raise ParametersInvalid(
                f"topology '{self.name}': parameters{where}: {wrong} (got {repr(first['input'])[:60]}; "
                f"this topology's parameters: {known})"
            ) from None
        except Exception as error:
            # A check that the topology's author wrote.
            told = " ".join(str(error).split())
            raise ParametersInvalid(
                f"topology '{self.name}': its parameters cannot be checked ({type(error).__name__}: {told})"
            ) from None


class _Roles(dict[str, Role]):
    """Answers for a role that is not there with those that are."""

    def __init__(self, topology: str, roles: Mapping[str, Role]) -> None:
        super().__init__(roles)
        self.topology = topology

    def __missing__(self, name: object) -> Role:
        raise UnknownRole(f"topology '{self.topology}' has no role {name!r}; its roles: {', '.join(self)}")


async def play(topology: Topology, stage: Stage) -> str:
    """Runs the graph to its end and returns the last hand-over's text.

    Raises whatever a visit raises, UnknownRole, and TopologyError for a way that leads nowhere. LangSmith stays off
    whatever the user's environment says: a run's messages are nobody else's business.
    """
    from langsmith import tracing_context

    graph = topology.build().compile(name=topology.name)
    stage = replace(stage, roles=_Roles(topology.name, stage.roles))
    with tracing_context(enabled=False), no_way_lost(topology.name):
        end = await graph.ainvoke({"message": stage.instruction}, context=stage, config={"recursion_limit": SUPERSTEPS})
    return str(end["message"])


def mermaid(topology: Topology) -> str:
    """The graph as Mermaid text, complete because every node spells out its targets."""
    return topology.build().compile(name=topology.name).get_graph().draw_mermaid()
