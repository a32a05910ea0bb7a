"""What is really sent as an answer: the persona's words cut to the bound that the request set, with ids and a count."""

from dataclasses import dataclass
from typing import Literal

import orjson

from agents.simulated.conversation import Answer
from agents.simulated.tokenizer import BYTES_PER_TOKEN, count


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call as it is sent: `arguments` is JSON text."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Emission:
    """`tokens` counts the text as one block and the call's name and arguments as another."""

    id: str
    text: str
    call: Call | None
    tokens: int
    stopped: Literal["said", "call", "length"]


def emit(answer: Answer, fingerprint: str, max_tokens: int) -> Emission:
    """Cuts `answer` to `max_tokens`. A tool call that does not fit is not sent at all. Ids come from `fingerprint`."""
    text = answer.text.encode()
    tokens = count(text)
    if tokens > max_tokens:
        text = text[: max_tokens * BYTES_PER_TOKEN].decode(errors="ignore").encode()
        return Emission(fingerprint, text.decode(), None, count(text), "length")
    if answer.call is None:
        return Emission(fingerprint, answer.text, None, tokens, "said")
    name, parameter, value = answer.call
    arguments = orjson.dumps({parameter: value})
    with_call = tokens + count(name.encode() + arguments)
    if with_call > max_tokens:
        return Emission(fingerprint, answer.text, None, tokens, "length")
    call = Call(fingerprint[:24], name, arguments.decode())
    return Emission(fingerprint, answer.text, call, with_call, "call")


def pieces(text: str, size: int = 192) -> list[str]:
    """`text` as the deltas of a stream carry it, at most `size` characters each; nothing of an empty text."""
    return [text[start : start + size] for start in range(0, len(text), size)]
