"""How a role ends its visit: delegating, submitting and giving a verdict are one mechanism."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Handover:
    """`kind` is the hand-over tool that was called ("submit", "delegate", "approve", ...), `payload` its text: all that
    the next role is told. `to_role` is None when the chain ends here. `tool_call_id` is answered when the role is
    visited again: the next message becomes that call's result."""

    kind: str
    to_role: str | None
    payload: str
    tool_call_id: str


@dataclass(frozen=True, slots=True)
class HandoverTool:
    """A tool that ends the visit. It takes one required string, named `parameter`."""

    name: str
    to_role: str | None
    description: str
    parameter: str
    parameter_description: str


@dataclass(frozen=True, slots=True)
class RoleDesign:
    """What a topology says of a role: its name, its prompt (agents/prompts/<prompt>.md) and how it may hand over.

    Every role also has `bash` unless `bash` is False. The tools never change within a lane: they are the head of the
    prefix that the cache holds.
    """

    name: str
    prompt: str
    handovers: tuple[HandoverTool, ...]
    bash: bool = True
