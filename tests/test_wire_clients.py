"""The bytes that both clients put on the wire, and what they make of the answers."""

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.clients import Client, Reply, ToolResult, connect
from agents.clients.failure import failure
from agents.errors import TryFailed
from agents.handover import HandoverTool
from agents.lane import Lane
from agents.registry import ModelEntry
from agents.tools import handover_tool
from agents.tools.bash import BASH
from agents.transport import open_http
from tests.wire_provider import (
    EPOCH,
    NONCE,
    Notes,
    Provider,
    Received,
    Script,
    anthropic_pieces,
    current_call,
    entry,
    openai_pieces,
    served,
    sse,
)

CLAUDE, DEEPSEEK = entry("sim-claude-opus-5-5"), entry("sim-deepseek-v4-flash")
BOTH = pytest.mark.parametrize("model", [CLAUDE, DEEPSEEK], ids=["anthropic", "openai"])
SUBMIT = handover_tool(HandoverTool("submit", None, "Hands your work in.", "report", "What you did."))
MARK = re.compile(rb',"cache_control":\{[^}]*\}')


def pieces(model: ModelEntry, *args: Any, **named: Any) -> list[bytes]:
    return anthropic_pieces(*args, **named) if model.protocol == "anthropic_messages" else openai_pieces(*args, **named)


def client_of(model: ModelEntry, http: Any, lifetime: str | None = None) -> Client:
    return connect(model, key="test-key", lifetime=lifetime, max_output_tokens=1000, http=http)


async def converse(
    model: ModelEntry, turns: int, lifetime: str | None = None
) -> tuple[list[Received], list[Reply], Lane]:
    """So many turns of one bash call each, over the wire."""
    provider = Provider(
        *(Script(pieces(model, f"turn {n}", [(f"c{n}", "bash", '{"command":"ls"}')])) for n in range(turns))
    )
    replies = []
    async with open_http(simulator=provider.app) as http:
        client = client_of(model, http, lifetime)
        lane = client.open_lane("solo-0", "You are tested.", [BASH, SUBMIT], NONCE)
        lane.append(client.user("begin"))
        for turn in range(turns):
            reply = await client.ask(lane, current_call(model, Notes(), turn=str(turn)))
            assert reply.message is not None
            lane.append(reply.message)
            for message in client.results([ToolResult(reply.tool_calls[0].id, f"exit code 0\nfile {turn}")]):
                lane.append(message)
            replies.append(reply)
    return provider.received, replies, lane


async def ask_once(model: ModelEntry, *answer: bytes) -> Reply:
    async with open_http(simulator=Provider(Script(answer)).app) as http:
        client = client_of(model, http)
        lane = client.open_lane("solo-0", "You are tested.", [BASH], NONCE)
        lane.append(client.user("begin"))
        return await client.ask(lane, current_call(model, Notes()))


def marked_blocks(body: Any) -> list[tuple[str, int]]:
    found = [("system", i) for i, block in enumerate(body["system"]) if "cache_control" in block]
    for number, message in enumerate(body["messages"]):
        for block in message["content"]:
            if "cache_control" in block:
                assert block is message["content"][-1]
                found.append((message["role"], number))
    return found


@BOTH
async def test_each_request_begins_with_the_bytes_of_the_one_before_it(model: ModelEntry) -> None:
    received, _, _ = await converse(model, 4)
    bodies = [MARK.sub(b"", request.body) for request in received]
    for before, after in pairwise(bodies):
        assert after.startswith(before.removesuffix(b"]}") + b",")


async def test_anthropic_marks_system_and_the_ends_of_the_two_newest_turns() -> None:
    received, _, _ = await converse(CLAUDE, 3)
    assert [marked_blocks(request.json) for request in received] == [
        [("system", 0), ("user", 0)],
        [("system", 0), ("user", 0), ("user", 2)],
        [("system", 0), ("user", 2), ("user", 4)],
    ]
    assert b'"cache_control":{"type":"ephemeral"}' in received[0].body
    assert b"ttl" not in received[0].body


