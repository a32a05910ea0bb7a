"""The requests that the clients put on the wire, and what they make of plain answers."""

from typing import Any

import orjson
import pytest

from agents.clients import Client, Reply, ToolResult, connect
from agents.clients.failure import failure
from agents.errors import TryFailed
from agents.handover import HandoverTool
from agents.lane import Lane
from agents.registry import ModelEntry
from agents.tools import handover_tool
from agents.tools.bash import BASH
from agents.transport import open_http
from tests.wire_answers import PIECES, responses_items
from tests.wire_provider import EPOCH, NONCE, Notes, Provider, Received, Script, current_call, entry, options, served

CLAUDE, DEEPSEEK, GPT = entry("sim-claude-opus-5-5"), entry("sim-deepseek-v4-flash"), entry("sim-gpt-6.1-sol")
ALL = pytest.mark.parametrize("model", [CLAUDE, DEEPSEEK, GPT], ids=["anthropic", "chat", "responses"])
SUBMIT = handover_tool(HandoverTool("submit", None, "Hands your work in.", "report", "What you did."))


def pieces(model: ModelEntry, *args: Any, **named: Any) -> list[bytes]:
    return PIECES[model.protocol](*args, **named)


def client_of(model: ModelEntry, http: Any, **chosen: Any) -> Client:
    return connect(model, key="test-key", options=options(**chosen), http=http)


async def converse(model: ModelEntry, turns: int, **chosen: Any) -> tuple[list[Received], list[Reply], Lane]:
    """So many turns of one bash call each, over the wire."""
    provider = Provider(
        *(Script(pieces(model, f"turn {n}", [(f"c{n}", "bash", '{"command":"ls"}')])) for n in range(turns))
    )
    replies = []
    async with open_http(simulator=provider.app) as http:
        client = client_of(model, http, **chosen)
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


async def test_responses_gets_its_parameters_and_keeps_nothing_at_the_provider() -> None:
    received, _, _ = await converse(GPT, 2)
    request, body = received[1], received[1].json
    assert request.path == "/v1/responses"
    assert request.headers["authorization"] == "Bearer test-key"
    assert {k: v for k, v in body.items() if k not in ("tools", "input")} == {
        "model": "sim-gpt-6.1-sol",
        "max_output_tokens": 1000,
        "stream": True,
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": f"{NONCE}-solo",
        "prompt_cache_options": {"mode": "explicit"},
    }
    assert [tool["name"] for tool in body["tools"]] == ["bash", "submit"]
    assert body["tools"][0]["description"].startswith(f"[run {NONCE}] ")
    assert body["tools"][1]["parameters"]["required"] == ["report"]
    first, begin, said, called, result = body["input"]
    assert (first["role"], first["content"][0]["text"]) == ("developer", f"[run {NONCE}]\nYou are tested.")
    assert (begin["role"], begin["content"][0]["text"]) == ("user", "begin")
    assert [said, called] == responses_items("turn 0", [("c0", "bash", '{"command":"ls"}')])
    assert (result["type"], result["call_id"]) == ("function_call_output", "c0")
    assert result["output"][0]["text"] == "exit code 0\nfile 0"


@pytest.mark.parametrize(
    ("model", "effort", "place"),
    [(CLAUDE, "xhigh", ("output_config", "effort")), (GPT, "low", ("reasoning", "effort")), (DEEPSEEK, "max", ())],
    ids=["anthropic", "responses", "chat"],
)
async def test_effort_and_temperature_stand_where_each_protocol_has_them(
    model: ModelEntry, effort: str, place: tuple[str, ...]
) -> None:
    received, _, _ = await converse(model, 1, effort=effort, temperature=0.5)
    body = received[0].json
    assert body["temperature"] == 0.5
    found = body
    for name in place or ("reasoning_effort",):
        found = found[name]
    assert found == effort


@ALL
async def test_what_an_entry_adds_is_laid_over_every_request(model: ModelEntry) -> None:
    extra = {
        "provider": {"order": ["a"]},
        "output_config": {"speed": 2},
        "reasoning": {"summary": "auto"},
        "stream": None,
    }
    mine = model.model_copy(update={"extra_body": extra, "headers": {"X-Team": "lane-1"}})
    received, _, _ = await converse(mine, 2, effort="low")
    for request in received:
        body = request.json
        assert request.headers["x-team"] == "lane-1"
        assert body["provider"] == {"order": ["a"]}
        assert "stream" not in body
        if model is CLAUDE:
            assert body["output_config"] == {"effort": "low", "speed": 2}
        if model is GPT:
            assert body["reasoning"] == {"effort": "low", "summary": "auto"}


