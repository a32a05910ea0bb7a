"""Hears one streamed answer with a real client: its reply, what was booked, and what the next request would send."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from agents.clients import Reply, connect
from agents.errors import TryFailed
from agents.registry import ModelEntry
from agents.tools.bash import BASH
from agents.transport import open_http
from cost_model.calls import CallEnded
from tests.wire_answers import ANTHROPIC_USAGE, OPENAI_USAGE, sse
from tests.wire_provider import NONCE, Notes, Provider, Script, current_call, entry, options, served

CLAUDE, DEEPSEEK, GPT = entry("sim-claude-opus-5-5"), entry("sim-deepseek-v4-flash"), entry("sim-gpt-6.1-sol")
LS = ("c1", "bash", '{"command": "ls"}')


@dataclass
class Heard:
    reply: Reply
    ended: CallEnded
    next_request: dict[str, Any]
    """What the next turn would send."""


async def hear(model: ModelEntry, *pieces: bytes, over_http: bool = False) -> Heard:
    notes, provider = Notes(), Provider(Script(pieces))
    async with served(provider.app) as url:
        way: dict[str, Any] = {"simulator_url": url} if over_http else {"simulator": provider.app}
        async with open_http(**way) as http:
            client = connect(model, key="k", options=options(), http=http)
            lane = client.open_lane("solo-0", "You are tested.", [BASH], NONCE)
            lane.append(client.user("begin"))
            reply = await client.ask(lane, current_call(model, notes))
            if reply.message is not None:
                lane.append(reply.message)
            [ended] = notes.ends
            return Heard(reply, ended, _parsed(client.render(lane)))


async def fail(model: ModelEntry, script: Script) -> tuple[TryFailed, CallEnded]:
    notes = Notes()
    async with open_http(simulator=Provider(script).app) as http:
        client = connect(model, key="k", options=options(), http=http)
        lane = client.open_lane("solo-0", "You are tested.", [BASH], NONCE)
        lane.append(client.user("begin"))
        with pytest.raises(TryFailed) as caught:
            await client.ask(lane, current_call(model, notes))
    [ended] = notes.ends
    return caught.value, ended


def _parsed(body: bytes) -> dict[str, Any]:
    import orjson

    parsed: dict[str, Any] = orjson.loads(body)
    return parsed


def chunk(delta: object = None, reason: str | None = None, **more: object) -> dict[str, object]:
    choice: dict[str, object] = {"index": 0, "delta": {} if delta is None else delta, "finish_reason": reason}
    return {"id": "chat_1", "model": "wire-model", "choices": [choice], **more}


async def hear_chat(*chunks: Mapping[str, object], model: ModelEntry = DEEPSEEK) -> Heard:
    last = {"id": "chat_1", "choices": [], "usage": OPENAI_USAGE}
    return await hear(model, *map(sse, [*chunks, last]), b"data: [DONE]\n\n")


def anthropic_stream(blocks: Sequence[tuple[Any, Sequence[Any]]], reason: str) -> list[bytes]:
    """Blocks with their deltas; the deltas of all blocks come interleaved, as thinking and tools may."""
    events: list[dict[str, object]] = [
        {"type": "message_start", "message": {"id": "msg_1", "model": "wire-model", "usage": ANTHROPIC_USAGE}}
    ]
    for index, (block, _) in enumerate(blocks):
        events.append({"type": "content_block_start", "index": index, "content_block": block})
    for step in range(max((len(deltas) for _, deltas in blocks), default=0)):
        for index, (_, deltas) in enumerate(blocks):
            if step < len(deltas):
                events.append({"type": "content_block_delta", "index": index, "delta": deltas[step]})
    events += [{"type": "content_block_stop", "index": index} for index in range(len(blocks))]
    events.append({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 80}})
    events.append({"type": "message_stop"})
    return [sse(event) for event in events]