async def test_a_lifetime_of_an_hour_is_asked_for_in_every_mark() -> None:
    received, _, _ = await converse(CLAUDE, 2, "1h")
    assert set(MARK.findall(received[1].body)) == {b',"cache_control":{"type":"ephemeral","ttl":"1h"}'}


async def test_anthropic_gets_its_parameters_and_headers() -> None:
    received, _, _ = await converse(CLAUDE, 1)
    request, body = received[0], received[0].json
    assert request.path == "/v1/messages"
    assert request.headers["authorization"] == "Bearer test-key"
    assert request.headers["content-type"] == "application/json"
    assert "anthropic-version" in request.headers
    assert {k: body[k] for k in ("model", "max_tokens", "stream")} == {
        "model": "sim-claude-opus-5-5",
        "max_tokens": 1000,
        "stream": True,
    }
    assert body["system"][0]["text"] == f"[run {NONCE}]\nYou are tested."
    assert [tool["name"] for tool in body["tools"]] == ["bash", "submit"]
    assert body["tools"][0]["description"].startswith(f"[run {NONCE}] ")
    assert body["tools"][1]["description"] == "Hands your work in."
    assert body["tools"][1]["input_schema"]["required"] == ["report"]


async def test_openai_gets_its_parameters_and_headers() -> None:
    received, _, _ = await converse(DEEPSEEK, 1)
    request, body = received[0], received[0].json
    assert request.path == "/v1/chat/completions"
    assert request.headers["authorization"] == "Bearer test-key"
    assert body["max_tokens"] == 1000
    assert body["stream_options"] == {"include_usage": True}
    assert body["messages"][0] == {"role": "system", "content": f"[run {NONCE}]\nYou are tested."}
    assert body["tools"][0]["function"]["description"].startswith(f"[run {NONCE}] ")


async def test_openai_itself_is_given_the_limit_under_its_newer_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_ORG_ID", "org-of-the-user")
    requests = {}
    for provider_name in ("openai", "other"):
        model = entry("sim-deepseek-v4-flash", provider=provider_name)
        async with open_http(simulator=Provider().app) as http:
            client = client_of(model, http)
            lane = client.open_lane("solo-0", "s", [BASH], NONCE)
            requests[provider_name] = orjson.loads(client.render(lane))
            organization = client._sdk.organization  # type: ignore[attr-defined]  # what the SDK would send
            assert organization == ("org-of-the-user" if provider_name == "openai" else None)
    assert requests["openai"]["max_completion_tokens"] == 1000
    assert requests["other"]["max_tokens"] == 1000


@BOTH
async def test_overlays_are_no_content_of_a_block(model: ModelEntry) -> None:
    _, _, lane = await converse(model, 1)
    assert NONCE.encode() in lane.wire_head
    assert NONCE.encode() not in lane.head.encoded
    assert b"cache_control" not in lane.head.encoded + b"".join(lane.messages)
    async with open_http(simulator=Provider().app) as http:
        client = client_of(model, http)
        other = client.open_lane("solo-0", "You are tested.", [BASH, SUBMIT], "f" * 16)
    assert (other.head.hash, other.head.size) == (lane.head.hash, lane.head.size)
    assert other.wire_head != lane.wire_head


@BOTH
async def test_parallel_tool_calls_in_fragments_are_put_together(model: ModelEntry) -> None:
    calls = [("c1", "bash", '{"command": "echo ü"}'), ("c2", "bash", '{"command": "pwd"}')]
    reply = await ask_once(model, *pieces(model, "on it", calls))
    assert reply.text == "on it"
    assert [(c.id, c.name, c.arguments) for c in reply.tool_calls] == [
        ("c1", "bash", {"command": "echo ü"}),
        ("c2", "bash", {"command": "pwd"}),
    ]
    assert reply.ending == "done"


