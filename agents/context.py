"""What a role forgets on purpose: a policy that rewrites its lane when its prompt has become too long.

    truncate   old tool output is cut in the middle
    clear      old tool output is replaced by one line
    compact    the model writes down what must be kept, and that takes the place of the older part of the conversation

Here is decided when, and by what; `agents.room` does it. Nothing else ever changes an earlier message of a lane.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Literal

from agents.clients import Client, ToolResult
from agents.lane import Block, Message
from agents.wire_text import wire_text

Policy = Literal["truncate", "clear", "compact"]
Outcome = Literal["rewritten", "no_text", "tool_calls", "unfinished", "too_long"]
"""What came of it: all but `rewritten` are a model's answers of which no conversation can be made."""

TRIES = 2
"""So often in a row a model may fail to compact a lane before it is asked no more."""

KEPT = (
    "[Your conversation up to here was compacted. You wrote the summary below of it; the newest {} of your answers and "
    "what came of them follow whole.]"
)
"""Stands between the task and the summary. A simulated model goes by its number."""


@dataclass(frozen=True, slots=True)
class ContextPolicy:
    """It acts when the last answer's prompt and output had more than `above_tokens`, by the provider's own count.

    `keep_last`: so many of the newest tool results (compact: of the newest answers, with what came of them) stay whole,
    and in any case what the model has not read yet. `keep_bytes` is what truncate leaves of a result. truncate and
    clear wait until `at_least_bytes` can go at once: an alteration costs the cache of all that comes after it.
    """

    policy: Policy
    above_tokens: int
    keep_last: int = 3
    keep_bytes: int = 1000
    at_least_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Rewriting:
    """`messages` for all from the index `first` on; `results` tool results among them are cut."""

    first: int
    messages: Sequence[Message]
    results: int = 0


@dataclass(frozen=True, slots=True)
class Rewrite:
    """One rewriting as it is recorded. `turn` is the first that is sent the new `version`, `first` its first altered
    block; blocks and bytes (without overlays) are the lane's. `call`: the key of the call that asked for a summary."""

    role: str
    lane: str
    version: int
    policy: Policy
    outcome: Outcome
    turn: int
    call: str | None
    first: int
    results: int
    blocks_before: int
    blocks_after: int
    bytes_before: int
    bytes_after: int
    at: datetime


@dataclass(slots=True)
class _Results:
    """The results of one answer's calls, from the message `first` on; `open` are the places of those that are not old
    yet (tools' output, not what another role said), `shorter` what old ones will be cut to."""

    first: int
    results: list[ToolResult]
    open: deque[int]
    shorter: dict[int, str] = field(default_factory=dict)


