"""What the meter writes down, seen through the real SDKs and, for its own sake, through a bare client."""

import asyncio
import logging
from datetime import timedelta

import pytest

from agents.clients import Client, connect
from agents.clock import VirtualClock
from agents.errors import TryFailed
from agents.lane import Lane
from agents.registry import ModelEntry
from agents.retry import with_retries
from agents.tools.bash import BASH
from agents.transport import open_http
from agents.transport.answer_reader import LINE_LIMIT
from agents.transport.call import CALL
from cost_model.calls import SpendingStopped
from tests.wire_answers import ANTHROPIC_USAGE, OPENAI_USAGE, PIECES, RESPONSES_USAGE, anthropic_pieces, openai_pieces
from tests.wire_provider import EPOCH, NONCE, Notes, Provider, Script, current_call, entry, options

CLAUDE, DEEPSEEK, GPT = entry("sim-claude-opus-5-5"), entry("sim-deepseek-v4-flash"), entry("sim-gpt-6.1-sol")
ALL = pytest.mark.parametrize("model", [CLAUDE, DEEPSEEK, GPT], ids=["anthropic", "chat", "responses"])


USAGE = {
    "anthropic_messages": {**ANTHROPIC_USAGE, "output_tokens": 80},
    "openai_chat": OPENAI_USAGE,
    "openai_responses": RESPONSES_USAGE,
}


def pieces(model: ModelEntry) -> list[bytes]:
    return PIECES[model.protocol]("hello")


def talk(model: ModelEntry, http: object, key: str = "none") -> tuple[Client, Lane]:
    client = connect(model, key=key, options=options(), http=http)  # type: ignore[arg-type]  # from open_http
    lane = client.open_lane("solo-0", "You are tested.", [BASH], NONCE)
    lane.append(client.user("begin"))
    return client, lane


@ALL
async def test_a_call_is_booked_before_it_leaves_and_once_after_it_ended(model: ModelEntry) -> None:
    notes, provider = Notes(), Provider(Script(pieces(model), headers={"request-id": "req_7"}))
    async with open_http(simulator=provider.app) as http:
        client, lane = talk(model, http)
        reply = await client.ask(lane, current_call(model, notes))
    assert reply.text == "hello"
    assert notes.log == ["sent t1/1/solo-0/1/1", "complete t1/1/solo-0/1/1"]
    [sent], [ended] = notes.calls, notes.ends
    assert sent.prompt_bytes == len(provider.received[0].body)
    assert (sent.try_number, sent.blocks, sent.simulated, sent.requested_at) == (1, 2, True, EPOCH)
    assert ended.usage == USAGE[model.protocol]
    assert (ended.status, ended.error, ended.response_model) == (200, None, "wire-model")
    assert ended.request_id == "req_7"


@ALL
@pytest.mark.parametrize("kind", ["Text/Event-Stream; charset=utf-8", "application/x-ndjson", "text/plain"])
async def test_a_stream_is_booked_whole_whatever_its_type_is_called(model: ModelEntry, kind: str) -> None:
    notes, provider = Notes(), Provider(Script(body=b"".join(pieces(model)), headers={"content-type": kind}))
    async with open_http(simulator=provider.app) as http:
        client, lane = talk(model, http)
        reply = await client.ask(lane, current_call(model, notes))
    assert reply.text == "hello"
    [ended] = notes.ends
    assert ended.outcome == "complete"
    assert ended.usage is not None


@ALL
async def test_a_line_without_an_end_is_cut(model: ModelEntry) -> None:
    endless = [b"data: ", *[b"x" * (1 << 20)] * (2 + (LINE_LIMIT >> 20)), b"\n\n"]
    notes, provider = Notes(), Provider(Script(endless))
    async with open_http(simulator=provider.app) as http:
        client, lane = talk(model, http)
        with pytest.raises(TryFailed):
            await client.ask(lane, current_call(model, notes))
    [ended] = notes.ends
    assert (ended.outcome, ended.error) == ("cut", "a line of the answer is longer than 4 MiB")


