"""Streams as the protocols really send them: noise, odd places, calls in fragments; and what is booked for each."""

import pytest

from agents.registry import ModelEntry
from tests.stream_hearing import CLAUDE, DEEPSEEK, GPT, LS, anthropic_stream, chunk, fail, hear, hear_chat
from tests.wire_answers import (
    ANTHROPIC_USAGE,
    OPENAI_USAGE,
    PIECES,
    RESPONSES_USAGE,
    anthropic_pieces,
    responses_items,
    responses_stream,
    sse,
)
from tests.wire_provider import Script

ALL = pytest.mark.parametrize("model", [CLAUDE, DEEPSEEK, GPT], ids=["anthropic", "chat", "responses"])


@ALL
@pytest.mark.parametrize("over_http", [False, True], ids=["asgi", "http"])
async def test_pings_comments_and_events_without_data_say_nothing(model: ModelEntry, over_http: bool) -> None:
    noise = [
        b": OPENROUTER PROCESSING\n\n",
        b'event: ping\ndata: {"type": "ping"}\n\n',
        b"id: 7\nretry: 100\n\n",
        b"event: keepalive\n\n",
        b"event: keepalive\ndata:\n\n",
        b'event: of.the.future\ndata: {"type": "of.the.future", "choices": null, "index": 0, "delta": {}}\n\n',
    ]
    pieces = PIECES[model.protocol]("hello", [LS])
    mixed = [part for piece in pieces for part in (*noise, piece)]
    if model is CLAUDE:
        # Anthropic's own SDK takes an event without data for broken JSON, and Anthropic sends none.
        mixed = [part for part in mixed if part not in noise[2:5]]
    heard = await hear(model, *mixed, over_http=over_http)
    assert heard.reply.text == "hello"
    assert [call.arguments for call in heard.reply.tool_calls] == [{"command": "ls"}]
    assert (heard.ended.outcome, heard.ended.error) == ("complete", None)
    assert heard.ended.usage is not None


@ALL
async def test_an_event_whose_data_stands_on_several_lines_is_read_and_booked(model: ModelEntry) -> None:
    pieces = [piece.replace(b',"', b',\ndata: "') for piece in PIECES[model.protocol]("hello", [LS])]
    heard = await hear(model, *pieces)
    assert (heard.reply.text, len(heard.reply.tool_calls)) == ("hello", 1)
    assert heard.ended.outcome == "complete"
    expected = {"openai_chat": OPENAI_USAGE, "openai_responses": RESPONSES_USAGE}
    assert heard.ended.usage == expected.get(model.protocol, {**ANTHROPIC_USAGE, "output_tokens": 80})


@ALL
@pytest.mark.parametrize(
    "garbage",
    [b"data: {oops\n\n", b"data: \xff\xfe{\n\n", b"data: " + b"[" * 100_000 + b"\n\n"],
    ids=["json", "utf8", "deep"],
)
async def test_events_that_cannot_be_read_are_booked_as_a_cut_with_the_reason(
    model: ModelEntry, garbage: bytes
) -> None:
    pieces = PIECES[model.protocol]("hello")
    name = b"event: message_delta\n"
    error, ended = await fail(model, Script([*pieces[:2], name + garbage, *pieces[2:]]))
    assert error.retryable
    assert ended.outcome == "cut"
    assert (ended.error or "").split(":")[0] in ("JSONDecodeError", "UnicodeDecodeError", "RecursionError")
    assert ended.response_id is not None


