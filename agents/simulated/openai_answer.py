"""Answers in the shape of the OpenAI chat completions protocol, with OpenAI's or DeepSeek's usage object."""

from collections.abc import Iterator, Mapping

import orjson

from agents.simulated.emission import Call, Emission, pieces
from agents.simulated.errors import Refused
from agents.simulated.persona import Shape
from agents.simulated.prefix_cache import Split

Usage = dict[str, object]

_STOPPED = {"said": "stop", "call": "tool_calls", "length": "length"}


def usage(split: Split, emission: Emission, shape: Shape) -> Usage:
    """`prompt_tokens` includes what was read from the cache and what was written to it, `completion_tokens` what was
    thought."""
    output_tokens = emission.tokens
    written = sum(split.written.values())
    prompt = split.read + written + split.uncached
    details = {"cached_tokens": split.read}
    if shape == "openai":
        details["cache_write_tokens"] = written
    result: Usage = {
        "prompt_tokens": prompt,
        "completion_tokens": output_tokens,
        "total_tokens": prompt + output_tokens,
        "prompt_tokens_details": details,
        "completion_tokens_details": {"reasoning_tokens": emission.thinking_tokens},
    }
    if shape == "deepseek":
        result["prompt_cache_hit_tokens"] = split.read
        result["prompt_cache_miss_tokens"] = prompt - split.read
    return result


def shown(emission: Emission, shape: Shape) -> str:
    """What was thought, where the shape has a place for it; OpenAI's own models hide it here."""
    return "".join(thought.text for thought in emission.thoughts) if shape == "deepseek" else ""


def whole(emission: Emission, model: str, created: int, totals: Usage, thought: str) -> bytes:
    message: dict[str, object] = {"role": "assistant", "content": emission.text or None, "refusal": None}
    if thought:
        message["reasoning_content"] = thought
    if emission.calls:
        message["tool_calls"] = [_call(call, call.arguments) for call in emission.calls]
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _STOPPED[emission.stopped]}
    return orjson.dumps(_head(emission, model, created, "chat.completion") | {"choices": [choice], "usage": totals})


def stream(emission: Emission, model: str, created: int, totals: Usage | None, thought: str) -> Iterator[bytes]:
    """Three chunks: up to the first token, the rest of the content, the end. `totals` None: usage was not asked for."""
    head = _head(emission, model, created, "chat.completion.chunk")
    if totals is not None:
        head["usage"] = None

    def delta(value: Mapping[str, object], finish: str | None = None) -> bytes:
        return _event(head | {"choices": [{"index": 0, "delta": value, "logprobs": None, "finish_reason": finish}]})

    yield delta({"role": "assistant", "content": ""})
    chunks = [delta({"content": None, "reasoning_content": piece}) for piece in pieces(thought)]
    chunks += [delta({"content": piece}) for piece in pieces(emission.text)]
    for index, call in enumerate(emission.calls):
        chunks.append(delta({"tool_calls": [{"index": index, **_call(call, "")}]}))
        chunks += [
            delta({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
            for piece in pieces(call.arguments)
        ]
    if chunks:
        yield b"".join(chunks)
    end = delta({}, _STOPPED[emission.stopped])
    if totals is not None:
        end += _event(head | {"choices": [], "usage": totals})
    yield end + b"data: [DONE]\n\n"


def error(refused: Refused) -> bytes:
    body = {"message": refused.message, "type": refused.kind, "param": refused.param, "code": refused.code}
    return orjson.dumps({"error": body})


def models(ids: list[str], created: int) -> bytes:
    data = [{"id": name, "object": "model", "created": created, "owned_by": "simulated"} for name in ids]
    return orjson.dumps({"object": "list", "data": data})


def _head(emission: Emission, model: str, created: int, kind: str) -> dict[str, object]:
    return {"id": f"chatcmpl-sim-{emission.id}", "object": kind, "created": created, "model": model}


def _call(call: Call, arguments: str) -> dict[str, object]:
    return {"id": f"call_{call.id}", "type": "function", "function": {"name": call.name, "arguments": arguments}}


def _event(data: Mapping[str, object]) -> bytes:
    return b"data: " + orjson.dumps(data) + b"\n\n"
