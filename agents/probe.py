"""Tries a model out by two calls: one that can fill its prompt cache, and the next turn, which can read from it.

The model is offered the `bash` tool and asked for one harmless command, which is never run: its result is made up. The
calls go the way of all others, through the client of the entry's protocol and the meter.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count, product
from typing import TYPE_CHECKING, Literal

from agents.actions import told
from agents.arguments import Unfit
from agents.clients import ClientOptions, Reply, ToolResult, connect
from agents.clock import Clock
from agents.errors import RegistryError, TryFailed
from agents.model_entry import ModelEntry
from agents.registry import key_of
from agents.retry import with_retries
from agents.tools.bash import BASH
from agents.transport.call import CallIdentity, CurrentCall
from cost_model.calls import Book, CallEnded, CallSent
from cost_model.policies import POLICIES

if TYPE_CHECKING:
    import httpx2

CALLS = 2
TRIES = 3
OUTPUT_TOKENS = 1_000
"""Room for a model that thinks before it acts; what it is asked for takes a few dozen tokens."""

FLOOR_TOKENS = 400
"""A cache that states no minimum, or one of a few tokens, is tried with a prompt of at least so many."""

ASKED_FOR = "echo ready"

_BYTES_PER_TOKEN = 5
"""More than the tokenizers make of the filler's words on average, so that the prompt is never too short."""

_BEYOND_THE_SYSTEM = 4_000
"""Bytes: more than tools, settings and the question take on the wire."""

_ANSWER = "exit code 0\nready"
_WORDS = (
    ("blue", "green", "old", "small", "round", "heavy"),
    ("lamp", "chair", "clock", "basket", "mirror", "table"),
    ("kitchen", "garden", "hall", "cellar", "office", "station"),
    ("morning", "evening", "summer", "winter", "market", "harvest"),
)

Acted = Literal["valid", "malformed", "none"]


@dataclass(frozen=True, slots=True)
class Exchange:
    """One answered call. `acted`: whether it has an action that could be carried out as it came; `mend` tells what was
    wrong with a malformed one."""

    sent: CallSent
    ended: CallEnded
    reply: Reply
    acted: Acted
    mend: str


class Tape:
    """A book in memory: the calls with their ends, in the order of sending."""

    def __init__(self) -> None:
        self.calls: dict[str, CallSent] = {}
        self.ends: dict[str, CallEnded] = {}

    async def sent(self, call: CallSent) -> None:
        self.calls[call.key] = call

    def ended(self, call: CallEnded) -> None:
        self.ends[call.key] = call

    def judged(self, key: str, tool_calls_valid: bool) -> None:
        pass


def system_text(entry: ModelEntry) -> str:
    """What the model is told: long enough for its cache. Raises RegistryError when the model cannot take so much."""
    wanted = max(POLICIES[entry.cache].minimum_tokens, FLOOR_TOKENS) * _BYTES_PER_TOKEN
    head = (
        "This conversation only tries out whether you can be reached and can act. Do what you are asked by exactly one "
        "action, and say nothing beside it. The notes below mean nothing: they only make this text long enough.\n"
    )
    lines = [head]
    size = len(head)
    for note in _notes():
        if size >= wanted:
            break
        lines.append(note)
        size += len(note) + 1
    text = "\n".join(lines)
    if len(text) // 3 + 2 * OUTPUT_TOKENS > entry.limits.context_tokens:
        raise RegistryError(
            f"model {entry.name}: its cache policy {entry.cache} needs a prompt of "
            f"{POLICIES[entry.cache].minimum_tokens} tokens, for which context_tokens: {entry.limits.context_tokens} "
            "has no room; mend `cache` or `limits`"
        )
    return text


def longest_prompts(entry: ModelEntry, output_tokens: int) -> tuple[int, int]:
    """Tokens that the two prompts have at most: no tokenizer makes more than one of a byte."""
    first = len(system_text(entry)) + len(told("json_schema", [BASH])) + _BEYOND_THE_SYSTEM
    return first, first + output_tokens + len(_ANSWER) + 500


