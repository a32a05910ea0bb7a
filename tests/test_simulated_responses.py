"""The simulated provider's OpenAI Responses protocol: its shapes, its rules, and the cache that breakpoints ask for."""

import json
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.simulated.app import simulated_provider
from agents.simulated.catalogue import Catalogue
from agents.simulated.persona import load_personas
from agents.simulated.prefix_cache import Split
from agents.simulated.provider import Provider
from tests.simulated_client import (
    EPOCH,
    GPT,
    Client,
    Reply,
    ResponsesLane,
    compact,
    events,
    persona_file,
    responses_head,
    said,
    schema,
    system_text,
)

USER = said("user", "Do something nobody has heard of.")
BREAK = {"prompt_cache_breakpoint": {"mode": "explicit"}}
EXPLICIT = {"prompt_cache_options": {"mode": "explicit"}}
STRICT = {
    "type": "object",
    "properties": {"a": {"type": "string"}},
    "required": ["a"],
    "additionalProperties": False,
}
CALL = {"type": "function_call", "call_id": "c1", "name": "bash", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": "ok"}
LONG, MORE, TAIL = "a" * 6000, "b" * 3000, "c" * 500


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with Client(simulated_provider(tasks=[])) as opened:
        yield opened


def body(**more: Any) -> dict[str, Any]:
    return responses_head("solo", **{"input": [said("developer", system_text("solo")), USER], **more})


async def test_a_stream_says_what_the_whole_answer_says() -> None:
    replies = []
    for more in ({}, {"stream": True}):
        async with Client(simulated_provider(tasks=[])) as client:
            replies.append(await client.responses(body(**more)))
    whole, streamed = replies
    seen = events(streamed.raw)
    assert [event["sequence_number"] for event in seen] == list(range(len(seen)))
    kinds = [event["type"] for event in seen]
    assert (kinds[:2], kinds[-1]) == (["response.created", "response.in_progress"], "response.completed")
    assert [line for line in streamed.raw.decode().split("\n") if line.startswith("event: ")] == [
        f"event: {kind}" for kind in kinds
    ]
    ended = seen[-1]["response"]
    assert all(event["response"]["usage"] is None for event in seen[:2])
    assert ended["usage"] == whole.usage
    assert [item["type"] for item in ended["output"]] == ["reasoning", "message", "function_call"]
    done = [event["item"] for event in seen if event["type"] == "response.output_item.done"]
    assert done == ended["output"]
    added = [event["item"] for event in seen if event["type"] == "response.output_item.added"]
    assert [item["id"] for item in added] == [item["id"] for item in done]
    assert all("encrypted_content" not in item for item in added)
    _, message, call = whole.body["output"]
    text = "".join(event["delta"] for event in seen if event["type"] == "response.output_text.delta")
    typed = "".join(event["delta"] for event in seen if event["type"] == "response.function_call_arguments.delta")
    assert (text, typed) == (message["content"][0]["text"], call["arguments"])
    assert whole.body["status"] == ended["status"] == "completed"


async def test_every_event_is_one_that_the_sdk_declares() -> None:
    from openai.types.responses import Response, ResponseStreamEvent
    from pydantic import TypeAdapter

    events_of: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
    async with Client(simulated_provider(tasks=[])) as client:
        asked = body(stream=True, reasoning={"summary": "auto", "effort": "high"})
        for more in ({}, {"max_output_tokens": 400}):
            for event in events((await client.responses({**asked, **more})).raw):
                assert events_of.validate_python(event).type == event["type"]
        Response.model_validate((await client.responses(body())).body)


async def test_the_official_sdk_talks_with_it() -> None:
    import httpx2
    import openai

    app = simulated_provider(tasks=[])
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app)) as http:
        sdk = openai.AsyncOpenAI(api_key="k", base_url="http://sim/v1", http_client=http, max_retries=0)
        response = await sdk.responses.create(**body())
        assert response.usage is not None
        assert response.usage.input_tokens_details.cache_write_tokens > 0
        assert response.output[-1].type == "function_call"
        async with sdk.responses.stream(**body()) as stream:
            final = await stream.get_final_response()
        assert final.output_text == response.output_text
        assert final.usage is not None
        assert final.usage.total_tokens == response.usage.total_tokens
        history = [item.model_dump(exclude_unset=True) for item in response.output]
        call = response.output[-1].call_id
        result = {"type": "function_call_output", "call_id": call, "output": "done"}
        following = await sdk.responses.create(**{**body(), "input": [*body()["input"], *history, result]})
        assert following.usage is not None
        assert following.usage.input_tokens_details.cached_tokens == response.usage.input_tokens
        with pytest.raises(openai.BadRequestError, match="Unknown parameter: 'surprise'"):
            await sdk.responses.create(**body(), extra_body={"surprise": 1})


