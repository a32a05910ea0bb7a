from itertools import pairwise

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.transport.answer_reader import LINE_LIMIT, AnswerReader
from tests.wire_answers import (
    ANTHROPIC_USAGE,
    OPENAI_USAGE,
    RESPONSES_USAGE,
    anthropic_pieces,
    openai_pieces,
    responses_pieces,
    sse,
)

CALLS = [("c1", "bash", '{"command": "echo \\"usage\\": {}; echo [DONE]"}')]


def read(*chunks: bytes) -> AnswerReader:
    reader = AnswerReader(streamed=True)
    for chunk in chunks:
        reader.feed(chunk)
    reader.finish()
    return reader


@given(
    cuts=st.lists(st.integers(0, 4000), max_size=40),
    crlf=st.booleans(),
    flavour=st.sampled_from("aor"),
    lines=st.booleans(),
)
@settings(max_examples=100)
def test_any_cut_of_the_bytes_gives_the_same_usage(cuts: list[int], crlf: bool, flavour: str, lines: bool) -> None:
    pieces = {"a": anthropic_pieces, "o": openai_pieces, "r": responses_pieces}[flavour]("é" * 9, CALLS)
    whole = b"".join(pieces)
    # Data on several lines, wherever JSON allows it.
    whole = whole.replace(b'},"', b'},\ndata:"') if lines else whole
    whole = whole.replace(b"\n", b"\r\n") if crlf else whole
    edges = [0, *sorted(min(cut, len(whole)) for cut in cuts), len(whole)]
    reader = read(*(whole[a:b] for a, b in pairwise(edges)))
    assert reader.terminal
    if flavour == "a":
        assert reader.usage == {**ANTHROPIC_USAGE, "output_tokens": 80}
        assert (reader.response_id, reader.finish_reason) == ("msg_1", "tool_use")
    elif flavour == "o":
        assert reader.usage == OPENAI_USAGE
        assert (reader.response_id, reader.finish_reason) == ("chatcmpl-1", "tool_calls")
    else:
        assert reader.usage == RESPONSES_USAGE
        assert (reader.response_id, reader.finish_reason) == ("resp_1", "completed")
    assert reader.response_model == "wire-model"


def test_the_last_value_that_is_not_null_wins_field_by_field() -> None:
    first = {"message": {"id": "m", "usage": {"input_tokens": 9, "cache": {"a": 1, "b": 2}, "odd": None}}}
    second = {"type": "message_delta", "usage": {"input_tokens": None, "cache": {"b": 3}, "output_tokens": 4}}
    reader = read(sse(first), sse(second))
    assert reader.usage == {"input_tokens": 9, "cache": {"a": 1, "b": 3}, "odd": None, "output_tokens": 4}


def test_an_output_of_which_only_the_beginning_was_told_stands_apart() -> None:
    begun = {name: value for name, value in ANTHROPIC_USAGE.items() if name != "output_tokens"}
    for usage in ({}, {"output_tokens": None}, {"input_tokens": 12}):
        pieces = [*anthropic_pieces("x")[:-2], sse({"type": "message_delta", "delta": {}, "usage": usage})]
        # Cut, it was not to be expected; at the end of a whole answer it was.
        assert read(*pieces).usage == ANTHROPIC_USAGE
        for end in (sse({"type": "message_stop"}), b"data: [DONE]\n\n"):
            assert read(*pieces, end).usage == {**begun, "message_start": {"output_tokens": 1}}
    told = sse({"type": "message_delta", "delta": {}, "usage": {"output_tokens": 1}})
    assert read(*anthropic_pieces("x")[:-2], told, sse({"type": "message_stop"})).usage == ANTHROPIC_USAGE


def with_tiers(pieces: list[bytes], tiers: list[str | None]) -> list[bytes]:
    """Each event that is a chunk or holds a response tells a tier, the last of `tiers` over and over."""
    told: list[bytes] = []
    for piece in pieces:
        tier = orjson.dumps(tiers[min(len(told), len(tiers) - 1)])
        for place in (b'{"id":"chatcmpl-1"', b'{"id":"resp_1"'):
            piece = piece.replace(place, b'{"service_tier":' + tier + place.replace(b"{", b",", 1))
        told.append(piece)
    return told


