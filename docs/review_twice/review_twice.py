"""Review twice: a cheap model writes, an expensive one reads what it left behind, at most twice.

    START ──▶ write ──▶ first ──▶ mend ──▶ second ──▶ END
                          └─────▶ END

What the second reading finds is told to nobody: the verifier decides.
"""

from typing import Literal, TypedDict

from langgraph.graph import START, StateGraph
from langgraph.runtime import Runtime
from langgraph.types import Command
from pydantic import BaseModel, ConfigDict

from agents.handover import HandoverTool, RoleDesign
from topologies import Stage, Topology


class Parameters(BaseModel):
    """`fresh`: whether the second reading is done with fresh eyes, on a new lane, or by who remembers the first."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    fresh: bool = True


class State(TypedDict):
    message: str


async def write(state: State, runtime: Runtime[Stage]) -> Command[Literal["first"]]:
    report = await runtime.context.roles["writer"].visit(state["message"])
    return Command(goto="first", update={"message": f"{runtime.context.instruction}\n\nA report:\n\n{report.payload}"})


async def first(state: State, runtime: Runtime[Stage]) -> Command[Literal["mend", "__end__"]]:
    verdict = await runtime.context.roles["critic"].visit(state["message"])
    goto: Literal["mend", "__end__"] = "__end__" if verdict.to_role is None else "mend"
    return Command(goto=goto, update={"message": verdict.payload})


async def mend(state: State, runtime: Runtime[Stage]) -> Command[Literal["second"]]:
    report = await runtime.context.roles["writer"].visit(state["message"])
    return Command(goto="second", update={"message": report.payload})


async def second(state: State, runtime: Runtime[Stage]) -> Command[Literal["__end__"]]:
    critic, fresh = runtime.context.roles["critic"], runtime.context.parameters.fresh
    message = f"{runtime.context.instruction}\n\nA report:\n\n{state['message']}" if fresh else state["message"]
    verdict = await critic.visit(message, anew=fresh)
    return Command(goto="__end__", update={"message": verdict.payload})


def graph() -> StateGraph[State, Stage, State, State]:
    topology = StateGraph(State, context_schema=Stage)
    for node in (write, first, mend, second):
        topology.add_node(node)
    topology.add_edge(START, "write")
    return topology


SUBMIT = HandoverTool("submit", "critic", "Hand your work to the critic.", "report", "What you did and checked.")
REJECT = HandoverTool("reject", "writer", "Send the work back to be mended.", "findings", "What is wrong, and where.")
APPROVE = HandoverTool("approve", None, "Accept the work. It ends the task.", "summary", "What you checked.")

TOPOLOGY = Topology(
    name="review_twice",
    summary="a cheap model writes, an expensive one reviews at most twice",
    roles=(
        RoleDesign("writer", "writer.md", (SUBMIT,)),
        RoleDesign("critic", "critic.md", (APPROVE, REJECT)),
    ),
    parameters=Parameters,
    build=graph,
)