class Probe:
    """The conversation with one model. Its calls are answered in turn: `first`, then `second`."""

    def __init__(
        self,
        entry: ModelEntry,
        *,
        http: "httpx2.AsyncClient",
        clock: Clock,
        book: Book,
        tape: Tape,
        nonce: str,
        output_tokens: int = OUTPUT_TOKENS,
    ) -> None:
        """`nonce` is new, so that the first call finds nothing in the cache. `tape` is what `book` writes to at last.

        Raises RegistryError when the key is missing."""
        self._entry, self._clock, self._book, self._tape = entry, clock, book, tape
        self._output_tokens = min(output_tokens, entry.limits.max_output_tokens)
        # The least effort: what it thinks about an errand is paid for and is no part of what is tried.
        effort = entry.efforts[0] if entry.efforts else None
        options = ClientOptions(self._output_tokens, f"{nonce}-check", effort=effort)
        self._client = connect(entry, key=key_of(entry), options=options, http=http)
        self._lane = self._client.open_lane("check-0", system_text(entry), [BASH], nonce)
        self._nonce = nonce
        self._turn = 0
        self._waiting: Reply | None = None
        self.failed: TryFailed | None = None
        """Why the latest try that brought no answer did not."""

    async def first(self) -> Exchange:
        """Raises ProviderRefused and VisitEnded as `agents.retry.with_retries` does, and what the book raises."""
        self._lane.append(self._client.user(f"Run this command: {ASKED_FOR}"))
        return await self._ask()

    async def second(self) -> Exchange:
        """The next turn of the same conversation; raises as `first` does."""
        if self._waiting is None:
            raise RuntimeError("the second call comes after the first")
        calls = self._waiting.tool_calls
        if calls:
            for message in self._client.results([ToolResult(call.id, _ANSWER) for call in calls]):
                self._lane.append(message)
        else:
            self._lane.append(self._client.user(f"{self._client.idle} Run this command: {ASKED_FOR}"))
        return await self._ask()

    async def _ask(self) -> Exchange:
        self._turn += 1
        call = CurrentCall(self._identity(), self._clock, self._book)
        async with self._clock.lane(self._lane.name):
            reply = await with_retries(
                lambda: self._try(call),
                name=self._entry.name,
                sleep=self._clock.sleep,
                tries=TRIES,
            )
        if reply.message is not None:
            self._lane.append(reply.message)
        self._waiting = reply
        acted, mend = _judged(reply)
        return Exchange(self._tape.calls[call.key], self._tape.ends[call.key], reply, acted, mend)

    async def _try(self, call: CurrentCall) -> Reply:
        try:
            return await self._client.ask(self._lane, call)
        except TryFailed as error:
            self.failed = error
            raise

    def _identity(self) -> CallIdentity:
        entry = self._entry
        return CallIdentity(
            trial_id=f"check-{self._nonce}",
            attempt=1,
            role="check",
            lane=self._lane.name,
            version=self._lane.version,
            turn=str(self._turn),
            model=entry.name,
            wire_model=entry.model,
            provider=entry.provider,
            flavour=self._client.flavour,
            lifetime=None,
            blocks=self._lane.blocks,
            max_output_tokens=self._output_tokens,
            simulated=entry.simulated,
        )


def _judged(reply: Reply) -> tuple[Acted, str]:
    if reply.mend:
        return "malformed", reply.mend
    if not reply.tool_calls:
        return "none", ""
    for call in reply.tool_calls:
        if call.name != BASH.name:
            return "malformed", f"it called a tool {call.name[:60]!r}, which it was not offered"
        try:
            BASH.read(call.arguments)
        except Unfit:
            return "malformed", f"its arguments are no JSON object with {BASH.text!r}: {call.raw_arguments[:100]}"
    return "valid", ""


def _notes() -> Iterator[str]:
    """Lines of common words without end, none like another for a long while."""
    for _ in count():
        for colour, thing, place, time in product(*_WORDS):
            yield f"The {colour} {thing} from the {place} was brought back before the {time}."