@dataclass(slots=True)
class Context:
    """One role's. `size` is the tokens that the lane's last answer left, None while nobody knows; `prompt` asks for a
    summary."""

    plan: ContextPolicy
    client: Client
    prompt: str
    size: int | None = None
    failures: int = 0
    bytes: int = 0
    _opening: str = ""
    _summary: int = 0
    _blocks: list[Block] = field(default_factory=list)
    _answers: deque[_Results] = field(default_factory=deque)
    _ready: list[_Results] = field(default_factory=list)
    _open: int = 0
    _gain: int = 0

    def begin(self) -> None:
        """The role begins another lane."""
        self.size, self.failures, self.bytes = None, 0, 0
        self._opening, self._summary, self._open, self._gain = "", 0, 0, 0
        self._blocks, self._answers, self._ready = [], deque(), []

    def told(self, message: str) -> None:
        """What a visit's message says, before it is appended: the first one is the task."""
        self._opening = self._opening or message

    def answering(self, results: Sequence[ToolResult], handed_over: str | None = None) -> None:
        """The results of an answer's calls are about to be appended; what the call `handed_over` is answered with is no
        tool's output."""
        if self.plan.policy == "compact":
            return
        places = deque(place for place, result in enumerate(results) if result.call_id != handed_over)
        self._answers.append(_Results(len(self._blocks), list(results), places))
        self._open += len(places)

    def append(self, block: Block) -> None:
        self._blocks.append(block)
        self.bytes += block.size

    def rewritten(self, first: int, blocks: Sequence[Block]) -> None:
        """The lane was rewritten from the message `first` on; how long it is will be known with the next answer."""
        self.bytes += sum(block.size for block in blocks) - sum(block.size for block in self._blocks[first:])
        self._blocks[first:] = blocks
        self.size = None

    @property
    def full(self) -> bool:
        """Whether it is time to act. Never after an answer that the provider paused, which goes on as things stand."""
        return (
            self.size is not None
            and self.size > self.plan.above_tokens
            and bool(self._blocks)
            and self._blocks[-1].role != "assistant"
        )

    def shortened(self) -> Rewriting | None:
        """Old tool output cut or cleared; None when nothing can be, or too little. What was cut once is not touched
        again."""
        self._look_at_old()
        if not self._gain or self._gain < self.plan.at_least_bytes:
            return None
        altered: dict[int, Message] = {}
        cut = sum(len(answer.shorter) for answer in self._ready)
        for answer in self._ready:
            for place, text in answer.shorter.items():
                answer.results[place] = replace(answer.results[place], text=text)
            answer.shorter = {}
            altered |= enumerate(self.client.results(answer.results), start=answer.first)
        self._ready, self._gain = [], 0
        first = min(altered)
        tail = enumerate((block.content for block in self._blocks[first:]), start=first)
        return Rewriting(first, [altered.get(index, content) for index, content in tail], cut)

    def _look_at_old(self) -> None:
        """Finds out of each result that has become old how short it would be. The newest have not been read yet."""
        while self._open > self.plan.keep_last and len(self._answers) > 1:
            answer = self._answers[0]
            while answer.open and self._open > self.plan.keep_last:
                place = answer.open.popleft()
                self._open -= 1
                text = wire_text(answer.results[place].text)
                shorter = self._shorter(text)
                gain = len(text.encode()) - len(shorter.encode())
                if gain > 0:
                    if not answer.shorter:
                        self._ready.append(answer)
                    answer.shorter[place] = shorter
                    self._gain += gain
            if not answer.open:
                self._answers.popleft()

    def _shorter(self, text: str) -> str:
        if self.plan.policy == "truncate":
            return _cut_in_the_middle(text, self.plan.keep_bytes)
        return f"[cleared: {len(text.encode())} bytes of a tool's output; run it again if you need it]"

    @property
    def compactable(self) -> bool:
        """Whether a summary could take the place of more than its own length, if it is as long as the last one."""
        if self.failures >= TRIES:
            return False
        dropped = self._blocks[1 : self._kept_from(self._blocks)]
        return sum(block.size for block in dropped) > self._summary

    def compacted(self, summary: str) -> Rewriting | None:
        """The task as it was first told and the summary, then the newest answers whole; None when the summary is longer
        than what it would replace. The last block is the request for the summary."""
        blocks = self._blocks[:-1]
        start = self._kept_from(blocks)
        note = f"{KEPT.format(self.plan.keep_last)}\n\n{summary}"
        if len(note.encode()) >= sum(block.size for block in blocks[1:start]):
            return None
        self._summary = len(note.encode())
        head = self.client.user(f"{self._opening}\n\n{note}")
        return Rewriting(0, [head, *(block.content for block in blocks[start:])])

    def taken_back(self) -> Rewriting:
        """The lane without its last message, the request for a summary."""
        return Rewriting(len(self._blocks) - 2, [self._blocks[-2].content])

    def _kept_from(self, blocks: Sequence[Block]) -> int:
        """The index of the message with which the newest answers begin; 1 where there are no older ones."""
        answers = 0
        for index in range(len(blocks) - 1, 0, -1):
            if blocks[index].role == "assistant" and blocks[index - 1].role != "assistant":
                answers += 1
                if answers == self.plan.keep_last:
                    return index
        return 1


def _cut_in_the_middle(text: str, keep: int) -> str:
    """`keep` bytes of it, and in their middle how many were left out."""
    raw = text.encode()
    if len(raw) <= keep:
        return text
    head = raw[: (keep + 1) // 2].decode(errors="ignore")
    tail = raw[len(raw) - keep // 2 :].decode(errors="ignore")
    left_out = len(raw) - len(head.encode()) - len(tail.encode())
    return f"{head}\n[cut: {left_out} bytes left out here]\n{tail}"