@ALL
async def test_times_travel_in_the_header_and_pass_on_the_clock(model: ModelEntry) -> None:
    time = {"x-fullchain-time": "first=1.5;end=4.25;tool=7"}
    notes, provider = Notes(), Provider(Script(pieces(model), headers=time))
    clock = VirtualClock(EPOCH)
    async with open_http(simulator=provider.app) as http, clock.lane("solo-0"):
        client, lane = talk(model, http)
        reply = await client.ask(lane, current_call(model, notes, clock))
    asked = provider.received[0].headers
    assert asked["x-fullchain-time"] == "2026-03-01T12:00:00.000000+00:00"
    assert asked["x-fullchain-call"] == "t1/1/solo-0/1/1"
    [ended] = notes.ends
    assert ended.first_token_at == EPOCH + timedelta(seconds=1.5)
    assert ended.ended_at == clock.now() == EPOCH + timedelta(seconds=4.25)
    assert reply.tool_seconds == 7


@ALL
async def test_a_stream_that_breaks_is_booked_as_cut_with_the_usage_it_had(
    model: ModelEntry, caplog: pytest.LogCaptureFixture
) -> None:
    time = {"x-fullchain-time": "first=1;end=3;tool=0"}
    notes, provider = Notes(), Provider(Script(pieces(model), headers=time, cut_after=4))
    clock = VirtualClock(EPOCH)
    async with open_http(simulator=provider.app) as http, clock.lane("solo-0"):
        client, lane = talk(model, http)
        with caplog.at_level(logging.CRITICAL), pytest.raises(TryFailed) as caught:
            await client.ask(lane, current_call(model, notes, clock))
    assert caught.value.retryable
    assert [end.outcome for end in notes.ends] == ["cut"]
    assert notes.ends[0].usage == (ANTHROPIC_USAGE if model is CLAUDE else None)
    assert notes.ends[0].ended_at == EPOCH + timedelta(seconds=3)
    assert "peer closed connection" in (notes.ends[0].error or "")


@ALL
async def test_an_error_status_is_booked_as_refused_with_the_providers_words_and_without_the_key(
    model: ModelEntry,
) -> None:
    key = "sk-ant-secret-0123456789"
    body = b'{"type":"error","error":{"type":"authentication_error","message":"bad key %s\\nsee docs"}}' % key.encode()
    notes, provider = Notes(), Provider(Script(status=401, body=body))
    async with open_http(simulator=provider.app) as http:
        client, lane = talk(model, http, key)
        with pytest.raises(TryFailed) as caught:
            await client.ask(lane, current_call(model, notes))
    assert not caught.value.retryable
    assert str(caught.value) == "HTTP 401: bad key [key] see docs"
    [ended] = notes.ends
    assert (ended.outcome, ended.status, ended.error) == ("refused", 401, "bad key [key] see docs")
    assert ended.first_token_at is None


@ALL
async def test_a_call_that_we_give_up_is_booked_once_as_cancelled(model: ModelEntry) -> None:
    notes, provider = Notes(), Provider(Script(pieces(model), cut_after=2, stall=True))
    async with open_http(simulator=provider.app) as http:
        client, lane = talk(model, http)
        task = asyncio.create_task(client.ask(lane, current_call(model, notes)))
        async with asyncio.timeout(60):
            await provider.stalled.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert notes.log == ["sent t1/1/solo-0/1/1", "cancelled t1/1/solo-0/1/1"]


@ALL
async def test_no_connection_is_booked_as_refused(model: ModelEntry) -> None:
    notes = Notes()
    async with open_http(simulator_url="http://127.0.0.1:9") as http:
        client, lane = talk(model, http)
        with pytest.raises(TryFailed, match="ConnectError"):
            await client.ask(lane, current_call(model, notes))
    assert [end.outcome for end in notes.ends] == ["refused"]
    assert notes.ends[0].status is None


