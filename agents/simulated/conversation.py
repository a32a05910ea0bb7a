"""A request in neutral form: what a persona sees, whichever protocol it came by."""

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from agents.simulated.acting import Act, Form, form_of, heard
from agents.tools.shelf import SHELF

Speaker = Literal["system", "user", "assistant", "tool"]


class Said(NamedTuple):
    """One thing said. `calls` are the (id, tool name) pairs that an assistant called; `answers` is the id of the call
    whose result this is."""

    speaker: Speaker
    text: str
    calls: tuple[tuple[str, str], ...] = ()
    answers: str | None = None


COMMAND_TOOL = "bash"
"""The one tool that runs commands."""

WORKING_TOOLS = frozenset(SHELF)
"""Those that work in a sandbox. A call of any other tool hands over and ends the caller's visit."""


@dataclass(slots=True)
class Transcript:
    """All that was said, in order, with the places where the assistant's turns begin and of what it handed over with.

    `form` is how the assistant acts, told by the system text; `told` is how many lines had been said by then. Where it
    acts in words, what it does counts as a call all the same, and what the user says next as its result.
    """

    said: list[Said] = field(default_factory=list)
    turns: list[int] = field(default_factory=list)
    handed_over: list[int] = field(default_factory=list)
    form: Form = "tools"
    told: int = 0

    def tell(self, system: str) -> None:
        """Takes the form of acting from a system text that is no line of the conversation."""
        self.form = form_of(system)

    def add(self, line: Said) -> None:
        if self.form != "tools":
            line = self._acted(line)
        place = len(self.said)
        if line.speaker == "assistant":
            if not self.said or self.said[-1].speaker != "assistant":
                self.turns.append(place)
            if any(name not in WORKING_TOOLS for _, name in line.calls):
                self.handed_over.append(place)
        self.said.append(line)
        if line.speaker == "system" and self.form == "tools":
            self.form, self.told = form_of(line.text), place + 1

    def cut(self, length: int) -> "Transcript":
        """A transcript of its own with the first `length` lines."""
        form: Form = self.form if self.told <= length else "tools"
        return Transcript(
            self.said[:length],
            self.turns[: bisect_left(self.turns, length)],
            self.handed_over[: bisect_left(self.handed_over, length)],
            form,
            self.told if form != "tools" else 0,
        )

    def _acted(self, line: Said) -> Said:
        if line.speaker == "assistant" and not line.calls and (act := heard(self.form, line.text)) is not None:
            return line._replace(calls=((f"act-{len(self.said)}", act.tool),))
        if line.speaker == "user" and self.said and self.said[-1].speaker == "assistant" and self.said[-1].calls:
            return line._replace(speaker="tool", answers=self.said[-1].calls[0][0])
        return line

    @property
    def visit(self) -> list[int]:
        """The places of the turns since the last hand-over."""
        return self.turns[bisect_right(self.turns, self.handed_over[-1]) :] if self.handed_over else self.turns


class Tool(NamedTuple):
    """A tool that is offered: its name, description, and the parameter that a single text goes into."""

    name: str
    description: str
    parameter: str


@dataclass(frozen=True, slots=True)
class Request:
    """`tools` is empty when tools may not be called. `max_output_tokens` bounds the answer, `thinks` scales how much
    is thought before it (0: nothing), `parallel` allows more than one call, `schema` asks for an answer by a schema."""

    system: str
    tools: tuple[Tool, ...]
    transcript: Transcript
    max_output_tokens: int
    thinks: float = 1.0
    parallel: bool = True
    schema: bool = False


class ToolCall(NamedTuple):
    """A call of a tool with one text, which goes into `parameter`; without one the text is all arguments, as JSON."""

    tool: str
    parameter: str
    text: str

    @property
    def act(self) -> Act:
        return Act(self.tool, self.text)


class Answer(NamedTuple):
    """What a persona says, the tools that it calls, and what it thinks before."""

    text: str
    calls: tuple[ToolCall, ...] = ()
    thinking: str = ""
