"""The simulated provider refuses what the real ones refuse, with their status and in their shape."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from agents.simulated.app import MAX_BODY_BYTES, simulated_provider
from tests.simulated_client import ANTHROPIC, DEEPSEEK, Client

MARK = {"type": "ephemeral"}
USER = {"role": "user", "content": "hello"}
TOOL = {"name": "bash", "description": "runs", "input_schema": {"type": "object", "properties": {}}}
TOOL_USE = {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "bash", "input": {}}]}
TOOL_RESULT: dict[str, Any] = {
    "role": "user",
    "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "ok"}],
}
CALLED: dict[str, Any] = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "bash", "arguments": "{}"}}],
}
ANSWERED = {"role": "tool", "tool_call_id": "c1", "content": "ok"}


def anthropic(**more: Any) -> dict[str, Any]:
    return {"model": ANTHROPIC, "max_tokens": 100, "messages": [USER], **more}


def openai(**more: Any) -> dict[str, Any]:
    return {"model": DEEPSEEK, "messages": [USER], **more}


def text(value: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": value, **more}


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with Client(simulated_provider(tasks=[])) as opened:
        yield opened


ANTHROPIC_REFUSALS: list[tuple[dict[str, Any], str]] = [
    (anthropic(surprise=1), "surprise: Extra inputs are not permitted"),
    (anthropic(temperature=0.5), "`temperature` is not supported by this model."),
    (anthropic(stop_sequences=["x"]), "stop_sequences: not supported by simulated models"),
    (anthropic(max_tokens=10**9), "which is the maximum allowed number of output tokens"),
    (anthropic(max_tokens=-1), "max_tokens: Input should be"),
    (anthropic(max_tokens=True), "max_tokens: Input should be"),
    (anthropic(stream="yes"), "stream: Input should be"),
    (anthropic(thinking={"type": "enabled", "budget_tokens": 5000}), "thinking.type: Input should be"),
    (
        anthropic(thinking={"type": "adaptive", "display": "omitted"}),
        "thinking.adaptive.display: simulated models show",
    ),
    (anthropic(output_config={"effort": "wild"}), "output_config.effort: Input should be one of 'low'"),
    (anthropic(output_config={"verbosity": "low"}), "output_config.verbosity: Extra inputs"),
    (
        anthropic(output_config={"format": {"type": "json_schema", "schema": {"type": "object"}}}),
        "'additionalProperties' must be explicitly set to false",
    ),
    (anthropic(service_tier="fast"), "service_tier: Input should be"),
    (anthropic(messages=[]), "at least one message is required"),
    (anthropic(messages=["hello"]), "messages.0: Input should be an object"),
    (anthropic(messages=[{"role": "user", "content": ""}]), "non-empty content"),
    (anthropic(messages=[{"role": "user", "content": []}]), "non-empty content"),
    (anthropic(messages=[{"role": "user", "content": [text(" ")]}]), "non-whitespace text"),
    (anthropic(messages=[{"role": "user", "content": 5}]), "messages.0.content: Input should be"),
    (anthropic(messages=[{"role": "system", "content": "x"}]), "messages.0.role: Input should be"),
    (anthropic(messages=[{**USER, "name": "x"}]), "messages.0.name: Extra inputs"),
    (anthropic(messages=[{"role": "assistant", "content": "x"}]), 'first message must use the "user" role'),
    (anthropic(messages=[USER, {"role": "assistant", "content": "x"}]), "does not support assistant message prefill"),
    (anthropic(messages=[{"role": "user", "content": [{"type": "image", "source": {}}]}]), "blocks of type 'text'"),
    (anthropic(messages=[{"role": "user", "content": [text("x", extra=1)]}]), "text.extra: Extra inputs"),
    (anthropic(messages=[USER, TOOL_USE, USER]), "messages.1: `tool_use` ids were found without `tool_result` blocks"),
    (anthropic(messages=[USER, TOOL_USE]), "messages.1: `tool_use` ids were found without `tool_result` blocks"),
    (anthropic(messages=[USER, TOOL_USE, TOOL_USE]), "messages.1: `tool_use` ids were found without `tool_result`"),
    (anthropic(messages=[TOOL_RESULT]), "messages.0.content.0: unexpected `tool_use_id` found in `tool_result`"),
    (anthropic(messages=[USER, TOOL_USE, TOOL_RESULT, TOOL_RESULT]), "messages.3.content.0: unexpected `tool_use_id`"),
    (
        anthropic(messages=[USER, TOOL_USE, {"role": "user", "content": TOOL_RESULT["content"] * 2}]),
        "each tool_use must have a single result",
    ),
    (
        anthropic(messages=[USER, TOOL_USE, {"role": "user", "content": [text("x"), *TOOL_RESULT["content"]]}]),
        "`tool_result` blocks must come first",
    ),
    (anthropic(messages=[{"role": "user", "content": TOOL_USE["content"]}]), "can only be in `assistant` messages"),
    (
        anthropic(messages=[USER, {"role": "assistant", "content": TOOL_RESULT["content"]}]),
        "only be in `user` messages",
    ),
    (anthropic(tools=[TOOL, TOOL]), "Tool names must be unique"),
    (anthropic(tools=[{**TOOL, "name": "no spaces"}]), "tools.0.custom.name"),
    (anthropic(tools=[{**TOOL, "input_schema": {}}]), "tools.0.custom.input_schema"),
    (anthropic(tools=[{**TOOL, "extra": 1}]), "tools.0.custom.extra: Extra inputs"),
    (anthropic(tool_choice={"type": "any"}), "only be specified while providing tools"),
    (anthropic(tool_choice={"type": "tool", "name": "bash"}, tools=[TOOL]), "do not take a forced tool"),
    (
        anthropic(messages=[{"role": "user", "content": [text(f"b{k}", cache_control=MARK) for k in range(5)]}]),
        "A maximum of 4 blocks with cache_control may be provided. Found 5.",
    ),
    (
        anthropic(
            system=[text("s", cache_control={**MARK, "ttl": "5m"})],
            messages=[{"role": "user", "content": [text("x", cache_control={**MARK, "ttl": "1h"})]}],
        ),
        "messages.0.content.0.cache_control.ttl: a ttl='1h' cache_control block must not come after a ttl='5m'",
    ),
    (anthropic(system=[text("s", cache_control={**MARK, "ttl": "2h"})]), "Input should be '5m' or '1h'"),
    (anthropic(system=[text("s", cache_control={"type": "forever"})]), "system.0.cache_control: Input should be"),
    (anthropic(messages=[{"role": "user", "content": "x" * 4_100_000}]), "prompt is too long: 10250"),
]

OPENAI_REFUSALS: list[tuple[dict[str, Any], str, str | None]] = [
    (openai(surprise=1), "Unknown parameter: 'surprise'.", "unknown_parameter"),
    (openai(stop=["x"]), "Unsupported parameter: 'stop'", "unsupported_parameter"),
    (openai(response_format={}), "Missing required parameter: 'response_format.type'", "missing_required_parameter"),
    (
        openai(response_format={"type": "json_object"}),
        "Unsupported parameter: 'response_format'",
        "unsupported_parameter",
    ),
    (openai(reasoning_effort="wild"), "Invalid value: 'wild'. Supported values are: 'none'", "invalid_value"),
    (openai(thinking={"type": "adaptive"}), "Supported values are: 'enabled' and 'disabled'.", "invalid_value"),
    (openai(prompt_cache_options={}), "prompt_cache_options is not supported on this model", "invalid_parameter"),
    (
        openai(messages=[{"role": "user", "content": [text("x", cache_control=MARK)]}]),
        "Unknown parameter: 'messages[0].content[0].cache_control'.",
        "unknown_parameter",
    ),
    (openai(n=2), "Unsupported parameter: 'n'", "unsupported_parameter"),
    (openai(temperature=3), "Invalid 'temperature'", "invalid_value"),
    (openai(stream_options={"include_usage": True}), "only allowed when 'stream' is enabled", None),
    (openai(max_tokens=0), "Invalid 'max_tokens'", "invalid_value"),
    (openai(max_tokens=5, max_completion_tokens=5), "at the same time is not supported", None),
    (openai(messages=[]), "Invalid 'messages': empty array.", "empty_array"),
    (openai(messages=[{"role": "king", "content": "x"}]), "Invalid value for 'messages[0].role'", "invalid_value"),
    (openai(messages=[{"role": "user", "content": None}]), "expected a string, got null", None),
    (openai(messages=[{**USER, "extra": 1}]), "Unknown parameter: 'messages[0].extra'.", "unknown_parameter"),
    (openai(messages=[USER, {"role": "assistant", "content": "x"}]), "must not be from the assistant", None),
    (
        openai(messages=[USER, ANSWERED]),
        "messages with role 'tool' must be a response to a preceeding message with 'tool_calls'",
        None,
    ),
    (openai(messages=[USER, CALLED, ANSWERED, ANSWERED]), "must be a response to a preceeding message", None),
    (openai(messages=[USER, CALLED, USER]), "did not have response messages: c1", None),
    (openai(messages=[USER, CALLED]), "did not have response messages: c1", None),
    (
        openai(messages=[USER, {**CALLED, "tool_calls": []}]),
        "Invalid type for 'messages[1].tool_calls'",
        "invalid_type",
    ),
    (openai(tools=[TOOL]), "Invalid type for 'tools[0]'", "invalid_type"),
    (openai(tool_choice="required"), "only allowed when 'tools' are specified", None),
    (
        openai(messages=[{"role": "user", "content": "x" * 4_100_000}]),
        "maximum context length",
        "context_length_exceeded",
    ),
]


@pytest.mark.parametrize(("body", "message"), ANTHROPIC_REFUSALS)
async def test_anthropic_refuses(client: Client, body: dict[str, Any], message: str) -> None:
    reply = await client.messages(body)
    assert reply.status == 400
    assert message in reply.message
    assert reply.body["type"] == "error"
    assert reply.body["error"]["type"] == "invalid_request_error"
    assert reply.body["request_id"] == reply.headers["request-id"]


@pytest.mark.parametrize(("body", "message", "code"), OPENAI_REFUSALS)
async def test_openai_refuses(client: Client, body: dict[str, Any], message: str, code: str | None) -> None:
    reply = await client.chat(body)
    assert reply.status == 400
    assert message in reply.message
    assert reply.body["error"]["code"] == code
    assert set(reply.body["error"]) == {"message", "type", "param", "code"}


async def test_a_missing_parameter_is_named(client: Client) -> None:
    for name in ("model", "max_tokens", "messages"):
        body = anthropic()
        del body[name]
        reply = await client.messages(body)
        assert (reply.status, reply.message) == (400, f"{name}: Field required")
    for name in ("model", "messages"):
        body = openai()
        del body[name]
        reply = await client.chat(body)
        assert (reply.status, reply.body["error"]["param"]) == (400, name)


async def test_a_request_without_a_key_is_401_in_each_shape(client: Client) -> None:
    reply = await client.messages(anthropic(), headers={"x-api-key": ""})
    assert (reply.status, reply.body["error"]["type"]) == (401, "authentication_error")
    reply = await client.chat(openai(), headers={"authorization": ""})
    assert (reply.status, reply.body["error"]["type"]) == (401, "invalid_request_error")
    assert "API key" in reply.message


async def test_anthropic_wants_its_version_header(client: Client) -> None:
    reply = await client.messages(anthropic(), headers={"anthropic-version": ""})
    assert (reply.status, reply.message) == (400, "anthropic-version: header is required")


async def test_an_unknown_model_is_404_and_so_is_one_of_the_other_protocol(client: Client) -> None:
    for model in ("gpt-9", DEEPSEEK):
        reply = await client.messages(anthropic(model=model))
        assert (reply.status, reply.body["error"]["type"]) == (404, "not_found_error")
    for model in ("gpt-9", ANTHROPIC):
        reply = await client.chat(openai(model=model))
        assert (reply.status, reply.body["error"]["code"]) == (404, "model_not_found")


@pytest.mark.parametrize("body", [b"", b"{", b'{"model": NaN}', b'"text"', b"[1]", b'{"messages":[{}', b"\xff\xfe"])
async def test_what_is_no_json_object_is_400(client: Client, body: bytes) -> None:
    for reply in (await client.messages(body), await client.chat(body)):
        assert reply.status == 400
        assert "request body" in reply.message


async def test_json_nested_without_end_is_400(client: Client) -> None:
    deep = b'{"a":' * 500 + b"1" + b"}" * 500
    block = b'{"type":"tool_use","id":"t","name":"bash","input":' + deep + b"}"
    head = b'{"model":"' + ANTHROPIC.encode() + b'","max_tokens":5,"messages":[{"role":"user","content":"x"},'
    reply = await client.messages(head + b'{"role":"assistant","content":[' + block + b"]}]}")
    assert (reply.status, reply.message) == (400, "The request body is nested too deeply.")


async def test_a_body_over_the_limit_is_413(client: Client) -> None:
    too_long = b" " * (MAX_BODY_BYTES + 1)
    reply = await client.messages(too_long)
    assert (reply.status, reply.body["error"]["type"]) == (413, "request_too_large")
    reply = await client.chat(too_long)
    assert reply.status == 413


async def test_a_time_header_that_is_no_time_is_400(client: Client) -> None:
    for value in ("yesterday", "2026-01-01T00:00:00"):
        reply = await client.messages(anthropic(), headers={"x-fullchain-time": value})
        assert reply.status == 400
        assert "x-fullchain-time" in reply.message


async def test_what_the_rules_allow_is_answered(client: Client) -> None:
    taken: list[dict[str, Any]] = [
        {"messages": [USER, USER]},
        {"messages": [USER, TOOL_USE, TOOL_RESULT]},
        {"metadata": {"user_id": "u"}, "service_tier": "auto", "thinking": {"type": "adaptive"}},
        {"system": "be brief", "cache_control": MARK},
        {"tools": [TOOL], "tool_choice": {"type": "none"}},
    ]
    for more in taken:
        assert (await client.messages(anthropic(**more))).status == 200
    taken = [
        {"messages": [USER, CALLED, ANSWERED], "temperature": 0.2, "max_tokens": 50},
        {"messages": [{"role": "developer", "content": "be brief"}, {"role": "user", "content": [text("x")]}]},
        {"stream": False, "n": 1, "parallel_tool_calls": False, "seed": 4},
    ]
    for more in taken:
        assert (await client.chat(openai(**more))).status == 200


async def test_models_are_listed_in_the_shape_of_who_asks(client: Client) -> None:
    reply = await client.get("/v1/models", {"x-api-key": "k", "anthropic-version": "2023-06-01"})
    assert [model["id"] for model in reply.body["data"]] == [ANTHROPIC, "sim-claude-sonnet-5-5"]
    reply = await client.get("/v1/models", {"authorization": "Bearer k"})
    assert [model["id"] for model in reply.body["data"]] == [DEEPSEEK, "sim-gpt-6.1-sol"]
    assert (await client.get("/v1/models", {})).status == 401
