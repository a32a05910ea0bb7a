"""Price-aware: an expensive lead is told what its own tokens cost, and decides what it does and what it hands over.

    START ──▶ lead ──▶ END
              │  ▲
              ▼  │
              work             at most `rounds` times

Here no rule sends work to the cheap model: the lead has all the tools, and one more, which hands a piece of the work,
or all of it, to the worker. Once the rounds are used up a further `delegate` ends the trial, and what is there counts.
"""

from decimal import Decimal
from typing import Any, Literal, TypedDict

from langgraph.graph import START, StateGraph
from langgraph.runtime import Runtime
from langgraph.types import Command
from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictFloat, field_validator, model_validator

from agents.handover import HandoverTool, RoleDesign
from topologies.contract import RatioOf, Stage, Topology

DIGITS = 3
"""Of a ratio that is told: a price that moves by less makes no other prompt."""


class Parameters(BaseModel):
    """`ratio`: what a token of the lead's costs in tokens of the worker's, as the lead is told at the end of its first
    message; true: that of the two models' output prices at the experiment's `prices_at`; false: it is told nothing.

    `delegate`: whether the lead can hand work over. false: the same lead, prompt and tools without that one; there is
    no role `worker` then, and no ratio. `rounds`: how often the worker may be sent to work.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    ratio: StrictBool | StrictFloat = 20.0
    delegate: StrictBool = True
    rounds: int = Field(default=10, ge=1, le=100, strict=True)

    @field_validator("ratio", mode="before")
    @classmethod
    def _is_a_ratio(cls, value: object) -> object:
        if isinstance(value, bool):
            return value
        if not isinstance(value, int | float) or not 0.001 <= value <= 1_000_000:
            raise ValueError("expected a number from 0.001 to 1000000, true (the true ratio) or false (not told)")
        return float(value)

    @model_validator(mode="before")
    @classmethod
    def _no_ratio_without_a_worker(cls, given: Any) -> Any:
        if not isinstance(given, dict) or given.get("delegate") is not False:
            return given
        if given.get("ratio", False) is not False:
            raise ValueError("`delegate: false` leaves no worker whose price could be told; leave `ratio` out")
        if "rounds" in given:
            raise ValueError("`delegate: false` leaves no worker who could be sent to work; leave `rounds` out")
        return {**given, "ratio": False}


class State(TypedDict):
    """Hand-overs only. `rounds`: how often the worker has been sent to work."""

    message: str
    rounds: int


async def lead(state: State, runtime: Runtime[Stage]) -> Command[Literal["work", "__end__"]]:
    stage, rounds = runtime.context, state.get("rounds", 0)
    message = state["message"] if rounds else opening(stage.instruction, stage.parameters.ratio)
    handover = await stage.roles["lead"].visit(message)
    if handover.to_role is None or rounds >= stage.parameters.rounds:
        return Command(goto="__end__", update={"message": handover.payload})
    brief = handover.payload if rounds else f"{stage.instruction}\n\nThe lead's brief:\n\n{handover.payload}"
    return Command(goto="work", update={"message": brief, "rounds": rounds + 1})


async def work(state: State, runtime: Runtime[Stage]) -> Command[Literal["lead"]]:
    handover = await runtime.context.roles["worker"].visit(state["message"])
    return Command(goto="lead", update={"message": handover.payload})


def opening(instruction: str, ratio: float | bool) -> str:
    """The lead's first message. A simulated lead goes by its last sentence."""
    if isinstance(ratio, bool):
        return instruction
    return f"{instruction}\n\nOne token that you write or read costs as much as {figure(ratio)} of the worker's."


def figure(ratio: float) -> str:
    """To `DIGITS` digits, without an exponent: 20, 33.3, 0.25."""
    return f"{Decimal(f'{ratio:.{DIGITS}g}').normalize():f}"


def settle(parameters: Parameters, ratio_of: RatioOf) -> Parameters:
    """With the true ratio in the place of `ratio: true`, as exact as it is told."""
    if parameters.ratio is not True:
        return parameters
    return parameters.model_copy(update={"ratio": float(figure(float(ratio_of("lead", "worker"))))})


def cast(parameters: Parameters) -> tuple[RoleDesign, ...]:
    return (LEAD, WORKER) if parameters.delegate else (RoleDesign(name="lead", prompt="lead", handovers=(SUBMIT,)),)


def graph() -> StateGraph[State, Stage, State, State]:
    topology = StateGraph(State, context_schema=Stage)
    topology.add_node(lead)
    topology.add_node(work)
    topology.add_edge(START, "lead")
    return topology


DELEGATE = HandoverTool(
    name="delegate",
    to_role="worker",
    description="Hand a piece of the work, or all of it, to the worker: another model, in the same sandbox. It sees "
    "the task's text and your briefs, not your conversation. You get its report as this call's result.",
    parameter="brief",
    parameter_description="All that the worker needs beyond the task's text: what to do, in which order, what to mind.",
)
SUBMIT = HandoverTool(
    name="submit",
    to_role=None,
    description="Hand in the work as it stands. Call it once, when the task is done and you are content with it.",
    parameter="report",
    parameter_description="What was done and how it was checked, in a few sentences.",
)
REPORT = HandoverTool(
    name="submit",
    to_role="lead",
    description="Report back to the lead, who hands the work in or sends you to work again.",
    parameter="report",
    parameter_description="What you did, how you checked it, and what you are unsure of.",
)

LEAD = RoleDesign(name="lead", prompt="lead", handovers=(DELEGATE, SUBMIT))
WORKER = RoleDesign(name="worker", prompt="lead_worker", handovers=(REPORT,))

TOPOLOGY = Topology(
    name="price_aware",
    summary="a lead that is told its price does the work or hands it to a cheap worker",
    roles=(LEAD, WORKER),
    parameters=Parameters,
    build=graph,
    cast=cast,
    settle=settle,
)
