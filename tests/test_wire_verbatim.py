"""What a model thought and signed goes back as it came."""

from typing import Any

import pytest

from tests.stream_hearing import CLAUDE, GPT, LS, anthropic_stream, chunk, hear, hear_chat
from tests.wire_answers import (
    RESPONSES_USAGE,
    reasoning_item,
    responses_items,
    responses_stream,
    sse,
)
from tests.wire_provider import entry


async def test_interleaved_thinking_goes_back_with_signatures_and_order() -> None:
    def thinking(said: str, signature: str) -> tuple[Any, list[Any]]:
        bits: list[Any] = [{"type": "thinking_delta", "thinking": part} for part in said]
        return {"type": "thinking", "thinking": "", "signature": ""}, [
            *bits,
            {"type": "signature_delta", "signature": signature},
        ]

    def tool(call_id: str) -> tuple[Any, list[Any]]:
        block = {"type": "tool_use", "id": call_id, "name": "bash", "input": {}, "caller": {"type": "direct"}}
        return block, [{"type": "input_json_delta", "partial_json": '{"command":"ls"}'}]

    unknown: dict[str, object] = {"type": "of_the_future", "data": "eA==", "nested": {"a": [1, None]}}
    redacted: dict[str, object] = {"type": "redacted_thinking", "data": "cmVk"}
    blocks = [thinking("hm", "c2ln"), tool("c1"), (redacted, []), (unknown, []), thinking("ah", "c2k="), tool("c2")]
    heard = await hear(CLAUDE, *anthropic_stream(blocks, "tool_use"))
    bash = {"type": "tool_use", "name": "bash", "input": {"command": "ls"}, "caller": {"type": "direct"}}
    assert heard.next_request["messages"][1]["content"] == [
        {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
        {**bash, "id": "c1"},
        redacted,
        unknown,
        {"type": "thinking", "thinking": "ah", "signature": "c2k="},
        {**bash, "id": "c2"},
    ]
    assert [call.id for call in heard.reply.tool_calls] == ["c1", "c2"]


async def test_deltas_of_unknown_kinds_and_citations_go_back_in_their_blocks() -> None:
    text: dict[str, object] = {"type": "text", "text": "", "citations": None}
    cited = {"type": "citations_delta", "citation": {"type": "char_location", "cited_text": "x"}}
    server: dict[str, object] = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}}
    blocks: list[tuple[Any, list[Any]]] = [
        (
            {"type": "compaction", "content": ""},
            [{"type": "compaction_delta", "content": part} for part in ("so ", "far")],
        ),
        (server, [{"type": "input_json_delta", "partial_json": '{"query":"x"}'}]),
        (text, [{"type": "text_delta", "text": "hi"}, cited]),
    ]
    heard = await hear(CLAUDE, *anthropic_stream(blocks, "end_turn"))
    assert heard.next_request["messages"][1]["content"] == [
        {"type": "compaction", "content": "so far"},
        {**server, "input": {"query": "x"}},
        {"type": "text", "text": "hi", "citations": [cited["citation"]]},
    ]
    assert heard.reply.tool_calls == ()


async def test_thinking_that_was_cut_or_stands_last_does_not_go_back() -> None:
    block: dict[str, object] = {"type": "thinking", "thinking": ""}
    deltas: list[dict[str, object]] = [{"type": "thinking_delta", "thinking": "hm"}]
    text: tuple[Any, list[Any]] = ({"type": "text", "text": "hi"}, [])
    alone = await hear(CLAUDE, *anthropic_stream([(block, deltas)], "max_tokens"))
    assert (alone.reply.message, alone.reply.ending) == (None, "max_tokens")
    last = await hear(CLAUDE, *anthropic_stream([text, (block, deltas)], "max_tokens"))
    assert last.next_request["messages"][1]["content"] == [{"type": "text", "text": "hi"}]
    stop = sse({"type": "content_block_stop", "index": 0})
    pieces = [piece for piece in anthropic_stream([(block, deltas), text], "max_tokens") if piece != stop]
    cut = await hear(CLAUDE, *pieces)
    assert cut.next_request["messages"][1]["content"] == [{"type": "text", "text": "hi"}]