@BOTH
@pytest.mark.parametrize("arguments", ['{"command": "ls', "[1]", '"ls"', '{"a":' * 300 + "1" + "}" * 300])
async def test_arguments_that_are_no_json_object_are_invalid_and_can_still_be_sent_back(
    model: ModelEntry, arguments: str
) -> None:
    reply = await ask_once(model, *pieces(model, "", [("c1", "bash", arguments)]))
    assert reply.tool_calls[0].arguments is None
    assert reply.tool_calls[0].raw_arguments == arguments
    orjson.dumps(reply.message)


@BOTH
@pytest.mark.parametrize(
    ("anthropic_reason", "openai_reason", "ending"),
    [("max_tokens", "length", "max_tokens"), ("refusal", "content_filter", "refusal"), ("end_turn", "stop", "done")],
)
async def test_why_an_answer_ended_is_said_in_our_own_words(
    model: ModelEntry, anthropic_reason: str, openai_reason: str, ending: str
) -> None:
    reason = anthropic_reason if model is CLAUDE else openai_reason
    assert (await ask_once(model, *pieces(model, "x", (), reason))).ending == ending


@BOTH
async def test_an_answer_without_words_and_calls_leaves_nothing_to_send_back(model: ModelEntry) -> None:
    reply = await ask_once(model, *pieces(model))
    assert (reply.message, reply.tool_calls) == (None, ())


@BOTH
async def test_a_stream_that_ends_early_but_cleanly_is_no_answer(model: ModelEntry) -> None:
    with pytest.raises(TryFailed, match="before its terminal event"):
        await ask_once(model, *pieces(model, "hello")[:3])


@BOTH
async def test_events_that_are_no_json_are_a_failed_try(model: ModelEntry) -> None:
    with pytest.raises(TryFailed, match="JSONDecodeError"):
        await ask_once(model, b"event: message_start\ndata: {oops\n\n")


