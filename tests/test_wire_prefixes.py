"""Whatever is said, no byte that was sent ever changes: each request begins with the one before it."""

import re
from itertools import pairwise
from typing import Any

import httpx2
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.clients import Client, ToolResult, connect
from agents.clients.anthropic_answer import AnthropicAnswer
from agents.clients.chat_answer import ChatAnswer
from agents.clients.responses_answer import ResponsesAnswer
from agents.registry import ModelEntry
from agents.tools.bash import BASH
from tests.wire_answers import PIECES, reasoning_item, responses_items, responses_stream
from tests.wire_provider import NONCE, entry, options

OVERLAYS = re.compile(rb',"(?:cache_control|prompt_cache_breakpoint)":\{[^{}]*\}')
ENTRIES = {
    "anthropic": entry("sim-claude-opus-5-5"),
    "anthropic-automatic": entry("sim-claude-opus-5-5", caching="automatic"),
    "chat": entry("sim-deepseek-v4-flash"),
    "chat-marks": entry("openrouter-sonnet-5.5"),
    "chat-breakpoints": entry("sim-gpt-6.1-sol", protocol="openai_chat"),
    "responses": entry("sim-gpt-6.1-sol"),
    "responses-automatic": entry("grok-4.7"),
}
texts = st.text(st.characters(codec="utf-8"), max_size=30)
thoughts = st.booleans()
turns = st.lists(st.tuples(texts, thoughts, st.lists(texts, max_size=25)), min_size=1, max_size=6)


def spoken(model: ModelEntry, text: str, thinks: bool, arguments: list[str]) -> Any:
    """The reply of a client to a stream that says so much."""
    calls = [(f"c{n}", "bash", orjson.dumps({"command": a}).decode()) for n, a in enumerate(arguments)]
    if model.protocol == "openai_responses":
        answer: Any = ResponsesAnswer(model, "k")
        items = [*([reasoning_item()] if thinks else []), *responses_items(text, calls)]
        pieces = responses_stream(items)
    else:
        answer = AnthropicAnswer() if model.protocol == "anthropic_messages" else ChatAnswer(model)
        pieces = PIECES[model.protocol](text, calls)
    if thinks and model.protocol == "anthropic_messages":
        answer.add(
            {"type": "content_block_start", "index": -1, "content_block": {"type": "thinking", "thinking": text}}
        )
        answer.add({"type": "content_block_delta", "index": -1, "delta": {"type": "signature_delta", "signature": "s"}})
        answer.add({"type": "content_block_stop", "index": -1})
    elif thinks and model.protocol == "openai_chat":
        answer.add({"choices": [{"delta": {"reasoning_content": text}}]})
    for piece in pieces:
        for line in piece.split(b"\n"):
            if line.startswith(b"data: {"):
                answer.add(orjson.loads(line[6:]))
    return answer.reply(0.0)


def client_of(model: ModelEntry, lifetime: str | None) -> Client:
    http = httpx2.AsyncClient(transport=httpx2.MockTransport(lambda _: httpx2.Response(500)))
    return connect(model, key="k", options=options(lifetime=lifetime), http=http)


@pytest.mark.parametrize("way", list(ENTRIES))
@given(history=turns, form=st.sampled_from(["tools", "json_schema", "fenced"]), longer=st.booleans())
@settings(max_examples=25)
def test_no_history_ever_changes_a_byte_that_was_sent(
    way: str, history: list[tuple[str, bool, list[str]]], form: str, longer: bool
) -> None:
    model = ENTRIES[way].model_copy(update={"actions": form})
    marked = model.cache_request in ("marks", "breakpoints")
    lifetime = {"marks": "1h", "breakpoints": "12h"}.get(model.cache_request) if longer else None
    client = client_of(model, lifetime)
    lane = client.open_lane("solo-0", "system", [BASH], NONCE)
    lane.append(client.user("begin"))
    sent = [client.render(lane)]
    for text, thinks, outputs in history:
        calls = outputs if form == "tools" else []
        reply = spoken(model, text, thinks, calls)
        if reply.message is not None:
            lane.append(reply.message)
        results = [ToolResult(call.id, output) for call, output in zip(reply.tool_calls, calls, strict=True)]
        for message in client.results(results) if results else [client.user(text)]:
            lane.append(message)
        body = client.render(lane)
        assert body == client.render(lane)
        marks = OVERLAYS.findall(body)
        assert bool(marks) is marked
        assert len(marks) <= 4
        assert len(set(marks)) <= 1
        if marked:
            # The last block is always marked, so that the next request finds all of this one.
            assert body.endswith(marks[0] + b"}]}]}")
        sent.append(body)
    canonical = [OVERLAYS.sub(b"", body) for body in sent] if marked else sent
    for before, after in pairwise(canonical):
        assert after.startswith(before.removesuffix(b"]}") + b",")
    for body in sent:
        orjson.loads(body)
    # The place of the previous request's entry is marked again, so that it is found however long the turn was.
    for before, after in pairwise(sent):
        if marked:
            ends = len(OVERLAYS.sub(b"", before)) - len(b"}]}]}")
            offsets, taken = [], 0
            for match in OVERLAYS.finditer(after):
                offsets.append(match.start() - taken)
                taken += match.end() - match.start()
            assert ends in offsets
