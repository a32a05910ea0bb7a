"""Planner and worker: an expensive model plans and checks, a cheap one does the work.

    START ──▶ plan ──▶ work ──▶ check ──▶ END
               │        ▲         │
               ▼        └─ again ─┘        at most `rounds` times
              END

While the worker works nobody reads the planner's lane; if that lasts longer than the planner's cache lives, the next
`check` writes its whole context again. What the worker leaves behind counts, also when the rounds run out before the
planner is content: the verifier decides, not the planner.
"""

from typing import Literal, TypedDict

from langgraph.graph import START, StateGraph
from langgraph.runtime import Runtime
from langgraph.types import Command
from pydantic import BaseModel, ConfigDict, Field

from agents.handover import HandoverTool, RoleDesign
from topologies.contract import Stage, Topology


class Parameters(BaseModel):
    """`rounds`: how often the worker may be sent to work, the first time included."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    rounds: int = Field(default=3, ge=1, le=20)


class State(TypedDict):
    """Hand-overs only: small, printable, the same at any length of the lanes."""

    message: str
    rounds_used: int


async def plan(state: State, runtime: Runtime[Stage]) -> Command[Literal["work", "__end__"]]:
    handover = await runtime.context.roles["planner"].visit(state["message"])
    if handover.to_role is None:
        return Command(goto="__end__", update={"message": handover.payload})
    brief = f"{runtime.context.instruction}\n\nThe planner's brief:\n\n{handover.payload}"
    return Command(goto="work", update={"message": brief, "rounds_used": 0})


async def work(state: State, runtime: Runtime[Stage]) -> Command[Literal["check"]]:
    handover = await runtime.context.roles["worker"].visit(state["message"])
    return Command(goto="check", update={"message": handover.payload, "rounds_used": state["rounds_used"] + 1})


async def check(state: State, runtime: Runtime[Stage]) -> Command[Literal["work", "__end__"]]:
    handover = await runtime.context.roles["planner"].visit(state["message"])
    out_of_rounds = state["rounds_used"] >= runtime.context.parameters.rounds
    goto: Literal["work", "__end__"] = "__end__" if handover.to_role is None or out_of_rounds else "work"
    return Command(goto=goto, update={"message": handover.payload})


def graph() -> StateGraph[State, Stage, State, State]:
    topology = StateGraph(State, context_schema=Stage)
    topology.add_node(plan)
    topology.add_node(work)
    topology.add_node(check)
    topology.add_edge(START, "plan")
    return topology


DELEGATE = HandoverTool(
    name="delegate",
    to_role="worker",
    description="Send the worker to work, or back to work. You get the worker's report as this call's result.",
    parameter="brief",
    parameter_description="All that the worker needs beyond the task's text: what to do, in which order, what to mind.",
)
APPROVE = HandoverTool(
    name="approve",
    to_role=None,
    description="Hand in the work as it stands. Call it when you have checked that the task is done.",
    parameter="summary",
    parameter_description="What was done and how you checked it, in a few sentences.",
)
SUBMIT = HandoverTool(
    name="submit",
    to_role="planner",
    description="Report back to the planner, who checks the work and approves it or sends you back.",
    parameter="report",
    parameter_description="What you did, how you checked it, and what you are unsure of.",
)

TOPOLOGY = Topology(
    name="planner_worker",
    summary="an expensive model plans and checks, a cheap one does the work",
    roles=(
        RoleDesign(name="planner", prompt="planner", handovers=(DELEGATE, APPROVE)),
        RoleDesign(name="worker", prompt="worker", handovers=(SUBMIT,)),
    ),
    parameters=Parameters,
    build=graph,
)