async def test_an_answer_cut_at_its_bound_is_incomplete(client: Client) -> None:
    full = await client.responses(body())
    tokens, thought = full.usage["output_tokens"], full.usage["output_tokens_details"]["reasoning_tokens"]
    for bound in (16, thought, thought + 5, tokens - 1):
        reply = await client.responses(body(max_output_tokens=bound))
        assert reply.usage["output_tokens"] <= bound
        assert (reply.body["status"], reply.body["incomplete_details"]) == (
            "incomplete",
            {"reason": "max_output_tokens"},
        )
        assert reply.body["output"][-1]["status"] == "incomplete"
        assert all(item["type"] != "function_call" for item in reply.body["output"])
        streamed = await client.responses(body(max_output_tokens=bound, stream=True))
        assert events(streamed.raw)[-1]["type"] == "response.incomplete"
    assert (await client.responses(body(max_output_tokens=tokens))).body["status"] == "completed"


REFUSALS: list[tuple[dict[str, Any], str, str | None]] = [
    (body(surprise=1), "Unknown parameter: 'surprise'.", "unknown_parameter"),
    (body(previous_response_id="resp_1"), "Unsupported parameter: 'previous_response_id'", "unsupported_parameter"),
    (body(temperature=0.5), "Unsupported parameter: 'temperature'", "unsupported_parameter"),
    (body(max_tokens=50), "Unsupported parameter: 'max_tokens'", "unsupported_parameter"),
    (body(messages=[]), "this parameter has moved to 'input'", "unsupported_parameter"),
    (body(response_format={}), "this parameter has moved to 'text.format'", "unsupported_parameter"),
    (body(reasoning_effort="low"), "this parameter has moved to 'reasoning.effort'", "unsupported_parameter"),
    (body(max_output_tokens=15), "Expected a value >= 16, but got 15", "integer_below_min_value"),
    (body(max_output_tokens=10**9), "integer above maximum value", "integer_above_max_value"),
    (body(reasoning={"effort": "minimal"}), "Supported values are: 'low', 'medium'", "invalid_value"),
    (body(reasoning={"budget": 1}), "Unknown parameter: 'reasoning.budget'.", "unknown_parameter"),
    (body(include=["thoughts"]), "Invalid value: 'thoughts'", "invalid_value"),
    (body(truncation="auto"), "Unsupported parameter: 'truncation'", "unsupported_parameter"),
    (body(stream_options={}), "only allowed when 'stream' is enabled", None),
    (
        body(text={"format": {"type": "json_schema", "name": "a"}}),
        "Missing required parameter: 'text.format.schema'",
        "",
    ),
    (
        body(text={"format": {"type": "json_schema", "name": "a", "strict": True, "schema": {"type": "object"}}}),
        "'additionalProperties' is required to be supplied and to be false",
        "invalid_json_schema",
    ),
    (
        body(
            text={"format": {"type": "json_schema", "name": "a", "strict": True, "schema": {**STRICT, "required": []}}}
        ),
        "Missing 'a'.",
        "invalid_json_schema",
    ),
    (body(tools=[{"type": "function", "function": {}}]), "Unknown parameter: 'tools[0].function'.", ""),
    (body(tools=[{"type": "web_search"}]), "Invalid type for 'tools[0]'", "invalid_type"),
    (
        body(tools=[{"type": "function", "name": "t", "parameters": schema("x"), "strict": True}]),
        "Invalid schema for function 't'",
        "invalid_json_schema",
    ),
    (body(tools=[], tool_choice="required"), "only allowed when 'tools' are specified", None),
    (body(input=[]), "Missing required parameter: 'input'.", "missing_required_parameter"),
    (body(input=[{"type": "magic"}]), "Invalid value: 'magic'", "invalid_value"),
    (body(input=[{**USER, "extra": 1}]), "Unknown parameter: 'input[0].extra'.", "unknown_parameter"),
    (body(input=[{"role": "tool", "content": "x"}]), "Invalid value: 'tool'", "invalid_value"),
    (
        body(input=[{"role": "user", "content": [{"type": "text", "text": "x"}]}]),
        "Invalid value: 'text'. Supported values are: 'input_text'.",
        "invalid_value",
    ),
    (body(input=[USER, CALL]), "No tool output found for function call c1.", None),
    (body(input=[USER, OUTPUT]), "No tool call found for function call output with call_id c1.", None),
    (body(input=[USER, CALL, OUTPUT, OUTPUT]), "No tool call found for function call output", None),
    (body(input="x" * 4_300_000), "Your input exceeds the context window", "context_length_exceeded"),
    (body(prompt_cache_retention="24h"), "prompt_cache_retention is not supported on this model", "invalid_parameter"),
    (
        body(prompt_cache_options={"ttl": "1h"}),
        "Invalid value: '1h'. Supported values are: '30m' and '12h'.",
        "invalid_value",
    ),
    (body(prompt_cache_options={"mode": "automatic"}), "'implicit' and 'explicit'", "invalid_value"),
    (body(prompt_cache_options={"size": 1}), "Unknown parameter: 'prompt_cache_options.size'.", "unknown_parameter"),
    (
        body(input=[said("user", "x", prompt_cache_breakpoint={"mode": "implicit"})]),
        "Supported values are: 'explicit'.",
        "invalid_value",
    ),
    (
        body(input=[said("user", "x", prompt_cache_breakpoint={"mode": "explicit", "ttl": "5m"})]),
        "Supported values are: '30m' and '12h'.",
        "invalid_value",
    ),
    (
        body(input=[said("user", "x", cache_control={"type": "ephemeral"})]),
        "Unknown parameter: 'input[0].content[0].cache_control'.",
        "unknown_parameter",
    ),
    (
        body(input=[USER, {"role": "assistant", "content": [{"type": "output_text", "text": "x", **BREAK}]}, USER]),
        "Unknown parameter: 'input[1].content[0].prompt_cache_breakpoint'.",
        "unknown_parameter",
    ),
]


