"""One request's prompt while it is read: its chain of hashes, its cache marks, and what was said.

Reading a conversation anew on every turn would make each call cost more than the one before. A prompt can therefore be
cut back to any of its messages and read on from there (recollection.py decides when that is allowed).
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from agents.simulated.conversation import Transcript
from agents.simulated.persona import Persona
from agents.simulated.prefix_cache import Mark
from agents.simulated.prompt_chain import Chain, State
from agents.simulated.thought import Thought


class Reasoning(NamedTuple):
    """The last reasoning item of a Responses prompt; `followed` once what it was thought for has come."""

    id: str
    thoughts: tuple[Thought, ...]
    followed: bool


class Point(NamedTuple):
    """Where a prompt stood after one message."""

    state: State
    said: int
    marks: int
    waiting: tuple[str, ...]
    role: str
    fault: str
    reasoning: Reasoning | None


@dataclass(slots=True)
class Prompt:
    """`base` is the chain's state before the first message; `points` has one entry a message. `waiting` are the tool
    calls whose results must come yet. `fault` is what is wrong with the thinking that had to come back, if anything
    is: it counts when the request ends there."""

    persona: Persona
    chain: Chain
    marks: list[Mark] = field(default_factory=list)
    transcript: Transcript = field(default_factory=Transcript)
    points: list[Point] = field(default_factory=list)
    base: State | None = None
    waiting: tuple[str, ...] = ()
    role: str = ""
    fault: str = ""
    reasoning: Reasoning | None = None

    def begin_messages(self) -> None:
        self.base = self.chain.state()

    def end_message(self, role: str, waiting: tuple[str, ...]) -> None:
        self.role = role
        self.waiting = waiting
        said, marks = len(self.transcript.said), len(self.marks)
        self.points.append(Point(self.chain.state(), said, marks, waiting, role, self.fault, self.reasoning))

    def cut(self, messages: int) -> "Prompt":
        """A prompt of its own that stands where this one stood after so many messages (at least one)."""
        point = self.points[messages - 1]
        return Prompt(
            persona=self.persona,
            chain=self.chain.cut(point.state),
            marks=self.marks[: point.marks],
            transcript=self.transcript.cut(point.said),
            points=self.points[:messages],
            base=self.base,
            waiting=point.waiting,
            role=point.role,
            fault=point.fault,
            reasoning=point.reasoning,
        )