async def test_openai_itself_is_given_the_limit_under_its_newer_name() -> None:
    requests = {}
    for provider_name in ("openai", "other"):
        model = entry("sim-deepseek-v4-flash", provider=provider_name)
        async with open_http(simulator=Provider().app) as http:
            client = client_of(model, http)
            lane = client.open_lane("solo-0", "s", [BASH], NONCE)
            requests[provider_name] = orjson.loads(client.render(lane))
    assert requests["openai"]["max_completion_tokens"] == 1000
    assert requests["other"]["max_tokens"] == 1000


@ALL
async def test_overlays_are_no_content_of_a_block(model: ModelEntry) -> None:
    _, _, lane = await converse(model, 1)
    assert NONCE.encode() in lane.wire_head
    canonical = lane.head.encoded + b"".join(lane.messages)
    assert not any(word in canonical for word in (NONCE.encode(), b"cache_control", b"prompt_cache"))
    async with open_http(simulator=Provider().app) as http:
        client = client_of(model, http)
        other = client.open_lane("solo-0", "You are tested.", [BASH, SUBMIT], "f" * 16)
    assert (other.head.hash, other.head.size) == (lane.head.hash, lane.head.size)
    assert other.wire_head != lane.wire_head


@ALL
async def test_parallel_tool_calls_in_fragments_are_put_together(model: ModelEntry) -> None:
    calls = [("c1", "bash", '{"command": "echo ü"}'), ("c2", "bash", '{"command": "pwd"}')]
    reply = await ask_once(model, *pieces(model, "on it", calls))
    assert reply.text == "on it"
    assert [(c.id, c.name, c.arguments) for c in reply.tool_calls] == [
        ("c1", "bash", {"command": "echo ü"}),
        ("c2", "bash", {"command": "pwd"}),
    ]
    assert reply.ending == "done"


@ALL
@pytest.mark.parametrize("arguments", ['{"command": "ls', "[1]", '"ls"', '{"a":' * 300 + "1" + "}" * 300])
async def test_arguments_that_are_no_json_object_are_invalid_and_can_still_be_sent_back(
    model: ModelEntry, arguments: str
) -> None:
    reply = await ask_once(model, *pieces(model, "", [("c1", "bash", arguments)]))
    assert reply.tool_calls[0].arguments is None
    assert reply.tool_calls[0].raw_arguments == arguments
    orjson.dumps(reply.message)


@ALL
@pytest.mark.parametrize(
    ("anthropic", "chat", "responses", "ending"),
    [
        ("max_tokens", "length", "max_output_tokens", "max_tokens"),
        ("refusal", "content_filter", "content_filter", "refusal"),
        ("model_context_window_exceeded", "model_length", "context_length_exceeded", "context_full"),
        ("end_turn", "stop", None, "done"),
        ("stop_sequence", "a_reason_from_the_future", "a_reason_from_the_future", "done"),
    ],
)
async def test_why_an_answer_ended_is_said_in_our_own_words(
    model: ModelEntry, anthropic: str, chat: str, responses: str | None, ending: str
) -> None:
    reason = {CLAUDE.name: anthropic, DEEPSEEK.name: chat, GPT.name: responses}[model.name]
    assert (await ask_once(model, *pieces(model, "x", (), reason))).ending == ending


@ALL
async def test_an_answer_without_words_and_calls_leaves_nothing_to_send_back(model: ModelEntry) -> None:
    reply = await ask_once(model, *pieces(model))
    assert (reply.message, reply.tool_calls) == (None, ())


@ALL
async def test_a_stream_that_ends_early_but_cleanly_is_no_answer(model: ModelEntry) -> None:
    with pytest.raises(TryFailed, match="before its terminal event"):
        await ask_once(model, *pieces(model, "hello")[:3])


@ALL
async def test_events_that_are_no_json_are_a_failed_try(model: ModelEntry) -> None:
    with pytest.raises(TryFailed, match="JSONDecodeError"):
        await ask_once(model, b"event: message_start\ndata: {oops\n\n")


async def test_a_surrogate_pair_split_over_two_fragments_becomes_its_character() -> None:
    def chunk(delta: str, reason: str = "null") -> bytes:
        return b'data: {"id":"x","choices":[{"index":0,"delta":{"content":"%s"},"finish_reason":%s}]}\n\n' % (
            delta.encode(),
            reason.encode(),
        )

    reply = await ask_once(DEEPSEEK, chunk("\\ud83d"), chunk("\\ude00 \\ud800 \\u0000", '"stop"'), b"data: [DONE]\n\n")
    assert reply.text == "😀 \ufffd \ufffd"


@ALL
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


@ALL
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


def test_an_exception_of_our_own_is_not_dressed_up() -> None:
    call = current_call(CLAUDE, Notes())
    call.failure = OSError("disk")
    assert failure(ValueError("wrapped"), call, CLAUDE, "k") is call.failure