@pytest.mark.parametrize(("asked", "message", "code"), REFUSALS)
async def test_responses_refuses(client: Client, asked: dict[str, Any], message: str, code: str | None) -> None:
    reply = await client.responses(asked)
    assert reply.status == 400
    assert message in reply.message
    assert set(reply.body["error"]) == {"message", "type", "param", "code"}
    assert reply.body["error"]["type"] == "invalid_request_error"
    assert code == "" or reply.body["error"]["code"] == code


async def test_what_the_rules_allow_is_answered(client: Client) -> None:
    taken: list[dict[str, Any]] = [
        {"input": "hello"},
        {"input": [{"role": "user", "content": "hello"}], "instructions": "be brief", "metadata": {}},
        {"input": [USER, CALL, {**OUTPUT, "output": [{"type": "input_text", "text": "ok", **BREAK}]}]},
        {"text": {"format": {"type": "text"}, "verbosity": "low"}, "tool_choice": "none", "truncation": "disabled"},
        {"parallel_tool_calls": False, "prompt_cache_key": "k", "service_tier": "auto", "user": "u"},
    ]
    for more in taken:
        assert (await client.responses(body(**more))).status == 200


async def test_without_a_key_or_with_an_unknown_model_it_answers_as_the_chat_does(client: Client) -> None:
    assert (await client.responses(body(), headers={"authorization": ""})).status == 401
    for model in ("gpt-9", "sim-claude-opus-5-5", "sim-deepseek-v4-flash"):
        reply = await client.responses(body(model=model))
        assert (reply.status, reply.body["error"]["code"]) == (404, "model_not_found")