async def test_thinking_is_sent_back_as_it_came() -> None:
    events: list[dict[str, object]] = [
        {"type": "message_start", "message": {"id": "m", "usage": {"input_tokens": 1}}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "hm"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "c2ln"}},
        {"type": "content_block_start", "index": 1, "content_block": {"type": "redacted_thinking", "data": "eA=="}},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}},
        {"type": "message_stop"},
    ]
    reply = await ask_once(CLAUDE, *map(sse, events))
    assert reply.message is not None
    assert reply.message["content"] == [
        {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
        {"type": "redacted_thinking", "data": "eA=="},
    ]


async def test_a_surrogate_pair_split_over_two_fragments_becomes_its_character() -> None:
    def chunk(delta: str, reason: str = "null") -> bytes:
        return b'data: {"id":"x","choices":[{"index":0,"delta":{"content":"%s"},"finish_reason":%s}]}\n\n' % (
            delta.encode(),
            reason.encode(),
        )

    reply = await ask_once(DEEPSEEK, chunk("\\ud83d"), chunk("\\ude00 \\ud800 \\u0000", '"stop"'), b"data: [DONE]\n\n")
    assert reply.text == "😀 \ufffd \ufffd"


async def test_what_a_provider_adds_to_a_call_goes_back_with_it_and_a_missing_index_is_made_up_for() -> None:
    def chunk(calls: Sequence[object], reason: str | None = None) -> bytes:
        return sse({"id": "x", "choices": [{"index": 0, "delta": {"tool_calls": calls}, "finish_reason": reason}]})

    first = {"id": "a", "function": {"name": "bash", "arguments": '{"command":'}, "extra_content": {"signature": "s"}}
    second = {"id": "b", "function": {"name": "bash", "arguments": '{"command":"pwd"}'}}
    reply = await ask_once(
        DEEPSEEK, chunk([first]), chunk([{"function": {"arguments": '"ls"}'}}]), chunk([second], "tool_calls")
    )
    assert [call.arguments for call in reply.tool_calls] == [{"command": "ls"}, {"command": "pwd"}]
    assert reply.message is not None
    calls = reply.message["tool_calls"]
    assert isinstance(calls, list)
    assert calls[0]["extra_content"] == {"signature": "s"}


@BOTH
async def test_a_prompt_that_is_too_long_is_told_apart(model: ModelEntry) -> None:
    body = b'{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 9 > 8"}}'
    async with open_http(simulator=Provider(Script(status=400, body=body)).app) as http:
        client = client_of(model, http)
        lane = client.open_lane("solo-0", "s", [BASH], NONCE)
        lane.append(client.user("begin"))
        with pytest.raises(TryFailed) as caught:
            await client.ask(lane, current_call(model, Notes()))
    assert caught.value.context_full
    assert not caught.value.retryable


@BOTH
async def test_real_http_carries_the_same_bytes_and_the_same_times(model: ModelEntry) -> None:
    time = {"x-fullchain-time": "first=1;end=2;tool=3"}
    seen = []
    for over_http in (False, True):
        provider = Provider(*(Script(pieces(model, f"turn {n}"), headers=time) for n in range(2)))
        notes = Notes()
        async with served(provider.app) as url:
            way: dict[str, Any] = {"simulator_url": url} if over_http else {"simulator": provider.app}
            async with open_http(**way) as http:
                client = client_of(model, http)
                lane = client.open_lane("solo-0", "s", [BASH], NONCE)
                lane.append(client.user("begin"))
                for turn in ("1", "2"):
                    call = current_call(model, notes, turn=turn)
                    async with call.clock.lane("solo-0"):
                        reply = await client.ask(lane, call)
                    assert reply.message is not None
                    lane.append(reply.message)
        assert notes.ends[1].outcome == "complete"
        assert (notes.ends[1].ended_at - EPOCH).total_seconds() == 2
        seen.append(([request.body for request in provider.received], notes.calls, notes.ends))
    assert seen[0] == seen[1]


texts = st.text(st.characters(codec="utf-8"), min_size=1, max_size=30)
turns = st.lists(st.tuples(texts, st.lists(texts, min_size=0, max_size=3)), min_size=1, max_size=6)


@given(history=turns, lifetime=st.sampled_from([None, "1h"]))
@settings(max_examples=60, deadline=None)
def test_no_history_ever_changes_a_byte_that_was_sent(
    history: list[tuple[str, list[str]]], lifetime: str | None
) -> None:
    import httpx2

    http = httpx2.AsyncClient(transport=httpx2.MockTransport(lambda _: httpx2.Response(500)))
    for model in (CLAUDE, DEEPSEEK):
        client = client_of(model, http, lifetime)
        lane = client.open_lane("solo-0", "system", [BASH, SUBMIT], NONCE)
        sent: list[bytes] = []
        for said, outputs in history:
            messages = client.results([ToolResult(f"c{i}", o) for i, o in enumerate(outputs)]) if outputs else []
            for message in messages or [client.user(said)]:
                lane.append(message)
            body = client.render(lane)
            parsed = orjson.loads(body)
            if model is CLAUDE:
                assert len(marked_blocks(parsed)) <= 4
                assert marked_blocks(parsed)[-1] == ("user", len(parsed["messages"]) - 1)
            assert len(parsed["messages"]) == lane.blocks - (model is CLAUDE)
            sent.append(MARK.sub(b"", body) if model is CLAUDE else body)
            lane.append({"role": "assistant", "content": [{"type": "text", "text": said}] if model is CLAUDE else said})
        for before, after in pairwise(sent):
            assert after.startswith(before.removesuffix(b"]}") + b",")


def test_an_exception_of_our_own_is_not_dressed_up() -> None:
    call = current_call(CLAUDE, Notes())
    call.failure = OSError("disk")
    assert failure(ValueError("wrapped"), call, "k") is call.failure
