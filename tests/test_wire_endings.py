"""How answers end, well and badly: what comes of each, and what is booked for it."""

import logging

import pytest

from agents.lane import Lane
from agents.registry import ModelEntry
from tests.stream_hearing import CLAUDE, DEEPSEEK, GPT, LS, chunk, fail, hear, hear_chat
from tests.wire_answers import (
    OPENAI_USAGE,
    PIECES,
    RESPONSES_USAGE,
    anthropic_pieces,
    openai_pieces,
    responses_items,
    responses_stream,
    sse,
)
from tests.wire_provider import Script

ALL = pytest.mark.parametrize("model", [CLAUDE, DEEPSEEK, GPT], ids=["anthropic", "chat", "responses"])


async def test_a_pause_is_told_and_the_message_goes_back() -> None:
    heard = await hear(CLAUDE, *anthropic_pieces("still searching", (), "pause_turn"))
    assert (heard.reply.ending, heard.ended.finish_reason) == ("paused", "pause_turn")
    assert heard.next_request["messages"][1]["role"] == "assistant"


async def test_a_refusal_in_its_own_field_or_part_is_a_refusal() -> None:
    chat = await hear_chat(chunk({"refusal": "I can"}), chunk({"refusal": "not"}), chunk({}, "stop"))
    assert (chat.reply.ending, chat.reply.message) == ("refusal", None)
    part = {"type": "refusal", "refusal": "I cannot"}
    item = {"type": "message", "id": "m", "role": "assistant", "content": [part]}
    assert (await hear(GPT, *responses_stream([item]))).reply.ending == "refusal"


@pytest.mark.parametrize("reason", ["error", "network_error", "insufficient_system_resource", "abort"])
async def test_a_reason_that_says_the_provider_failed_is_tried_again(reason: str) -> None:
    error, ended = await fail(DEEPSEEK, Script(openai_pieces("hi", (), reason)))
    assert error.retryable
    assert (ended.finish_reason, ended.usage) == (reason, OPENAI_USAGE)


def failed(code: str, message: str, usage: object = None) -> bytes:
    response = {"id": "resp_1", "object": "response", "status": "failed", "error": {"code": code, "message": message}}
    return sse({"type": "response.failed", "response": {**response, "usage": usage, "output": []}})


async def test_a_failed_response_is_booked_with_its_usage_and_tried_again_where_that_helps() -> None:
    begun = responses_stream(responses_items("hi"))[:4]
    error, ended = await fail(GPT, Script([*begun, failed("server_error", "sorry", RESPONSES_USAGE)]))
    assert (error.retryable, str(error)) == (True, "sorry")
    assert (ended.outcome, ended.error, ended.finish_reason) == ("cut", "sorry", "server_error")
    assert ended.usage == RESPONSES_USAGE
    error, _ = await fail(GPT, Script([failed("invalid_image", "no image")]))
    assert not error.retryable
    error, _ = await fail(GPT, Script([failed("context_length_exceeded", "Your input exceeds the context window")]))
    assert (error.retryable, error.context_full) == (False, True)


async def test_a_prompt_that_a_policy_stopped_is_a_refusal() -> None:
    heard = await hear(GPT, failed("bio_policy", "flagged"))
    assert (heard.reply.ending, heard.reply.finish_reason, heard.reply.message) == ("refusal", "bio_policy", None)


@pytest.mark.parametrize(
    "event",
    [
        {"type": "error", "code": "rate_limit_exceeded", "message": "slow down", "param": None, "sequence_number": 2},
        {"type": "error", "error": {"type": "rate_limit_error", "code": None, "message": "slow down"}},
    ],
    ids=["flat", "nested"],
)
async def test_an_error_event_within_a_response_is_a_cut(event: dict[str, object]) -> None:
    error, ended = await fail(GPT, Script([*responses_stream([])[:2], sse(event)]))
    assert (error.retryable, str(error)) == (True, "slow down")
    assert (ended.outcome, ended.error) == ("cut", "slow down")


async def test_an_error_within_a_chat_stream_is_a_cut() -> None:
    broken = chunk({}, "error", error={"code": 502, "message": "upstream unavailable"})
    error, ended = await fail(DEEPSEEK, Script([sse(chunk({"content": "hi"})), sse(broken)]))
    assert error.retryable
    assert (ended.outcome, ended.error) == ("cut", "upstream unavailable")


@ALL
async def test_a_stream_that_breaks_between_its_events_is_booked_as_cut(
    model: ModelEntry, caplog: pytest.LogCaptureFixture
) -> None:
    pieces = PIECES[model.protocol]("hello", [LS])
    with caplog.at_level(logging.CRITICAL):
        error, ended = await fail(model, Script(pieces, cut_after=len(pieces) - 1))
    assert error.retryable
    assert ended.outcome == "cut"


@ALL
async def test_an_error_told_in_a_body_with_status_200_is_shown(model: ModelEntry) -> None:
    body = b'{"error": {"message": "Insufficient credits", "code": 402}}'
    error, ended = await fail(model, Script(body=body))
    assert (error.fault, error.retryable) == ("credit", False)
    assert (ended.outcome, ended.error) == ("cut", "Insufficient credits")


def test_a_lane_counts_the_blocks_of_its_messages() -> None:
    lane = Lane.open("solo-0", {"system": "s"}, b"{")
    lane.append({"role": "user", "content": "x"})
    lane.append({"role": "assistant", "content": None, "tool_calls": [{}, {}]})
    lane.append({"role": "user", "content": [{}, {}, {}]})
    assert lane.parts == [1, 3, 3]