# ---- the cache


def ask(*texts: str | tuple[str, dict[str, Any]], **more: Any) -> dict[str, Any]:
    """Input messages of the user; a text with a dictionary has that at its part."""
    pairs = [(text, {}) if isinstance(text, str) else text for text in texts]
    return {"model": GPT, "input": [said("user", text, **extra) for text, extra in pairs], **more}


def size(*texts: str) -> int:
    return sum(-(-len(b"user\n" + compact({"type": "input_text", "text": text})) // 4) for text in texts)


def at(seconds: float) -> Any:
    return EPOCH + timedelta(seconds=seconds)


def figures(reply: Reply) -> tuple[int, int, int]:
    """(read, written, all of the prompt)."""
    assert reply.status == 200, reply.body
    details = reply.usage["input_tokens_details"]
    assert sum(details.get("cache_write_tokens_details", {}).values()) == details["cache_write_tokens"]
    return details["cached_tokens"], details["cache_write_tokens"], reply.usage["input_tokens"]


async def test_the_implicit_breakpoint_lets_a_growing_conversation_read_what_it_wrote(client: Client) -> None:
    assert figures(await client.responses(ask(LONG), at=at(0))) == (0, size(LONG), size(LONG))
    reply = await client.responses(ask(LONG, MORE), at=at(60))
    assert figures(reply) == (size(LONG), size(MORE), size(LONG, MORE))
    assert figures(await client.responses(ask(LONG, "other"), at=at(120)))[0] == size(LONG)
    # It stood at the end of a message: no entry is inside one.
    assert figures(await client.responses(ask(LONG + "x"), at=at(180)))[0] == 0


async def test_in_explicit_mode_marked_parts_alone_are_cached(client: Client) -> None:
    asked = ask((LONG, BREAK), MORE, **EXPLICIT)
    assert figures(await client.responses(asked, at=at(0))) == (0, size(LONG), size(LONG, MORE))
    assert figures(await client.responses(asked, at=at(60))) == (size(LONG), 0, size(LONG, MORE))
    for unmarked in (0, 60):
        reply = await client.responses(ask(LONG, MORE, **EXPLICIT), at=at(unmarked))
        assert figures(reply) == (0, 0, size(LONG, MORE))


async def test_a_mark_is_no_content_and_a_string_is_one_part(client: Client) -> None:
    await client.responses(ask((LONG, BREAK), **EXPLICIT), at=at(0))
    plain = {"model": GPT, "input": [{"role": "user", "content": LONG}]}
    assert figures(await client.responses(plain, at=at(60))) == (size(LONG), 0, size(LONG))


@pytest.mark.parametrize("end", range(1, 7))
@pytest.mark.parametrize("mode", ["explicit", "implicit"])
async def test_four_breakpoints_are_written_the_latest_ones(client: Client, mode: str, end: int) -> None:
    texts = [f"{k}{LONG}" for k in range(6)]
    # In implicit mode the last message is the implicit breakpoint's, and three marked ones are left.
    marked = texts if mode == "explicit" else texts[:5]
    pairs: list[Any] = [(text, BREAK) for text in marked] + texts[len(marked) :]
    reply = await client.responses(ask(*pairs, prompt_cache_options={"mode": mode}), at=at(0))
    assert figures(reply) == (0, size(*texts), size(*texts))
    probe = ask(*((text, BREAK) for text in texts[:end]), **EXPLICIT)
    read, _, _ = figures(await client.responses(probe, at=at(60)))
    assert read == (size(*texts[:end]) if end - 1 in (2, 3, 4, 5) else 0)


async def test_the_latest_80_breakpoints_are_matched_and_older_ones_are_not(client: Client) -> None:
    for key, later, found in (("a", 79, True), ("b", 80, False)):
        client.key = key
        await client.responses(ask((LONG, BREAK), **EXPLICIT), at=at(0))
        pairs = [(LONG, BREAK), *((f"{k}", BREAK) for k in range(later))]
        read, _, _ = figures(await client.responses(ask(*pairs, **EXPLICIT), at=at(60)))
        assert read == (size(LONG) if found else 0)


async def test_lifetimes_are_30_minutes_or_12_hours_from_the_request_and_told_apart(client: Client) -> None:
    half_day = {"prompt_cache_breakpoint": {"mode": "explicit", "ttl": "12h"}}
    reply = await client.responses(ask((LONG, half_day), MORE), at=at(0))
    assert reply.usage["input_tokens_details"]["cache_write_tokens_details"] == {
        "ttl_30m_tokens": size(MORE),
        "ttl_12h_tokens": size(LONG),
    }
    assert figures(await client.responses(ask(LONG, MORE), at=at(1800)))[0] == size(LONG, MORE)
    assert figures(await client.responses(ask(LONG, MORE), at=at(1800 + 1800.000001)))[0] == size(LONG)
    client.key = "request-wide"
    reply = await client.responses(ask(LONG, prompt_cache_options={"ttl": "12h"}), at=at(0))
    assert reply.usage["input_tokens_details"]["cache_write_tokens_details"]["ttl_12h_tokens"] == size(LONG)
    assert reply.body["prompt_cache_options"] == {"mode": "implicit", "ttl": "12h"}
    assert figures(await client.responses(ask(LONG), at=at(43_200)))[0] == size(LONG)
    assert figures(await client.responses(ask(LONG), at=at(43_200 * 2 + 1)))[0] == 0


async def test_a_prefix_below_1024_tokens_is_plain_input(client: Client) -> None:
    overhead = len(b"user\n" + compact({"type": "input_text", "text": ""}))
    for length, cached in ((1023, False), (1024, True)):
        text = "x" * (4 * length - overhead)
        assert size(text) == length
        reply = await client.responses(ask(text), at=at(0))
        assert figures(reply) == (0, length if cached else 0, length)
        assert (figures(await client.responses(ask(text), at=at(60)))[0] > 0) == cached


async def test_another_cache_key_setting_or_tool_finds_nothing(client: Client) -> None:
    await client.responses(ask(LONG, prompt_cache_key="one"), at=at(0))
    others: list[dict[str, Any]] = [
        {},
        {"prompt_cache_key": "two"},
        {"prompt_cache_key": "one", "reasoning": {"effort": "high"}},
        {"prompt_cache_key": "one", "text": {"verbosity": "low"}},
        {"prompt_cache_key": "one", "instructions": "x"},
        {"prompt_cache_key": "one", "tools": [{"type": "function", "name": "t"}]},
    ]
    for other in others:
        assert figures(await client.responses(ask(LONG, **other), at=at(60)))[0] == 0
    assert figures(await client.responses(ask(LONG, prompt_cache_key="one", tool_choice="none"), at=at(60)))[0] > 0


def chat(*messages: Any, **more: Any) -> dict[str, Any]:
    return {"model": GPT, "messages": [{"role": "user", "content": content} for content in messages], **more}


def part(text: str, **more: Any) -> list[dict[str, Any]]:
    return [{"type": "text", "text": text, **more}]


async def test_chat_completions_of_such_a_model_have_the_same_breakpoints(client: Client) -> None:
    def told(reply: Reply) -> tuple[int, int]:
        assert reply.status == 200, reply.body
        details = reply.usage["prompt_tokens_details"]
        return details["cached_tokens"], details["cache_write_tokens"]

    first = await client.chat(chat(part(LONG, **BREAK), MORE, **EXPLICIT), at=at(0))
    _, written = told(first)
    assert 1500 < written < first.usage["prompt_tokens"] - 700
    assert told(await client.chat(chat(part(LONG, **BREAK), MORE, **EXPLICIT), at=at(60))) == (written, 0)
    reply = await client.chat(chat(LONG, MORE), at=at(120))
    assert told(reply) == (written, first.usage["prompt_tokens"] - written)
    reply = await client.chat(chat(LONG, prompt_cache_options={"ttl": "12h"}))
    assert (reply.status, "Supported values are: '30m'." in reply.message) == (400, True)


async def test_marks_in_chat_parts_are_honoured_where_the_cache_is_asked_for_so(tmp_path: Path) -> None:
    prices = {"input": "1", "cache_read": "0.1", "cache_write_5m": "1.25", "cache_write_1h": "2", "output": "3"}
    path = persona_file(
        tmp_path / "routed.yaml",
        "sim-deepseek-v4-flash",
        "sim-routed",
        shape="openai",
        cache="anthropic-1024",
        usd_per_mtok=prices,
    )
    mark = {"cache_control": {"type": "ephemeral"}}
    hour = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
    bill = tmp_path / "bill.jsonl"
    async with Client(simulated_provider(tasks=[], personas=path, bill=bill)) as client:
        asked = chat(part(LONG, **hour), part(MORE, **mark), TAIL, model="sim-routed")
        first = await client.chat(asked, at=at(0))
        written = first.usage["prompt_tokens_details"]["cache_write_tokens"]
        again = await client.chat(asked, at=at(299))
        assert again.usage["prompt_tokens_details"]["cached_tokens"] == written > 2200
        late = (await client.chat(asked, at=at(299 + 301))).usage["prompt_tokens_details"]
        assert 0 < late["cached_tokens"] < written == late["cached_tokens"] + late["cache_write_tokens"]
        unmarked = (await client.chat(chat(LONG, MORE, TAIL, model="sim-routed"), at=at(301))).usage
        assert unmarked["prompt_tokens_details"] == {"cached_tokens": 0, "cache_write_tokens": 0}
        reply = await client.chat(chat(*(part(f"{k}", **mark) for k in range(5)), model="sim-routed"))
        assert (reply.status, "A maximum of 4 blocks" in reply.message) == (400, True)
        reply = await client.chat(chat(part(LONG, **mark), part(MORE, **hour), model="sim-routed"))
        assert "a ttl='1h' cache_control block must not come after a ttl='5m'" in reply.message
    line = json.loads(bill.read_text().splitlines()[0])
    assert set(line["tokens"]) == {"input", "cache_read", "output", "cache_write_5m", "cache_write_1h"}


async def test_the_bill_prices_writes_by_lifetime(tmp_path: Path) -> None:
    bill = tmp_path / "bill.jsonl"
    async with Client(simulated_provider(tasks=[], bill=bill)) as client:
        reply = await client.responses(ask(LONG, prompt_cache_options={"ttl": "12h"}), at=at(0))
    line = json.loads(bill.read_text())
    output = reply.usage["output_tokens"]
    assert line["tokens"] == {"input": 0, "cache_read": 0, "output": output, "cache_write_12h": size(LONG)}
    assert Decimal(line["usd"]) == Decimal(5 * size(LONG) + 10 * output) / 10**6
    assert line["response"] == reply.body["id"]


def provider() -> Provider:
    return Provider(load_personas(), Catalogue([]), seed=0)


def take(sim: Provider, asked: object, seconds: float) -> Split:
    return sim.serve("openai_responses", "key", compact(asked), at(seconds), timed=True).split


CONTENTS = ["The quick brown fox jumps. " * 40 + str(k) for k in range(14)]


@settings(max_examples=60)
@given(block=st.integers(0, 13), implicit=st.booleans(), data=st.data())
def test_one_byte_edited_early_loses_the_cache_from_its_block_on(
    block: int, implicit: bool, data: st.DataObject
) -> None:
    position = data.draw(st.integers(0, len(CONTENTS[block]) - 1))
    edited = list(CONTENTS)
    edited[block] = CONTENTS[block][:position] + "#" + CONTENTS[block][position + 1 :]
    marked = data.draw(st.sets(st.integers(0, 13), max_size=6))

    def asked(texts: Sequence[str]) -> dict[str, Any]:
        pairs = [(text, BREAK if place in marked else {}) for place, text in enumerate(texts)]
        return ask(*pairs, prompt_cache_options={"mode": "implicit" if implicit else "explicit"})

    sim = provider()
    take(sim, asked(CONTENTS), 0)
    again = take(sim, asked(CONTENTS), 60)
    split = take(sim, asked(edited), 120)
    written = sorted(marked)[-4:] if not implicit else [*sorted(marked - {13})[-3:], 13]
    ends = [size(*CONTENTS[: place + 1]) for place in written]
    assert again.read == max((end for end in ends if end >= 1024), default=0)
    standing = [size(*CONTENTS[: place + 1]) for place in written if place < block]
    assert split.read == max((end for end in standing if end >= 1024), default=0)
    assert split.read + sum(split.written.values()) + split.uncached == size(*CONTENTS)


WORDS = st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), min_size=1, max_size=400)


