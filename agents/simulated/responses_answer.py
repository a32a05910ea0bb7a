"""Answers in the shape of the OpenAI Responses protocol: one object, or its events."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import orjson

from agents.simulated.emission import Emission, pieces
from agents.simulated.prefix_cache import Split
from agents.simulated.responses_parameters import ENCRYPTED
from agents.simulated.thought import call_id, reasoning_id, seal

Item = dict[str, object]

_ECHOED: Mapping[str, object] = {
    "instructions": None,
    "max_output_tokens": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "prompt_cache_key": None,
    "safety_identifier": None,
    "store": True,
    "temperature": 1.0,
    "tool_choice": "auto",
    "tools": [],
    "top_p": 1.0,
    "truncation": "disabled",
}


@dataclass(frozen=True, slots=True)
class Answering:
    """What an answer is made of. `created`: seconds since 1970; `lifetime`: of breakpoints that name none, or empty."""

    emission: Emission
    model: str
    document: Mapping[str, object]
    split: Split
    created: int
    implicit: bool
    lifetime: str


def usage(split: Split, emission: Emission) -> Item:
    """`input_tokens` includes what was read from the cache and what was written to it, `output_tokens` what was
    thought."""
    written = sum(split.written.values())
    details: Item = {"cached_tokens": split.read, "cache_write_tokens": written}
    if written:
        details["cache_write_tokens_details"] = {
            "ttl_30m_tokens": split.written.get("30m", 0),
            "ttl_12h_tokens": split.written.get("12h", 0),
        }
    prompt = split.read + written + split.uncached
    return {
        "input_tokens": prompt,
        "input_tokens_details": details,
        "output_tokens": emission.tokens,
        "output_tokens_details": {"reasoning_tokens": emission.thinking_tokens},
        "total_tokens": prompt + emission.tokens,
    }


def whole(answering: Answering) -> bytes:
    return orjson.dumps(_response(answering, _ended(answering), _items(answering)))


def stream(answering: Answering) -> Iterator[bytes]:
    """Three chunks: up to the first token, the items, the end, which alone carries usage."""
    events = _Events()
    began = _response(answering, "in_progress", [])
    yield events.add("response.created", response=began) + events.add("response.in_progress", response=began)
    items = _items(answering)
    if items:
        yield b"".join(_item_events(events, index, item) for index, item in enumerate(items))
    ended = _ended(answering)
    yield events.add(f"response.{ended}", response=_response(answering, ended, items))


class _Events:
    """Numbers them."""

    def __init__(self) -> None:
        self._number = -1

    def add(self, kind: str, **more: object) -> bytes:
        self._number += 1
        data = orjson.dumps({"type": kind, **more, "sequence_number": self._number})
        return b"event: " + kind.encode() + b"\ndata: " + data + b"\n\n"


def _ended(answering: Answering) -> str:
    return "incomplete" if answering.emission.stopped == "length" else "completed"


def _response(answering: Answering, status: str, items: Sequence[Item]) -> Item:
    document, done = answering.document, status != "in_progress"
    text, reasoning = document.get("text"), document.get("reasoning")
    asked = reasoning if isinstance(reasoning, dict) else {}
    response: Item = {
        "id": f"resp_sim_{answering.emission.id}",
        "object": "response",
        "created_at": answering.created,
        "status": status,
        "background": False,
        "error": None,
        "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
        "model": answering.model,
        "output": items,
        "previous_response_id": None,
        "reasoning": {"effort": asked.get("effort"), "summary": asked.get("summary")},
        "service_tier": "default",
        "text": {"format": {"type": "text"}, **(text if isinstance(text, dict) else {})},
        "usage": usage(answering.split, answering.emission) if done else None,
    }
    if status == "completed":
        response["completed_at"] = answering.created
    if answering.lifetime:
        mode = "implicit" if answering.implicit else "explicit"
        response["prompt_cache_options"] = {"mode": mode, "ttl": answering.lifetime}
    for name, default in _ECHOED.items():
        value = document.get(name)
        response[name] = default if value is None else value
    return response


def _items(answering: Answering) -> list[Item]:
    emission, cut = answering.emission, answering.emission.stopped == "length"
    items: list[Item] = []
    if emission.thoughts:
        items.append(_reasoning(answering))
    if emission.text:
        part = {"type": "output_text", "annotations": [], "logprobs": [], "text": emission.text}
        name = call_id(answering.model, emission.thoughts, emission.id, 15)
        items.append({"id": f"msg_{name}", "type": "message", "role": "assistant", "content": [part]})
    items += [
        {
            "id": f"fc_{call.id}",
            "type": "function_call",
            "call_id": f"call_{call.id}",
            "name": call.name,
            "arguments": call.arguments,
        }
        for call in emission.calls
    ]
    for number, item in enumerate(items):
        item["status"] = "incomplete" if cut and number == len(items) - 1 else "completed"
    return items


def _reasoning(answering: Answering) -> Item:
    thought = "".join(thought.text for thought in answering.emission.thoughts)
    asked = answering.document.get("reasoning")
    summary: list[Item] = []
    if isinstance(asked, dict) and (asked.get("summary") or asked.get("generate_summary")):
        summary = [{"type": "summary_text", "text": ". ".join(thought.split(". ")[:2])}]
    item: Item = {"id": reasoning_id(answering.emission.id), "type": "reasoning", "summary": summary}
    include = answering.document.get("include")
    if isinstance(include, list) and ENCRYPTED in include:
        item["encrypted_content"] = seal(answering.model, thought)
    return item


def _item_events(events: _Events, index: int, item: Item) -> bytes:
    at: Item = {"item_id": item["id"], "output_index": index}
    began = {**item, "status": "in_progress"}
    if item["type"] == "message":
        middle = _message_events(events, began, item, at, index)
    elif item["type"] == "function_call":
        began["arguments"] = ""
        middle = _call_events(events, began, item, at, index)
    else:
        # What is sealed is whole only when the item is done.
        began = {key: value for key, value in began.items() if key != "encrypted_content"} | {"summary": []}
        middle = _reasoning_events(events, began, item, at, index)
    return middle + events.add("response.output_item.done", output_index=index, item=item)


def _parts(item: Item, name: str) -> list[dict[str, str]]:
    value = item[name]
    return value if isinstance(value, list) else []


def _message_events(events: _Events, began: Item, item: Item, at: Item, index: int) -> bytes:
    (part,) = _parts(item, "content")
    at = {**at, "content_index": 0}
    began["content"] = []
    chunks = [
        events.add("response.output_item.added", output_index=index, item=began),
        events.add("response.content_part.added", **at, part={**part, "text": ""}),
    ]
    chunks += [events.add("response.output_text.delta", **at, delta=text, logprobs=[]) for text in pieces(part["text"])]
    chunks += [
        events.add("response.output_text.done", **at, text=part["text"], logprobs=[]),
        events.add("response.content_part.done", **at, part=part),
    ]
    return b"".join(chunks)


def _call_events(events: _Events, began: Item, item: Item, at: Item, index: int) -> bytes:
    arguments = str(item["arguments"])
    chunks = [events.add("response.output_item.added", output_index=index, item=began)]
    chunks += [events.add("response.function_call_arguments.delta", **at, delta=text) for text in pieces(arguments)]
    chunks.append(events.add("response.function_call_arguments.done", **at, arguments=arguments, name=item["name"]))
    return b"".join(chunks)


def _reasoning_events(events: _Events, began: Item, item: Item, at: Item, index: int) -> bytes:
    chunks = [events.add("response.output_item.added", output_index=index, item=began)]
    for number, part in enumerate(_parts(item, "summary")):
        where: Item = {**at, "summary_index": number}
        text = part["text"]
        chunks.append(events.add("response.reasoning_summary_part.added", **where, part={**part, "text": ""}))
        chunks += [events.add("response.reasoning_summary_text.delta", **where, delta=piece) for piece in pieces(text)]
        chunks.append(events.add("response.reasoning_summary_text.done", **where, text=text))
        chunks.append(events.add("response.reasoning_summary_part.done", **where, part=part))
    return b"".join(chunks)
