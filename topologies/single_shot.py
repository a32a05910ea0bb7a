"""Single shot: one answer, a command or a JSON plan of commands, which is carried out unseen.

    START ──▶ answer ──▶ carry_out ──▶ END

The baseline of simple harnesses: one call of the model, no loop. What the commands print goes to nobody; the verifier
decides what they were worth. An answer without a plan, or with one that does not fit, ends the trial as `no_handover`:
to tell the model what was wrong would be a second shot.
"""

from typing import Annotated, Literal, TypedDict

import orjson
from langgraph.graph import START, StateGraph
from langgraph.runtime import Runtime
from langgraph.types import Command
from pydantic import BaseModel, ConfigDict, Field

from agents.handover import HandoverForm, HandoverTool, RoleDesign
from topologies.contract import Stage, Topology

MOST_COMMANDS = 50
LONGEST = 20_000
"""Characters of one command."""

Line = Annotated[str, Field(min_length=1, max_length=LONGEST)]


class Parameters(BaseModel):
    """`on_failure`: what follows a command of the plan that fails (an exit code other than 0, or its time is up). stop:
    none of those after it is run. continue: they are."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    on_failure: Literal["stop", "continue"] = "stop"


class OneCommand(HandoverForm):
    command: Line = Field(description="The command line or script to run.")

    def told(self) -> str:
        return self.command


class Plan(HandoverForm):
    commands: list[Line] = Field(
        min_length=1, max_length=MOST_COMMANDS, description="The command lines or scripts to run, in their order."
    )

    def told(self) -> str:
        return orjson.dumps({"commands": self.commands}).decode()


class State(TypedDict):
    """`commands`: those that were handed over."""

    message: str
    commands: list[str]


async def answer(state: State, runtime: Runtime[Stage]) -> Command[Literal["carry_out"]]:
    handover = await runtime.context.roles["solver"].visit(state["message"])
    commands = handover.form.commands if isinstance(handover.form, Plan) else [handover.payload]
    return Command(goto="carry_out", update={"message": handover.payload, "commands": commands})


async def carry_out(state: State, runtime: Runtime[Stage]) -> Command[Literal["__end__"]]:
    stop = runtime.context.parameters.on_failure == "stop"
    codes = await runtime.context.roles["solver"].execute(state["commands"], stop=stop)
    told = f"{len(codes)} of {len(state['commands'])} commands ran; exit codes: {', '.join(map(str, codes))}"
    return Command(goto="__end__", update={"message": told})


def graph() -> StateGraph[State, Stage, State, State]:
    topology = StateGraph(State, context_schema=Stage)
    topology.add_node(answer)
    topology.add_node(carry_out)
    topology.add_edge(START, "answer")
    return topology


PLAN = HandoverTool(
    name="plan",
    to_role=None,
    description="Hands in a plan: commands that are run in bash one after the other, in one shell whose working "
    "directory and exported variables last from command to command. You will not see what they print. "
    f"At most {MOST_COMMANDS} commands of {LONGEST} characters.",
    form=Plan,
)
COMMAND = HandoverTool(
    name="command",
    to_role=None,
    description="Hands in one command, where one is enough, instead of a plan. It is run in bash. You will not see "
    "what it prints.",
    form=OneCommand,
)

TOPOLOGY = Topology(
    name="single_shot",
    summary="one answer, a command or a plan of commands, run unseen; no loop",
    roles=(RoleDesign(name="solver", prompt="solver", handovers=(PLAN, COMMAND), tools=(), one_answer=True),),
    parameters=Parameters,
    build=graph,
)