@settings(max_examples=40)
@given(
    texts=st.lists(WORDS, min_size=1, max_size=10),
    big=st.booleans(),
    marked=st.sets(st.integers(0, 9), max_size=6),
    mode=st.sampled_from(["implicit", "explicit"]),
)
def test_usage_adds_up_to_the_bytes_that_were_sent(texts: list[str], big: bool, marked: set[int], mode: str) -> None:
    sim = provider()
    texts = [text * (20 if big else 1) for text in texts]
    for step in range(1, len(texts) + 1):
        pairs = [(text, BREAK if place in marked else {}) for place, text in enumerate(texts[:step])]
        asked = ask(*pairs, prompt_cache_options={"mode": mode})
        served = sim.serve("openai_responses", "key", compact(asked), at(30 * step), timed=True)
        split = served.split
        assert split.read + sum(split.written.values()) + split.uncached == size(*texts[:step])
        assert min(split.read, split.uncached, *split.written.values(), 0) == 0
        assert sum(served.tokens.values()) == size(*texts[:step]) + served.emission.tokens
        assert served.emission.thinking_tokens < served.emission.tokens


async def history(turns: int) -> list[dict[str, Any]]:
    lane = ResponsesLane()
    lane.hear("Do something nobody has heard of.")
    async with Client(simulated_provider(tasks=[])) as client:
        for _ in range(turns):
            await lane.turn(client, EPOCH)
            lane.results('exit code 0\n{"input":[{"messages":[1]}]}')
    return lane.messages