async def test_usage_in_a_choice_and_null_afterwards_is_the_usage() -> None:
    usage = {"prompt_tokens": 40, "completion_tokens": 2, "total_tokens": 42, "cached_tokens": 30}
    last = {"id": "chat_1", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop", "usage": usage}]}
    heard = await hear(
        DEEPSEEK, sse(chunk({"content": "hi"}, usage=None)), sse(last), sse(chunk(usage=None)), b"data: [DONE]\n\n"
    )
    assert (heard.reply.text, heard.ended.usage) == ("hi", usage)


async def test_what_llama_cpp_counts_beside_the_usage_is_booked_with_it() -> None:
    timings = {"cache_n": 485, "prompt_n": 1, "predicted_n": 2}
    last = {**chunk({}, "stop"), "timings": timings, "usage": {"prompt_tokens": 486}}
    heard = await hear(DEEPSEEK, sse(chunk({"content": "hi"})), sse(last), b"data: [DONE]\n\n")
    assert heard.ended.usage == {"prompt_tokens": 486, "timings": timings}


async def test_the_last_usage_that_says_something_wins() -> None:
    pieces = anthropic_pieces("hi")
    late = {
        "type": "message_delta",
        "delta": {"stop_reason": "end_turn"},
        "usage": {"input_tokens": 99, "output_tokens": 5},
    }
    null = {"type": "message_delta", "delta": {}, "usage": {"input_tokens": None, "output_tokens": 7}}
    heard = await hear(CLAUDE, *pieces[:-2], sse(late), sse(null), pieces[-1])
    assert heard.ended.usage == {**ANTHROPIC_USAGE, "input_tokens": 99, "output_tokens": 7}


@ALL
async def test_parallel_calls_whose_arguments_come_bit_by_bit_and_mixed(model: ModelEntry) -> None:
    texts = ['{"command": "echo ü"}', '{"command": "pwd"}']
    if model is CLAUDE:
        blocks = [
            (
                {"type": "tool_use", "id": f"c{n}", "name": "bash", "input": {}},
                [{"type": "input_json_delta", "partial_json": part} for part in ("", *text)],
            )
            for n, text in enumerate(texts)
        ]
        heard = await hear(model, *anthropic_stream(blocks, "tool_use"))
    elif model is DEEPSEEK:
        begun = [{"index": n, "id": f"c{n}", "type": "function", "function": {"name": "bash"}} for n in (0, 1)]
        bits = [
            {"index": n, "function": {"arguments": text[i]}}
            for i in range(max(map(len, texts)))
            for n, text in enumerate(texts)
            if i < len(text)
        ]
        heard = await hear_chat(
            chunk({"tool_calls": begun}), *(chunk({"tool_calls": [b]}) for b in bits), chunk({}, "tool_calls")
        )
    else:
        heard = await hear(
            model, *responses_stream(responses_items("", [(f"c{n}", "bash", t) for n, t in enumerate(texts)]))
        )
    assert [(c.id, c.arguments) for c in heard.reply.tool_calls] == [
        ("c0", {"command": "echo ü"}),
        ("c1", {"command": "pwd"}),
    ]
    assert heard.ended.outcome == "complete"


async def test_calls_that_all_have_the_index_0_are_told_apart_by_their_ids() -> None:
    calls = [{"index": 0, "id": f"c{n}", "function": {"name": "bash", "arguments": '{"command":"ls"}'}} for n in (0, 1)]
    heard = await hear_chat(*(chunk({"tool_calls": [call]}) for call in calls), chunk({}, "stop"))
    assert [call.id for call in heard.reply.tool_calls] == ["c0", "c1"]


async def test_an_id_that_changes_from_fragment_to_fragment_is_no_new_call() -> None:
    first = {"index": 0, "id": "a", "function": {"name": "bash", "arguments": '{"command"'}}
    second = {"index": 0, "id": "b", "function": {"name": None, "arguments": ':"ls"}'}}
    heard = await hear_chat(chunk({"tool_calls": [first]}), chunk({"tool_calls": [second]}), chunk({}, "tool_calls"))
    assert [(call.id, call.arguments) for call in heard.reply.tool_calls] == [("a", {"command": "ls"})]


async def test_a_missing_index_is_made_up_for() -> None:
    first = {"id": "a", "function": {"name": "bash", "arguments": '{"command":'}}
    second = {"id": "b", "function": {"name": "bash", "arguments": '{"command":"pwd"}'}}
    rest = {"function": {"arguments": '"ls"}'}}
    heard = await hear_chat(*(chunk({"tool_calls": [c]}) for c in (first, rest, second)), chunk({}, "tool_calls"))
    assert [call.arguments for call in heard.reply.tool_calls] == [{"command": "ls"}, {"command": "pwd"}]


@ALL
async def test_empty_deltas_change_nothing(model: ModelEntry) -> None:
    if model is CLAUDE:
        deltas: list[dict[str, object]] = [{"type": "text_delta", "text": t} for t in ("", "hi", "")]
        pieces = anthropic_stream([({"type": "text", "text": ""}, deltas)], "end_turn")
        pieces.insert(2, sse({"type": "content_block_delta", "index": 0, "delta": {}}))
        pieces.insert(2, sse({"type": "content_block_delta", "index": 0, "delta": None}))
        heard = await hear(model, *pieces)
    elif model is DEEPSEEK:
        empty = [{"content": ""}, {"content": None, "tool_calls": None}, {}, None, {"tool_calls": []}]
        heard = await hear_chat(*map(chunk, empty), chunk({"content": "hi"}), *map(chunk, empty), chunk({}, "stop"))
    else:
        nothing = sse({"type": "response.output_text.delta", "delta": "", "output_index": 0})
        pieces = responses_stream(responses_items("hi"))
        heard = await hear(model, *pieces[:3], nothing, *pieces[3:])
    assert (heard.reply.text, heard.reply.tool_calls, heard.ended.outcome) == ("hi", (), "complete")