@pytest.mark.parametrize(
    ("tiers", "kept"),
    [
        (["priority"], {"service_tier": "priority"}),
        (["priority", None], {"service_tier": "priority"}),
        (["auto", "flex"], {"service_tier": "flex"}),
        (["priority", "default"], {}),
        (["auto"], {}),
        ([None], {}),
    ],
)
def test_a_tier_that_stands_beside_the_usage_is_kept_with_it(tiers: list[str | None], kept: dict[str, str]) -> None:
    assert read(*with_tiers(openai_pieces("x"), tiers)).usage == {**OPENAI_USAGE, **kept}
    assert read(*with_tiers(responses_pieces("x"), tiers)).usage == {**RESPONSES_USAGE, **kept}
    for usage in ({"usage": OPENAI_USAGE}, {}):
        reader = AnswerReader(streamed=False)
        reader.feed(orjson.dumps({"id": "c", "service_tier": tiers[-1] or tiers[0], **usage}))
        reader.finish()
        assert reader.usage == ({**OPENAI_USAGE, **kept} if usage else None)


def test_usage_inside_a_choice_is_found() -> None:
    chunk = {"id": "k", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop", "usage": {"prompt_tokens": 3}}]}
    assert read(sse({"id": "k", "choices": []}), sse(chunk)).usage == {"prompt_tokens": 3}


def test_a_stream_without_its_last_event_is_not_complete() -> None:
    for pieces in (anthropic_pieces("x"), openai_pieces("x"), responses_pieces("x")):
        assert not read(*pieces[:-1]).terminal
        assert read(*pieces).terminal


def test_a_server_that_never_ends_its_line_fills_no_memory() -> None:
    reader = AnswerReader(streamed=True)
    for _ in range(64):
        reader.feed(b"x" * (LINE_LIMIT // 8))
    assert len(reader._kept) <= LINE_LIMIT
    reader.feed(b"\n" + b"".join(openai_pieces("x")))
    reader.finish()
    assert reader.usage == OPENAI_USAGE


def test_a_response_read_whole_says_why_it_ended() -> None:
    body = {"id": "r", "object": "response", "status": "incomplete", "usage": RESPONSES_USAGE}
    reader = AnswerReader(streamed=False)
    reader.feed(orjson.dumps({**body, "incomplete_details": {"reason": "max_output_tokens"}}))
    reader.finish()
    assert (reader.terminal, reader.finish_reason, reader.usage) == (True, "max_output_tokens", RESPONSES_USAGE)


def test_events_without_empty_lines_between_them_are_read_one_by_one() -> None:
    pieces = [piece.replace(b"\n\n", b"\n") for piece in openai_pieces("x")]
    assert read(*pieces).usage == OPENAI_USAGE


def test_an_event_of_endlessly_many_lines_fills_no_memory() -> None:
    reader = AnswerReader(streamed=True)
    for _ in range(64):
        reader.feed(b"data: " + b"x" * (LINE_LIMIT // 8) + b"\n")
    assert sum(map(len, reader._data)) <= LINE_LIMIT
    reader.feed(b"\n" + b"".join(openai_pieces("x")))
    reader.finish()
    assert reader.usage == OPENAI_USAGE


@pytest.mark.parametrize(
    "payload",
    [b"{", b"[]", b'{"usage":{"a":1}', b'{"choices":[7],"usage":5}', b'{"message":3,"delta":[],"id":{},"error":0}'],
)
def test_nonsense_is_let_pass(payload: bytes) -> None:
    reader = read(b"data: " + payload + b"\n\n", b"data: " + b'{"usage":{"x":' * 200 + b"1" + b"}}" * 200 + b"\n")
    assert not reader.terminal
    assert reader.response_id is None


def test_a_whole_json_body_is_complete_and_a_torn_one_is_not() -> None:
    body = orjson.dumps({"id": "msg_9", "model": "m", "stop_reason": "end_turn", "usage": {"input_tokens": 1}})
    for text, whole in ((body, True), (body[:-1], False)):
        reader = AnswerReader(streamed=False)
        reader.feed(text)
        reader.finish()
        assert reader.terminal is whole
        assert reader.usage == ({"input_tokens": 1} if whole else None)
