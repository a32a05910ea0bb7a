"""Answers that no model gives: of any size, shape or length they end in one clear line that is booked."""

import time
from collections.abc import Mapping, Sequence

import orjson
import pytest

from agents.clients.events import ANSWER_PARTS
from agents.errors import TryFailed
from agents.registry import ModelEntry
from tests.dripping_server import dripping
from tests.loopback_hearing import ALL, CLAUDE, DEEPSEEK, GPT, ask, failed, heard
from tests.stream_hearing import anthropic_stream, chunk
from tests.wire_answers import OPENAI_USAGE, PIECES, responses_items, responses_stream, sse
from tests.wire_provider import Notes, Script


@ALL
async def test_a_number_of_5000_digits_is_a_failed_try_like_any_other_garbage(model: ModelEntry) -> None:
    pieces = PIECES[model.protocol]("hello")
    number = b'event: message_delta\ndata: {"type": "message_delta", "x": ' + b"1" * 5000 + b"}\n\n"
    notes = Notes()
    error = await failed(model, Script([*pieces[:2], number, *pieces[2:]]), notes)
    assert error.retryable
    [ended] = notes.ends
    assert ended.outcome == "cut"
    assert "digits" in (ended.error or "")


def many_parts(kind: str, count: int) -> tuple[ModelEntry, list[bytes]]:
    if kind == "anthropic blocks":
        return CLAUDE, anthropic_stream([({"type": "text", "text": "x"}, ())] * count, "end_turn")
    if kind == "anthropic citations":
        delta = {"type": "citations_delta", "citation": {"a": 1}}
        return CLAUDE, anthropic_stream([({"type": "text", "text": "x"}, [delta] * (count - 1))], "end_turn")
    if kind == "anthropic fields":
        deltas = [{"type": "odd", f"f{n}": "x"} for n in range(count - 1)]
        return CLAUDE, anthropic_stream([({"type": "odd"}, deltas)], "end_turn")
    if kind == "chat calls":
        calls = [{"index": n, "id": f"c{n}", "function": {"name": "bash", "arguments": "{}"}} for n in range(count)]
        return DEEPSEEK, chat([{"tool_calls": calls[n : n + 1000]} for n in range(0, count, 1000)])
    if kind == "chat reasoning":
        items = [{"type": "t", "index": n, "text": "a"} for n in range(count - 1)]
        return DEEPSEEK, chat([{"reasoning_details": items[n : n + 1000]} for n in range(0, count, 1000)])
    if kind == "chat fields":
        return DEEPSEEK, chat([{f"f{n}": "x" for n in range(count)}])
    items = [{"id": f"f{n}", "type": "function_call", "call_id": f"k{n}", "arguments": "{}"} for n in range(count)]
    if kind == "responses items":
        return GPT, responses_stream(items)
    return GPT, [responses_stream(items)[-1]]


def chat(deltas: Sequence[Mapping[str, object]]) -> list[bytes]:
    events: list[Mapping[str, object]] = [
        *(chunk(delta) for delta in (*deltas, {"content": "done"})),
        chunk({}, "stop"),
    ]
    events.append({"id": "chat_1", "choices": [], "usage": OPENAI_USAGE})
    return [*(sse(event) for event in events), b"data: [DONE]\n\n"]


PART_KINDS = (
    "anthropic blocks",
    "anthropic citations",
    "anthropic fields",
    "chat calls",
    "chat reasoning",
    "chat fields",
    "responses items",
    "responses summary",
)


@pytest.mark.parametrize("kind", PART_KINDS)
async def test_an_answer_of_more_parts_than_any_model_makes_is_refused_in_one_line(kind: str) -> None:
    notes = Notes()
    model, pieces = many_parts(kind, ANSWER_PARTS + 1)
    error = await failed(model, Script([b"".join(pieces)]), notes)
    assert str(error) == "the answer has more than 4,096 parts"
    assert not error.retryable
    [ended] = notes.ends
    assert ended.outcome in ("cut", "complete")


@pytest.mark.parametrize("kind", PART_KINDS)
async def test_an_answer_of_so_many_parts_is_read_in_time(kind: str) -> None:
    model, pieces = many_parts(kind, ANSWER_PARTS - 2)
    started = time.process_time()
    reply = await heard(model, Script([b"".join(pieces)]))
    assert reply.message is not None
    # Quadratic, it was ten times as much.
    assert time.process_time() - started < 4


async def test_reasoning_in_a_hundred_thousand_fragments_is_put_together_in_time() -> None:
    fragments = [{"reasoning_details": [{"type": "t", "index": 0, "text": "abcdefgh"}] * 1000}] * 200
    started = time.process_time()
    reply = await heard(DEEPSEEK, Script([b"".join(chat(fragments))]))
    assert time.process_time() - started < 6
    assert reply.message is not None
    assert reply.message["reasoning_details"] == [{"type": "t", "index": 0, "text": "abcdefgh" * 200_000}]


@ALL
async def test_an_answer_that_is_nested_too_deeply_to_go_back_is_a_failed_try(model: ModelEntry) -> None:
    for depth, fits in ((240, True), (252, False)):
        deep = '{"a":' * depth + "1" + "}" * depth
        block = {"type": "odd", "x": orjson.loads(deep)}
        pieces = {
            "anthropic_messages": anthropic_stream([(block, ())], "end_turn"),
            "openai_chat": PIECES["openai_chat"]("", [("c1", "bash", deep)]),
            "openai_responses": responses_stream(responses_items("", [("c1", "bash", deep)])),
        }[model.protocol]
        notes = Notes()
        if fits:
            assert (await heard(model, Script(pieces), notes)).message is not None
        else:
            assert "nested too deeply" in str(await failed(model, Script(pieces), notes))
        assert [end.outcome for end in notes.ends] == ["complete"]


async def test_a_usage_that_is_nested_without_end_keeps_its_tokens() -> None:
    deep = b'{"a":' * 900 + b"1" + b"}" * 900
    pieces = [piece.replace(b'"prompt_tokens":', b'"deep":' + deep + b',"prompt_tokens":') for piece in chat([])]
    notes = Notes()
    await heard(DEEPSEEK, Script(pieces), notes)
    usage = notes.ends[0].usage
    assert usage is not None
    assert {name: usage[name] for name in OPENAI_USAGE} == OPENAI_USAGE
    assert orjson.dumps(usage).startswith(b'{"deep":{"a":{"a"')


@ALL
@pytest.mark.parametrize("where", ["head", "body"])
async def test_a_whole_call_has_a_limit_however_often_its_server_says_something(model: ModelEntry, where: str) -> None:
    notes = Notes()
    async with dripping(where) as url:
        with pytest.raises(TryFailed, match=r"no whole answer within 0\.3 s") as caught:
            await ask(model, url, notes, call_limit_s=0.3)
    assert caught.value.retryable
    [ended] = notes.ends
    assert ended.outcome == "cut"
    assert "no whole answer within 0.3 s" in (ended.error or "")