@pytest.mark.parametrize("spaced", [False, True])
@pytest.mark.parametrize("order", [False, True])
async def test_remembering_a_conversation_changes_no_answer(spaced: bool, order: bool) -> None:
    """Two providers get the same requests; one of them reads each as if it had never seen any."""
    items = await history(20)
    remembering, forgetful = provider(), provider()
    ends = [place + 1 for place, item in enumerate(items) if item["type"] == "function_call_output"]
    requests = [items[:2], *(items[:end] for end in (ends[0], ends[1], ends[9], ends[19], ends[4], ends[12]))]
    edited = [dict(item) for item in items[: ends[15]]]
    edited[ends[7] - 1]["output"] = "exit code 1"
    cut = [item for item in items[: ends[12]] if item is not items[ends[11]]]
    requests += [edited, items[: ends[16]], cut, items[: ends[17]]]
    outcomes = []
    for step, sent in enumerate(requests):
        head = responses_head("solo") | ({"reasoning": {"effort": "high"}} if step == 5 else {})
        asked = {"input": sent, **head} if order else {**head, "input": sent}
        raw = json.dumps(asked).encode() if spaced else compact(asked)
        forgetful._recollections = provider()._recollections
        both: list[tuple[Any, ...]] = []
        for sim in (remembering, forgetful):
            try:
                served = sim.serve("openai_responses", "key", raw, at(step), timed=True)
                both.append((served.emission, served.split, served.timing))
            except Exception as error:
                both.append((type(error), str(error)))
        assert both[0] == both[1]
        outcomes.append(both[0])
    assert sum(isinstance(outcome[0], type) for outcome in outcomes) == 1
