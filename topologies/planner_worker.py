"""Planner and worker: an expensive model plans and checks, a cheap one does the work.

    START ──▶ plan ──▶ work ──▶ check ──▶ END
               │        ▲         │
               ▼        └─ again ─┘        at most `rounds` times
              END

While the worker works nobody reads the planner's lane; if that lasts longer than the planner's cache lives, the next
`check` writes its whole context again. So the planner's memory is a parameter: what it still knows when it checks.
What the worker leaves behind counts, also when the rounds run out before the planner is content: the verifier decides,
not the planner.
"""

from typing import Literal, TypedDict

from langgraph.graph import START, StateGraph
from langgraph.runtime import Runtime
from langgraph.types import Command
from pydantic import BaseModel, ConfigDict, Field

from agents.handover import HandoverTool, RoleDesign
from topologies.contract import Stage, Topology

Memory = Literal["full", "digest", "fresh"]


class Parameters(BaseModel):
    """`rounds`: how often the worker may be sent to work, the first time included.

    `memory`: what the planner knows when it checks. full: its whole conversation. digest: the task, all of its briefs
    and the worker's reports. fresh: the task and the latest report. The last two open a new lane for each check.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    rounds: int = Field(default=3, ge=1, le=20, strict=True)
    memory: Memory = "full"


class State(TypedDict):
    """Hand-overs only: small, printable, the same at any length of the lanes. `told`: briefs and reports in turn."""

    message: str
    told: list[str]


async def plan(state: State, runtime: Runtime[Stage]) -> Command[Literal["work", "__end__"]]:
    note = FORGETFUL.get(runtime.context.parameters.memory)
    message = state["message"] if note is None else f"{state['message']}\n\n{note}"
    handover = await runtime.context.roles["planner"].visit(message)
    if handover.to_role is None:
        return Command(goto="__end__", update={"message": handover.payload})
    brief = f"{runtime.context.instruction}\n\nThe planner's brief:\n\n{handover.payload}"
    return Command(goto="work", update={"message": brief, "told": [handover.payload]})


async def work(state: State, runtime: Runtime[Stage]) -> Command[Literal["check"]]:
    handover = await runtime.context.roles["worker"].visit(state["message"])
    return Command(goto="check", update={"message": handover.payload, "told": [*state["told"], handover.payload]})


async def check(state: State, runtime: Runtime[Stage]) -> Command[Literal["work", "__end__"]]:
    planner, parameters, told = runtime.context.roles["planner"], runtime.context.parameters, state["told"]
    if parameters.memory == "full":
        handover = await planner.visit(state["message"])
    else:
        handover = await planner.visit(reminder(runtime.context.instruction, told, parameters.memory), anew=True)
    out_of_rounds = len(told) // 2 >= parameters.rounds
    goto: Literal["work", "__end__"] = "__end__" if handover.to_role is None or out_of_rounds else "work"
    return Command(goto=goto, update={"message": handover.payload, "told": [*told, handover.payload]})


def reminder(instruction: str, told: list[str], memory: Memory) -> str:
    """The first message of a planner that has forgotten. Its second line is what a simulated planner goes by."""
    rounds = len(told) // 2
    parts = [instruction, f"You have sent the worker to work on this {rounds} times; your conversation was not kept."]
    if memory == "digest":
        for number, (brief, report) in enumerate(zip(told[::2], told[1::2], strict=True), 1):
            parts += [f"Your brief {number}:\n\n{brief}", f"The worker's report {number}:\n\n{report}"]
    else:
        parts.append(f"The worker's latest report:\n\n{told[-1]}")
    return "\n\n".join([*parts, "Check the work now, then approve it or send the worker back."])


def graph() -> StateGraph[State, Stage, State, State]:
    topology = StateGraph(State, context_schema=Stage)
    topology.add_node(plan)
    topology.add_node(work)
    topology.add_node(check)
    topology.add_edge(START, "plan")
    return topology


FORGETFUL = {
    "digest": "When the worker reports, you will know this task, your briefs and the worker's reports, and nothing "
    "else of this conversation: put into the brief what you will need to check the work.",
    "fresh": "When the worker reports, you will know this task and the report, and nothing else of this conversation.",
}
"""By memory, what a planner is told that will forget."""

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
