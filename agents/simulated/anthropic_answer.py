"""Answers in the shape of the Anthropic Messages protocol."""

from collections.abc import Iterator, Mapping

import orjson

from agents.simulated.emission import Emission, pieces
from agents.simulated.errors import Refused
from agents.simulated.prefix_cache import Split

Usage = dict[str, object]

_STOPPED = {"said": "end_turn", "call": "tool_use", "length": "max_tokens"}


def usage(split: Split, output_tokens: int) -> Usage:
    """The three prompt figures are disjoint and add up to the prompt; the split by lifetime adds up to the writes."""
    return {
        "input_tokens": split.uncached,
        "cache_creation_input_tokens": sum(split.written.values()),
        "cache_read_input_tokens": split.read,
        "cache_creation": {
            "ephemeral_5m_input_tokens": split.written.get("5m", 0),
            "ephemeral_1h_input_tokens": split.written.get("1h", 0),
        },
        "output_tokens": output_tokens,
        "service_tier": "standard",
    }


def whole(emission: Emission, model: str, split: Split) -> bytes:
    content: list[dict[str, object]] = []
    if emission.text:
        content.append({"type": "text", "text": emission.text})
    if emission.call is not None:
        call = emission.call
        content.append(
            {"type": "tool_use", "id": f"toolu_{call.id}", "name": call.name, "input": orjson.loads(call.arguments)}
        )
    message = _message(emission, model) | {
        "content": content,
        "stop_reason": _STOPPED[emission.stopped],
        "usage": usage(split, emission.tokens),
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
    blocks: list[bytes] = []
    if emission.text:
        blocks += _block(
            len(blocks),
            {"type": "text", "text": ""},
            [{"type": "text_delta", "text": piece} for piece in pieces(emission.text)],
        )
    if emission.call is not None:
        call = emission.call
        blocks += _block(
            1 if emission.text else 0,
            {"type": "tool_use", "id": f"toolu_{call.id}", "name": call.name, "input": {}},
            [{"type": "input_json_delta", "partial_json": piece} for piece in ("", *pieces(call.arguments))],
        )
    if blocks:
        yield b"".join(blocks)
    totals = usage(split, emission.tokens)
    del totals["cache_creation"], totals["service_tier"]
    delta = {"stop_reason": _STOPPED[emission.stopped], "stop_sequence": None}
    yield _event({"type": "message_delta", "delta": delta, "usage": totals}) + _event({"type": "message_stop"})


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