async def test_reasoning_items_go_back_with_every_other_item_in_order() -> None:
    said, called = responses_items("let me see", [LS])
    future: dict[str, object] = {"type": "of_the_future", "id": "x_1", "payload": {"deep": [1]}}
    items: list[dict[str, object]] = [
        reasoning_item(1),
        {**said, "phase": "commentary"},
        reasoning_item(2),
        called,
        future,
    ]
    heard = await hear(GPT, *responses_stream(items))
    assert heard.next_request["input"][2:] == items
    assert [call.id for call in heard.reply.tool_calls] == ["c1"]
    assert heard.ended.usage == RESPONSES_USAGE
    assert (heard.ended.response_id, heard.ended.response_model) == ("resp_1", "wire-model")
    assert heard.ended.finish_reason == "completed"


async def test_reasoning_that_led_to_nothing_or_is_a_mere_reference_does_not_go_back() -> None:
    alone = await hear(GPT, *responses_stream([reasoning_item()], "max_output_tokens"))
    assert (alone.reply.message, alone.reply.ending) == (None, "max_tokens")
    bare = {**reasoning_item(1), "encrypted_content": None}
    heard = await hear(GPT, *responses_stream([bare, *responses_items("hi"), reasoning_item(2)]))
    assert heard.next_request["input"][2:] == responses_items("hi")


@pytest.mark.parametrize("kept", [True, False], ids=["keep", "drop"])
async def test_reasoning_content_goes_back_or_not_as_the_entry_says(kept: bool) -> None:
    model = entry("sim-deepseek-v4-flash", reasoning="keep" if kept else "drop")
    thoughts = [chunk({"reasoning_content": part, "content": None}) for part in ("h", "m")]
    heard = await hear_chat(*thoughts, chunk({"content": "hi"}), chunk({}, "stop"), model=model)
    said = {"role": "assistant", "content": "hi"}
    assert heard.next_request["messages"][2] == ({**said, "reasoning_content": "hm"} if kept else said)


async def test_reasoning_details_are_put_together_by_index_and_go_back_whole() -> None:
    def details(*items: dict[str, object]) -> dict[str, object]:
        return chunk({"reasoning": "…", "reasoning_details": items})

    text = {"type": "reasoning.text", "index": 0, "format": "anthropic-claude-v1"}
    sealed = {"type": "reasoning.encrypted", "data": "eA==", "index": 1, "id": "r1"}
    heard = await hear_chat(
        details({**text, "text": "h", "signature": None}),
        details({**text, "text": "m", "signature": None}),
        details({**text, "text": "", "signature": "c2ln"}, sealed),
        chunk({"tool_calls": [{"index": 0, "id": "c1", "function": {"name": "bash", "arguments": "{}"}}]}),
        chunk({}, "tool_calls"),
    )
    message = heard.next_request["messages"][2]
    assert message["reasoning_details"] == [{**text, "text": "hm", "signature": "c2ln"}, sealed]
    assert "reasoning" not in message


async def test_thought_signatures_of_calls_and_messages_go_back_wherever_they_came() -> None:
    first = {"index": 0, "id": "a", "function": {"name": "bash", "arguments": '{"command":"ls"}'}}
    signed = {"index": 0, "extra_content": {"google": {"thought_signature": "c2ln"}}}
    heard = await hear_chat(
        chunk({"tool_calls": [first]}),
        chunk({"tool_calls": [signed]}),
        chunk({"extra_content": {"google": {"thought_signature": "bXNn"}}, "annotations": [{"a": 1}]}),
        chunk({"vendor_text": "ab"}),
        chunk({"vendor_text": "cd"}, "tool_calls"),
    )
    message = heard.next_request["messages"][2]
    assert message["tool_calls"][0]["extra_content"] == signed["extra_content"]
    assert message["extra_content"] == {"google": {"thought_signature": "bXNn"}}
    assert message["vendor_text"] == "abcd"
    assert "annotations" not in message


async def test_content_in_parts_goes_back_in_parts_where_it_holds_thinking() -> None:
    thought = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}
    parts = [chunk({"content": [thought]}), chunk({"content": [thought]}), chunk({"content": "hi"}, "stop")]
    heard = await hear_chat(*parts)
    whole = {"type": "thinking", "thinking": [{"type": "text", "text": "hmhm"}]}
    assert heard.next_request["messages"][2]["content"] == [whole, {"type": "text", "text": "hi"}]
    assert heard.reply.text == "hi"


async def test_broken_arguments_of_a_function_call_do_not_make_the_next_request_invalid() -> None:
    heard = await hear(GPT, *responses_stream(responses_items("", [("c1", "bash", '{"comm')]), "max_output_tokens"))
    assert heard.reply.tool_calls[0].arguments is None
    assert heard.next_request["input"][2]["arguments"] == "{}"
    assert heard.reply.ending == "max_tokens"
