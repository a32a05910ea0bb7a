"""Solo: one model does the whole task.

    START ──▶ solve ──▶ END

The baseline that every arrangement has to beat: one lane, so its cache is read every few seconds and rarely expires.
"""

from typing import Literal, TypedDict

from langgraph.graph import START, StateGraph
from langgraph.runtime import Runtime
from langgraph.types import Command
from pydantic import BaseModel, ConfigDict

from agents.handover import HandoverTool, RoleDesign
from topologies.contract import Stage, Topology


class Parameters(BaseModel):
    """None: a solo is what its model and prompt make of it."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class State(TypedDict):
    message: str


async def solve(state: State, runtime: Runtime[Stage]) -> Command[Literal["__end__"]]:
    handover = await runtime.context.roles["solo"].visit(state["message"])
    return Command(goto="__end__", update={"message": handover.payload})


def graph() -> StateGraph[State, Stage, State, State]:
    topology = StateGraph(State, context_schema=Stage)
    topology.add_node(solve)
    topology.add_edge(START, "solve")
    return topology


SUBMIT = HandoverTool(
    name="submit",
    to_role=None,
    description="Hand in the finished work. Call it once, when the task is done and you have checked it.",
    parameter="report",
    parameter_description="What you did and how you checked it, in a few sentences.",
)

TOPOLOGY = Topology(
    name="solo",
    summary="one model does the whole task",
    roles=(RoleDesign(name="solo", prompt="solo", handovers=(SUBMIT,)),),
    parameters=Parameters,
    build=graph,
)