async def test_an_error_event_inside_a_stream_is_booked_as_cut() -> None:
    error = b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}\n\n'
    notes, provider = Notes(), Provider(Script([*anthropic_pieces("x")[:3], error]))
    async with open_http(simulator=provider.app) as http:
        client, lane = talk(CLAUDE, http)
        with pytest.raises(TryFailed, match="Overloaded") as caught:
            await client.ask(lane, current_call(CLAUDE, notes))
    assert caught.value.retryable
    assert (notes.ends[0].outcome, notes.ends[0].error) == ("cut", "Overloaded")


async def test_retries_hidden_in_an_sdk_are_booked_under_keys_of_their_own() -> None:
    import openai

    busy = Script(status=429, body=b'{"error":{"message":"slow down"}}', headers={"retry-after": "0.001"})
    notes, provider = Notes(), Provider(busy, Script(openai_pieces("x")))
    async with open_http(simulator=provider.app) as http:
        sdk = openai.AsyncOpenAI(api_key="k", base_url="http://simulator.invalid/v1", http_client=http, max_retries=3)
        token = CALL.set(current_call(DEEPSEEK, notes))
        stream = await sdk.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "x"}], stream=True, stream_options={"include_usage": True}
        )
        assert [chunk async for chunk in stream]
        CALL.reset(token)
    assert notes.log == [
        f"{what} t1/1/solo-0/1/{n}" for n, what in ((1, "sent"), (1, "refused"), (2, "sent"), (2, "complete"))
    ]


async def test_an_answer_that_is_no_stream_is_booked_when_it_was_read_whole() -> None:
    body = b'{"id":"chatcmpl-2","model":"m","choices":[{"finish_reason":"stop"}],"usage":{"prompt_tokens":4}}'
    notes, provider = Notes(), Provider(Script(body=body))
    async with open_http(simulator=provider.app) as http:
        token = CALL.set(current_call(DEEPSEEK, notes))
        await http.post("http://simulator.invalid/v1/chat/completions", content=b"{}")
        CALL.reset(token)
    [ended] = notes.ends
    assert (ended.outcome, ended.usage, ended.finish_reason) == ("complete", {"prompt_tokens": 4}, "stop")


async def test_a_request_that_no_call_stands_behind_is_not_sent() -> None:
    provider = Provider(Script(body=b"{}"))
    async with open_http(simulator=provider.app) as http:
        with pytest.raises(RuntimeError, match="cannot be booked"):
            await http.post("http://simulator.invalid/v1/messages", content=b"{}")
    assert not provider.received


@ALL
async def test_a_book_that_fails_is_not_taken_for_a_broken_connection(model: ModelEntry) -> None:
    class FullDisk(Notes):
        async def sent(self, call: object) -> None:
            raise OSError(28, "No space left on device")

    provider = Provider(Script(pieces(model)))
    async with open_http(simulator=provider.app) as http:
        client, lane = talk(model, http)
        with pytest.raises(OSError, match="No space left"):
            await client.ask(lane, current_call(model, FullDisk()))
    assert not provider.received, "it left although it was not booked"


@ALL
async def test_a_call_that_may_not_be_spent_is_neither_sent_nor_booked(model: ModelEntry) -> None:
    class Spent(Notes):
        async def sent(self, call: object) -> None:
            raise SpendingStopped("the budget is used up")

    notes, provider = Spent(), Provider()
    async with open_http(simulator=provider.app) as http:
        client, lane = talk(model, http)
        with pytest.raises(SpendingStopped, match="used up"):
            await with_retries(lambda: client.ask(lane, current_call(model, notes)), name="x", sleep=_no_wait)
    assert (notes.log, provider.received) == ([], [])


async def _no_wait(_: float) -> None:
    raise AssertionError("a call that may not be spent is not tried again")


@ALL
async def test_a_time_header_that_says_nothing_sensible_is_refused(model: ModelEntry) -> None:
    notes, provider = Notes(), Provider(Script(pieces(model), headers={"x-fullchain-time": "first=2;end=1;tool=0"}))
    async with open_http(simulator=provider.app) as http:
        client, lane = talk(model, http)
        with pytest.raises(TryFailed, match="first=<s>"):
            await client.ask(lane, current_call(model, notes))
