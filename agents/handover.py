"""How a role ends its visit: delegating, submitting and giving a verdict are one mechanism."""

from dataclasses import dataclass, field

from agents.arguments import Arguments, text_form


class HandoverForm(Arguments):
    """What a hand-over tool takes that is more than one text."""

    def told(self) -> str:
        """All that the next role hears of it."""
        raise NotImplementedError

    def receiver(self, to_role: str | None) -> str | None:
        """Who gets it; `to_role` is the tool's own."""
        return to_role


@dataclass(frozen=True, slots=True)
class Handover:
    """`kind` is the hand-over tool that was called ("submit", "delegate", "approve", ...), `payload` its text: all that
    the next role is told. `to_role` is None when the chain ends here. `tool_call_id` is answered when the role is
    visited again: the next message becomes that call's result. `form` is what a tool with a form took."""

    kind: str
    to_role: str | None
    payload: str
    tool_call_id: str
    form: HandoverForm | None = None


@dataclass(frozen=True, slots=True)
class HandoverTool:
    """A tool that ends the visit. It takes one required string, named `parameter`, or else a `form`."""

    name: str
    to_role: str | None
    description: str
    parameter: str = ""
    parameter_description: str = ""
    form: type[HandoverForm] | None = None

    @property
    def arguments(self) -> type[Arguments]:
        return self.form or text_form(self.parameter, self.parameter_description)

    def handover(self, arguments: Arguments, tool_call_id: str) -> Handover:
        if isinstance(arguments, HandoverForm):
            to_role = arguments.receiver(self.to_role)
            return Handover(self.name, to_role, arguments.told(), tool_call_id, arguments)
        return Handover(self.name, self.to_role, str(getattr(arguments, self.parameter)), tool_call_id)


@dataclass(frozen=True, slots=True)
class RoleDesign:
    """What a topology says of a role: its name, its prompt and how it may hand over.

    `prompt` names agents/prompts/<prompt>.md, or is the path of a Markdown file beside a topology of one's own. `tools`
    are those that it has besides its hand-overs, by the names of `agents.tools.shelf`; an experiment may name others.
    The tools never change within a lane: they are the head of the prefix that the cache holds. `one_answer`: what it
    says first is all that it may say; where that hands nothing over, the visit ends without.
    """

    name: str
    prompt: str
    handovers: tuple[HandoverTool, ...]
    tools: tuple[str, ...] = field(default=("bash",))
    one_answer: bool = False
