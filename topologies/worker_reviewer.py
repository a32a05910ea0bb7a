"""Worker and reviewer: one model does the work, another reads what has changed and approves it or sends it back.

    START ──▶ work ──▶ review ──▶ END
               ▲          │
               └── again ─┘        at most `rounds` times

The reviewer reads the task, the worker's report and the diff of the working directory against its state before the
work; the worker reads the findings. When the rounds run out and nobody has approved, `out_of_rounds` decides.
"""

from dataclasses import replace
from typing import Literal, TypedDict

from langgraph.graph import START, StateGraph
from langgraph.runtime import Runtime
from langgraph.types import Command
from pydantic import BaseModel, ConfigDict, Field, StrictBool

from agents.errors import VisitEnded
from agents.handover import HandoverTool, RoleDesign
from agents.verdict import Verdict
from topologies.contract import Stage, Topology


class Parameters(BaseModel):
    """`rounds`: how often the worker may be sent to work, the first time included.

    `tools`: whether the reviewer may look around with tools; without them it has the diff and its verdict alone.

    `out_of_rounds`: what happens to work that the reviewer has rejected in the last round. hand_in: it is handed in as
    it stands. withhold: nobody hands it in, and the trial ends by no_handover. The verifier judges what is there in
    either case.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    rounds: int = Field(default=3, ge=1, le=20, strict=True)
    tools: StrictBool = True
    out_of_rounds: Literal["hand_in", "withhold"] = "hand_in"


class State(TypedDict):
    """Hand-overs only. `worked`: how often the worker has handed over."""

    message: str
    worked: int


async def work(state: State, runtime: Runtime[Stage]) -> Command[Literal["review"]]:
    handover = await runtime.context.roles["worker"].visit(state["message"])
    return Command(goto="review", update={"message": handover.payload, "worked": state.get("worked", 0) + 1})


async def review(state: State, runtime: Runtime[Stage]) -> Command[Literal["work", "__end__"]]:
    stage = runtime.context
    told = case(state["message"], await stage.diff())
    # Its lane remembers the task from round to round.
    message = f"{stage.instruction}\n\n{told}" if state["worked"] == 1 else told
    handover = await stage.roles["reviewer"].visit(message)
    if handover.to_role is None:
        return Command(goto="__end__", update={"message": handover.payload})
    if state["worked"] < stage.parameters.rounds:
        return Command(goto="work", update={"message": handover.payload})
    if stage.parameters.out_of_rounds == "withhold":
        raise VisitEnded("no_handover")
    return Command(goto="__end__", update={"message": handover.payload})


def case(report: str, diff: str) -> str:
    """What a reviewer is told of one round's work. A simulated reviewer finds the diff by its heading."""
    return f"The worker's report:\n\n{report}\n\n{DIFF_HEADING}\n\n{diff}"


def graph() -> StateGraph[State, Stage, State, State]:
    topology = StateGraph(State, context_schema=Stage)
    topology.add_node(work)
    topology.add_node(review)
    topology.add_edge(START, "work")
    return topology


DIFF_HEADING = "What has changed in the working directory since before the work, as a diff:"

SUBMIT = HandoverTool(
    name="submit",
    to_role="reviewer",
    description="Hand your work to the reviewer, who approves it or sends you back with findings.",
    parameter="report",
    parameter_description="What you did, how you checked it, and what you are unsure of.",
)
VERDICT = HandoverTool(
    name="verdict",
    to_role="worker",
    description="Give your verdict: approve hands the work in and ends the task, reject sends the worker back with "
    "your findings. You get its next report and diff as this call's result.",
    form=Verdict,
)

WORKER = RoleDesign(name="worker", prompt="reviewed-worker", handovers=(SUBMIT,))
REVIEWER = RoleDesign(name="reviewer", prompt="reviewer", handovers=(VERDICT,))


def cast(parameters: Parameters) -> tuple[RoleDesign, ...]:
    if parameters.tools:
        return WORKER, REVIEWER
    return WORKER, replace(REVIEWER, prompt="reviewer-without-tools", tools=())


TOPOLOGY = Topology(
    name="worker_reviewer",
    summary="one model does the work, another reads the diff and approves it or sends it back",
    roles=(WORKER, REVIEWER),
    parameters=Parameters,
    build=graph,
    cast=cast,
    diffs=True,
)
