"""Answers in the shape of the Anthropic Messages protocol."""

from collections.abc import Iterator, Mapping

import orjson

from agents.simulated.emission import Call, Emission, pieces
from agents.simulated.errors import Refused
from agents.simulated.prefix_cache import Split
from agents.simulated.thought import Thought, seal, signature

Usage = dict[str, object]

_STOPPED = {"said": "end_turn", "call": "tool_use", "length": "max_tokens"}


def usage(split: Split, output_tokens: int, thinking_tokens: int = 0) -> Usage:
    """The three prompt figures are disjoint and add up to the prompt; the split by lifetime adds up to the writes."""
    details = {"output_tokens_details": {"thinking_tokens": thinking_tokens}} if thinking_tokens else {}
    return {
        "input_tokens": split.uncached,
        "cache_creation_input_tokens": sum(split.written.values()),
        "cache_read_input_tokens": split.read,
        "cache_creation": {
            "ephemeral_5m_input_tokens": split.written.get("5m", 0),
            "ephemeral_1h_input_tokens": split.written.get("1h", 0),
        },
        "output_tokens": output_tokens,
        **details,
        "service_tier": "standard",
    }


def whole(emission: Emission, model: str, split: Split) -> bytes:
    content = [_thinking(thought, model) for thought in emission.thoughts]
    if emission.text:
        content.append({"type": "text", "text": emission.text})
    content += [{**_call(call), "input": orjson.loads(call.arguments)} for call in emission.calls]
    message = _message(emission, model) | {
        "content": content,
        "stop_reason": _STOPPED[emission.stopped],
        "usage": usage(split, emission.tokens, emission.thinking_tokens),
    }
    return orjson.dumps(message)


def stream(emission: Emission, model: str, split: Split) -> Iterator[bytes]:
    """Three chunks: up to the first token, the rest of the content, the end.

    message_start carries the whole prompt usage with its split; message_delta repeats the totals, cumulative and
    without the split, as the provider does.
    """
    first = min(1, emission.tokens)
    message = _message(emission, model) | {"stop_reason": None, "usage": usage(split, first)}
    yield _event({"type": "message_start", "message": message}) + _event({"type": "ping"})
    blocks: list[tuple[Mapping[str, object], list[dict[str, str]]]] = [
        _thought_block(thought, model) for thought in emission.thoughts
    ]
    if emission.text:
        deltas = [{"type": "text_delta", "text": piece} for piece in pieces(emission.text)]
        blocks.append(({"type": "text", "text": ""}, deltas))
    for call in emission.calls:
        deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in ("", *pieces(call.arguments))]
        blocks.append((_call(call), deltas))
    if blocks:
        yield b"".join(event for index, (start, deltas) in enumerate(blocks) for event in _block(index, start, deltas))
    totals = usage(split, emission.tokens, emission.thinking_tokens)
    del totals["cache_creation"], totals["service_tier"]
    delta = {"stop_reason": _STOPPED[emission.stopped], "stop_sequence": None}
    yield _event({"type": "message_delta", "delta": delta, "usage": totals}) + _event({"type": "message_stop"})


def _call(call: Call) -> dict[str, object]:
    return {"type": "tool_use", "id": f"toolu_{call.id}", "name": call.name, "input": {}}


def _thinking(thought: Thought, model: str) -> dict[str, object]:
    if thought.redacted:
        return {"type": "redacted_thinking", "data": seal(model, thought.text)}
    return {"type": "thinking", "thinking": thought.text, "signature": signature(model, thought.text)}


def _thought_block(thought: Thought, model: str) -> tuple[Mapping[str, object], list[dict[str, str]]]:
    """A redacted block comes whole; the signature of a shown one comes last."""
    if thought.redacted:
        return _thinking(thought, model), []
    deltas = [{"type": "thinking_delta", "thinking": piece} for piece in pieces(thought.text)]
    deltas.append({"type": "signature_delta", "signature": signature(model, thought.text)})
    return {"type": "thinking", "thinking": "", "signature": ""}, deltas


def error(refused: Refused, request_id: str) -> bytes:
    body = {"type": refused.kind, "message": refused.message}
    return orjson.dumps({"type": "error", "error": body, "request_id": request_id})


def models(ids: list[str], created: str) -> bytes:
    data = [{"type": "model", "id": name, "display_name": f"{name} (simulated)", "created_at": created} for name in ids]
    ends = {"first_id": ids[0] if ids else None, "last_id": ids[-1] if ids else None}
    return orjson.dumps({"data": data, "has_more": False, **ends})


def _message(emission: Emission, model: str) -> dict[str, object]:
    return {
        "id": f"msg_sim_{emission.id}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
    }


def _block(index: int, start: Mapping[str, object], deltas: list[dict[str, str]]) -> list[bytes]:
    events = [_event({"type": "content_block_start", "index": index, "content_block": start})]
    events += [_event({"type": "content_block_delta", "index": index, "delta": delta}) for delta in deltas]
    events.append(_event({"type": "content_block_stop", "index": index}))
    return events


def _event(data: Mapping[str, object]) -> bytes:
    return b"event: " + str(data["type"]).encode() + b"\ndata: " + orjson.dumps(data) + b"\n\n"
