"""Answers as the three wire protocols stream them, in pieces."""

from collections.abc import Mapping, Sequence

import orjson


def sse(event: Mapping[str, object]) -> bytes:
    kind = event.get("type")
    name = b"" if kind is None else b"event: " + str(kind).encode() + b"\n"
    return name + b"data: " + orjson.dumps(event) + b"\n\n"


def halves(text: str) -> tuple[str, str]:
    middle = len(text) // 2
    return text[:middle], text[middle:]


ANTHROPIC_USAGE = {
    "input_tokens": 12,
    "cache_creation_input_tokens": 300,
    "cache_read_input_tokens": 5000,
    "cache_creation": {"ephemeral_5m_input_tokens": 300, "ephemeral_1h_input_tokens": 0},
    "output_tokens": 1,
    "service_tier": "standard",
}


def anthropic_pieces(
    text: str = "", calls: Sequence[tuple[str, str, str]] = (), stop_reason: str | None = None
) -> list[bytes]:
    """`calls` are (id, name, arguments as JSON text); arguments come in two fragments."""
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "wire-model", "content": []}
    events: list[Mapping[str, object]] = [
        {"type": "message_start", "message": {**message, "stop_reason": None, "usage": ANTHROPIC_USAGE}},
        {"type": "ping"},
        {"type": "an_event_from_the_future", "index": 0},
    ]
    blocks: list[tuple[dict[str, object], list[dict[str, object]]]] = []
    if text:
        deltas: list[dict[str, object]] = [{"type": "text_delta", "text": part} for part in halves(text)]
        blocks.append(({"type": "text", "text": ""}, deltas))
    for call_id, name, arguments in calls:
        deltas = [{"type": "input_json_delta", "partial_json": part} for part in halves(arguments)]
        blocks.append(({"type": "tool_use", "id": call_id, "name": name, "input": {}}, deltas))
    for index, (block, deltas) in enumerate(blocks):
        events.append({"type": "content_block_start", "index": index, "content_block": block})
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": index})
    reason = stop_reason or ("tool_use" if calls else "end_turn")
    delta = {"stop_reason": reason, "stop_sequence": None}
    events.append({"type": "message_delta", "delta": delta, "usage": {"output_tokens": 80}})
    events.append({"type": "message_stop"})
    return [sse(event) for event in events]


OPENAI_USAGE = {
    "prompt_tokens": 5312,
    "completion_tokens": 80,
    "total_tokens": 5392,
    "prompt_tokens_details": {"cached_tokens": 5000, "audio_tokens": None},
}


def openai_pieces(
    text: str = "", calls: Sequence[tuple[str, str, str]] = (), finish_reason: str | None = None
) -> list[bytes]:
    """Parallel calls come interleaved: first halves of all arguments, then second halves."""
    base = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "wire-model"}

    def chunk(delta: object, reason: str | None = None) -> dict[str, object]:
        return {**base, "choices": [{"index": 0, "delta": delta, "finish_reason": reason}], "usage": None}

    events = [chunk({"role": "assistant", "content": None})]
    events += [chunk({"content": part}) for part in halves(text) if part]
    for index, (call_id, name, arguments) in enumerate(calls):
        function = {"name": name, "arguments": halves(arguments)[0]}
        events.append(
            chunk({"tool_calls": [{"index": index, "id": call_id, "type": "function", "function": function}]})
        )
    for index, (_, _, arguments) in enumerate(calls):
        events.append(chunk({"tool_calls": [{"index": index, "function": {"arguments": halves(arguments)[1]}}]}))
    events.append(chunk({}, finish_reason or ("tool_calls" if calls else "stop")))
    events.append({**base, "choices": [], "usage": OPENAI_USAGE})
    return [*(sse(event) for event in events), b"data: [DONE]\n\n"]


RESPONSES_USAGE = {
    "input_tokens": 5312,
    "input_tokens_details": {
        "cached_tokens": 5000,
        "cache_write_tokens": 300,
        "cache_write_tokens_details": {"ttl_30m_tokens": 300, "ttl_12h_tokens": 0},
    },
    "output_tokens": 80,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 5392,
}


def reasoning_item(number: int = 1) -> dict[str, object]:
    return {
        "id": f"rs_{number}",
        "type": "reasoning",
        "summary": [{"type": "summary_text", "text": "hm"}],
        "encrypted_content": f"gAAA{number}==",
    }


def responses_items(
    text: str = "", calls: Sequence[tuple[str, str, str]] = (), *, thinks: bool = False
) -> list[dict[str, object]]:
    items = [reasoning_item()] if thinks else []
    if text:
        part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
        items.append({"id": "msg_1", "type": "message", "status": "completed", "role": "assistant", "content": [part]})
    for call_id, name, arguments in calls:
        items.append(
            {
                "id": f"fc_{call_id}",
                "type": "function_call",
                "status": "completed",
                "call_id": call_id,
                "name": name,
                "arguments": arguments,
            }
        )
    return items


def responses_stream(items: Sequence[Mapping[str, object]], reason: str | None = None) -> list[bytes]:
    """`items` told twice, as the API does: arguments and text in pieces, then whole. `reason`: why it is incomplete."""
    base: dict[str, object] = {
        "id": "resp_1",
        "object": "response",
        "model": "wire-model",
        "error": None,
        "incomplete_details": None,
    }
    begun: dict[str, object] = {**base, "status": "in_progress", "output": [], "usage": None}
    events: list[Mapping[str, object]] = [
        {"type": "response.created", "response": begun},
        {"type": "response.in_progress", "response": begun},
        {"type": "response.an_event_from_the_future", "output_index": 0},
    ]
    for index, item in enumerate(items):
        place = {"output_index": index, "item_id": item.get("id")}
        events.append({"type": "response.output_item.added", **place, "item": {**item, "status": "in_progress"}})
        for part in halves(str(item.get("arguments", ""))):
            events.append({"type": "response.function_call_arguments.delta", **place, "delta": part})
        events.append({"type": "response.output_item.done", **place, "item": item})
    kind = "completed" if reason is None else "incomplete"
    details = None if reason is None else {"reason": reason}
    last = {**base, "status": kind, "incomplete_details": details, "output": list(items), "usage": RESPONSES_USAGE}
    events.append({"type": f"response.{kind}", "response": last})
    return [sse({**event, "sequence_number": number}) for number, event in enumerate(events)]


def responses_pieces(
    text: str = "", calls: Sequence[tuple[str, str, str]] = (), reason: str | None = None
) -> list[bytes]:
    return responses_stream(responses_items(text, calls), reason)


PIECES = {
    "anthropic_messages": anthropic_pieces,
    "openai_chat": openai_pieces,
    "openai_responses": responses_pieces,
}
