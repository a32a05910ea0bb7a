"""What is really sent as an answer: the persona's words cut to the bound that the request set, with ids and a count."""

from dataclasses import dataclass
from typing import Literal

import orjson

from agents.simulated.acting import Form, say
from agents.simulated.conversation import Answer
from agents.simulated.thought import Thought, call_id
from agents.simulated.tokenizer import BYTES_PER_TOKEN, count


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call as it is sent: `arguments` is JSON text."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Emission:
    """`tokens` counts each thought, the text, and each call's name and arguments as one block; `thinking_tokens` are
    those of the thoughts among them."""

    id: str
    text: str
    calls: tuple[Call, ...]
    tokens: int
    stopped: Literal["said", "call", "length"]
    thoughts: tuple[Thought, ...] = ()
    thinking_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Manner:
    """How an answer is given: acting in which form, ids bound to thoughts (`model` is who thinks; None: nobody does),
    and whether the second half of the thinking is redacted."""

    form: Form = "tools"
    model: str | None = None
    redacts: bool = False


def emit(answer: Answer, fingerprint: str, max_tokens: int, manner: Manner) -> Emission:
    """Cuts `answer` to `max_tokens`. A tool call that does not fit is not sent at all, nor are those after it."""
    thoughts = _thoughts(answer.thinking, max_tokens, manner)
    thinking = sum(count(thought.text.encode()) for thought in thoughts)
    spoken = answer.text
    if manner.form != "tools" and answer.calls:
        spoken = say(manner.form, answer.text, answer.calls[0].act)
    text = spoken.encode()
    tokens = thinking + count(text)
    if tokens > max_tokens or thinking < count(answer.thinking.encode()):
        text = text[: max(0, max_tokens - thinking) * BYTES_PER_TOKEN].decode(errors="ignore").encode()
        return Emission(fingerprint, text.decode(), (), thinking + count(text), "length", thoughts, thinking)
    calls: list[Call] = []
    if manner.form == "tools":
        for number, (name, parameter, value) in enumerate(answer.calls):
            arguments = orjson.dumps({parameter: value}) if parameter else value.encode()
            with_call = tokens + count(name.encode() + arguments)
            if with_call > max_tokens:
                return Emission(fingerprint, spoken, tuple(calls), tokens, "length", thoughts, thinking)
            tokens = with_call
            calls.append(Call(_id(manner, thoughts, fingerprint, number), name, arguments.decode()))
    return Emission(fingerprint, spoken, tuple(calls), tokens, "call" if calls else "said", thoughts, thinking)


def _thoughts(thinking: str, max_tokens: int, manner: Manner) -> tuple[Thought, ...]:
    text = thinking.encode()[: max_tokens * BYTES_PER_TOKEN].decode(errors="ignore")
    if not text:
        return ()
    if not manner.redacts:
        return (Thought(text),)
    # Cut at a whole token, so that the halves count as much as the whole.
    half = len(text.encode()) // 2 // BYTES_PER_TOKEN * BYTES_PER_TOKEN
    shown = text.encode()[:half].decode(errors="ignore")
    return tuple(thought for thought in (Thought(shown), Thought(text[len(shown) :], redacted=True)) if thought.text)


def _id(manner: Manner, thoughts: tuple[Thought, ...], fingerprint: str, number: int) -> str:
    if manner.model is None:
        return fingerprint[8 * number : 8 * number + 24]
    return call_id(manner.model, thoughts, fingerprint, number)


def pieces(text: str, size: int = 192) -> list[str]:
    """`text` as the deltas of a stream carry it, at most `size` characters each; nothing of an empty text."""
    return [text[start : start + size] for start in range(0, len(text), size)]
