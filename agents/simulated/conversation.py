"""A request in neutral form: what a persona sees, whichever protocol it came by."""

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

Speaker = Literal["system", "user", "assistant", "tool"]


class Said(NamedTuple):
    """One thing said. `calls` are the (id, tool name) pairs that an assistant called; `answers` is the id of the call
    whose result this is."""

    speaker: Speaker
    text: str
    calls: tuple[tuple[str, str], ...] = ()
    answers: str | None = None


COMMAND_TOOL = "bash"
"""The one tool that runs commands. A call of any other tool hands over and ends the caller's visit."""


@dataclass(slots=True)
class Transcript:
    """All that was said, in order, with the places of the assistant's turns and of those that handed over."""

    said: list[Said] = field(default_factory=list)
    turns: list[int] = field(default_factory=list)
    handed_over: list[int] = field(default_factory=list)

    def add(self, line: Said) -> None:
        if line.speaker == "assistant":
            self.turns.append(len(self.said))
            if any(name != COMMAND_TOOL for _, name in line.calls):
                self.handed_over.append(len(self.said))
        self.said.append(line)

    def cut(self, length: int) -> "Transcript":
        """A transcript of its own with the first `length` lines."""
        return Transcript(
            self.said[:length],
            self.turns[: bisect_left(self.turns, length)],
            self.handed_over[: bisect_left(self.handed_over, length)],
        )

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
    """`tools` is empty when tools may not be called. `max_output_tokens` bounds the answer."""

    system: str
    tools: tuple[Tool, ...]
    transcript: Transcript
    max_output_tokens: int


class Answer(NamedTuple):
    """What a persona says, and the one tool that it calls, as (name, parameter, text); None when it calls none."""

    text: str
    call: tuple[str, str, str] | None
