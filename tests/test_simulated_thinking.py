"""Simulated models that think: what they send, what has to come back, and how a missing piece is refused."""

import copy
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.simulated.app import simulated_provider
from agents.simulated.thought import Thought, call_id, issued, seal, signature, unseal
from tests.simulated_client import (
    EPOCH,
    GPT,
    SONNET,
    AnthropicLane,
    ChatLane,
    Client,
    Lane,
    Reply,
    ResponsesLane,
    events,
    persona_file,
    timing,
)

THINKER = "sim-thinking-chat"
PLAIN = "sim-claude-opus-5-5"


@pytest.fixture
def personas(tmp_path: Path) -> Path:
    folder = tmp_path / "personas"
    folder.mkdir()
    persona_file(folder / "chat.yaml", "sim-deepseek-v4-flash", THINKER, thinking={"tokens": 150})
    persona_file(folder / "lax.yaml", "sim-deepseek-v4-flash", "sim-lax", thinking={"tokens": 150, "demanded": False})
    always = {"tokens": 200, "redacted": 1.0}
    persona_file(folder / "redacting.yaml", SONNET, "sim-redacting", thinking=always)
    return folder


@pytest.fixture
async def client(personas: Path) -> AsyncIterator[Client]:
    async with Client(simulated_provider(tasks=[], personas=personas)) as opened:
        yield opened


LANES: list[Callable[[], Lane]] = [AnthropicLane, lambda: ChatLane(THINKER), ResponsesLane]


@pytest.mark.parametrize("lane_of", LANES)
async def test_thirty_turns_with_tools_and_thinking_are_never_refused_and_read_what_was_written(
    client: Client, lane_of: Callable[[], Lane]
) -> None:
    lane, now, prompt, written_to = lane_of(), EPOCH, 0, 0
    lane.hear("Prove the Riemann hypothesis.")
    for turn in range(30):
        reply, calls = await lane.turn(client, now)
        read, written, prompt, output, thinking = lane.tokens(reply.usage)
        assert 0 < thinking < output
        if turn:
            unit = 64 if isinstance(lane, ChatLane) else 1
            assert read == written_to // unit * unit
        written_to = prompt if isinstance(lane, ChatLane) else read + written
        assert written_to == prompt
        now += timedelta(seconds=timing(reply.headers["x-fullchain-time"])["end"] + 2)
        assert len(calls) == 1
        if calls[0][1] == "submit":
            lane.results("Go on, please.")
        else:
            lane.results("exit code 0\nsome output\n")
    assert prompt > 6000


async def opened(client: Client, lane: Lane, turns: int = 2) -> Lane:
    lane.hear("Prove the Riemann hypothesis.")
    for _ in range(turns):
        await lane.turn(client, EPOCH)
        lane.results("exit code 0\n")
    return lane


def assistants(lane: Lane) -> list[dict[str, Any]]:
    return [message for message in lane.messages if message.get("role") == "assistant"]


async def refused(client: Client, lane: Lane) -> Reply:
    reply = await client.post(lane.path, lane.body())
    assert reply.status == 400, reply.body
    return reply


async def test_anthropic_wants_the_thinking_of_the_latest_tool_turn_back(client: Client) -> None:
    lane = await opened(client, AnthropicLane())
    first, last = assistants(lane)
    assert [block["type"] for block in last["content"]] == ["thinking", "text", "tool_use"]
    kept = copy.deepcopy(last["content"])
    last["content"] = kept[1:]
    reply = await refused(client, lane)
    assert reply.body["error"]["type"] == "invalid_request_error"
    assert reply.message.startswith(
        "messages.3.content.0.type: Expected `thinking` or `redacted_thinking`, but found `text`."
    )
    disabled = await client.messages({**lane.body(), "thinking": {"type": "disabled"}})
    assert disabled.status == 200
    last["content"] = [kept[1], kept[0], kept[2]]
    assert "in the latest assistant message cannot be modified" in (await refused(client, lane)).message
    last["content"] = [first["content"][0], *kept[1:]]
    assert "messages.3.content.0: `thinking` or" in (await refused(client, lane)).message
    last["content"] = kept
    first["content"] = first["content"][1:]
    assert (await client.messages(lane.body())).status == 200


async def test_an_altered_signature_or_thinking_is_refused_wherever_it_stands(client: Client) -> None:
    for turn in (0, 1):
        for name, value in (("signature", "AAAA"), ("thinking", "Something else.")):
            lane = await opened(client, AnthropicLane())
            assistants(lane)[turn]["content"][0][name] = value
            reply = await refused(client, lane)
            assert reply.message == f"messages.{2 * turn + 1}.content.0: Invalid `signature` in `thinking` block"
    lane = await opened(client, AnthropicLane())
    del assistants(lane)[1]["content"][0]["signature"]
    assert (await refused(client, lane)).message == "messages.3.content.0.thinking.signature: Field required"


async def test_redacted_thinking_comes_back_whole_and_in_order(client: Client) -> None:
    lane = await opened(client, AnthropicLane("sim-redacting"))
    (_, last) = assistants(lane)
    kept = last["content"]
    assert [block["type"] for block in kept] == ["thinking", "redacted_thinking", "text", "tool_use"]
    assert (await client.messages(lane.body())).status == 200
    last["content"] = [kept[1], kept[0], *kept[2:]]
    assert "cannot be modified" in (await refused(client, lane)).message
    last["content"] = [kept[0], *kept[2:]]
    assert "cannot be modified" in (await refused(client, lane)).message
    last["content"] = [kept[0], {**kept[1], "data": "AAAA"}, *kept[2:]]
    reply = await refused(client, lane)
    assert reply.message == "messages.3.content.1: Invalid `data` in `redacted_thinking` block"


async def test_some_of_the_shipped_models_thinking_is_redacted(client: Client) -> None:
    kinds = set()
    for nonce in range(20):
        lane = AnthropicLane(nonce=f"{nonce:016x}")
        lane.hear("hello")
        reply, _ = await lane.turn(client, EPOCH)
        kinds.add(tuple(block["type"] for block in reply.body["content"])[:2])
    assert kinds == {("thinking", "text"), ("thinking", "redacted_thinking")}


async def test_thinking_and_a_forced_tool_exclude_each_other(client: Client) -> None:
    lane = AnthropicLane(tool_choice={"type": "any"})
    lane.hear("hello")
    assert (await refused(client, lane)).message == "Thinking may not be enabled when tool_choice forces tool use."
    lane.more["thinking"] = {"type": "disabled"}
    reply, _ = await lane.turn(client, EPOCH)
    assert [block["type"] for block in reply.body["content"]] == ["text", "tool_use"]


def reasoning(lane: Lane) -> list[int]:
    return [place for place, item in enumerate(lane.messages) if item["type"] == "reasoning"]


async def test_responses_wants_the_reasoning_item_before_its_items(client: Client) -> None:
    lane = await opened(client, ResponsesLane())
    place = reasoning(lane)[-1]
    kept = copy.deepcopy(lane.messages)
    item = kept[place]
    assert [item["type"] for item in kept[place : place + 3]] == ["reasoning", "message", "function_call"]
    del lane.messages[place]
    reply = await refused(client, lane)
    named = kept[place + 1]["id"]
    required = f"Item '{named}' of type 'message' was provided without its required 'reasoning' item: '{item['id']}'."
    assert (reply.message, reply.body["error"]["param"]) == (required, "input")
    del lane.messages[place]
    reply = await refused(client, lane)
    assert reply.message.startswith(f"Item '{kept[place + 2]['id']}' of type 'function_call' was provided without")
    lane.messages[:] = kept
    lane.messages[place] = kept[reasoning(lane)[0]]
    assert "was provided without its required 'reasoning' item" in (await refused(client, lane)).message
    lane.messages[:] = [*kept[: place + 1], *kept[place + 3 :]]
    reply = await refused(client, lane)
    assert reply.message == f"Item '{item['id']}' of type 'reasoning' was provided without its required following item."


async def test_responses_checks_what_is_encrypted_and_persists_nothing(client: Client) -> None:
    lane = await opened(client, ResponsesLane())
    item = lane.messages[reasoning(lane)[0]]
    kept = item["encrypted_content"]
    item["encrypted_content"] = kept[:-8] + "AAAAAAA="
    reply = await refused(client, lane)
    assert (reply.body["error"]["code"], item["id"] in reply.message) == ("invalid_encrypted_content", True)
    for sent in (item | {"encrypted_content": None}, {"type": "item_reference", "id": item["id"]}):
        lane.messages[reasoning(lane)[0] if "encrypted_content" in sent else 2] = sent
        reply = await client.responses(lane.body())
        assert (reply.status, f"Item with id '{item['id']}' not found." in reply.message) == (404, True)


async def test_without_include_nothing_encrypted_is_sent(client: Client) -> None:
    lane = ResponsesLane(include=[])
    lane.hear("hello")
    reply, _ = await lane.turn(client, EPOCH)
    assert "encrypted_content" not in reply.body["output"][0]


async def test_a_summary_comes_when_it_is_asked_for(client: Client) -> None:
    lane = ResponsesLane(reasoning={"summary": "auto"})
    lane.hear("hello")
    reply, _ = await lane.turn(client, EPOCH)
    (part,) = reply.body["output"][0]["summary"]
    assert part["type"] == "summary_text"
    streamed = events((await client.responses({**lane.body(), "input": lane.messages[:2], "stream": True})).raw)
    deltas = [event["delta"] for event in streamed if event["type"] == "response.reasoning_summary_text.delta"]
    assert "".join(deltas) == streamed[-1]["response"]["output"][0]["summary"][0]["text"] != ""


async def test_chat_wants_reasoning_content_back_within_a_tool_loop(client: Client) -> None:
    lane = await opened(client, ChatLane(THINKER))
    first, _ = assistants(lane)
    assert first.pop("reasoning_content")
    reply = await refused(client, lane)
    assert reply.message.startswith("Missing `reasoning_content` field in the assistant message at message index 2.")
    assert reply.body["error"]["code"] == "invalid_request_error"
    assert (await client.chat({**lane.body(), "thinking": {"type": "disabled"}})).status == 200
    lane.hear("Something new.")
    assert (await client.chat(lane.body())).status == 200
    lax = await opened(client, ChatLane("sim-lax"))
    del assistants(lax)[1]["reasoning_content"]
    assert (await client.chat(lax.body())).status == 200


async def test_a_chat_stream_thinks_before_it_speaks(client: Client) -> None:
    lane = ChatLane(THINKER, stream=True, stream_options={"include_usage": True})
    lane.hear("hello")
    seen = events((await client.chat(lane.body())).raw)
    deltas = [event["choices"][0]["delta"] for event in seen[:-1]]
    thought = [place for place, delta in enumerate(deltas) if delta.get("reasoning_content")]
    spoken = [place for place, delta in enumerate(deltas) if delta.get("content")]
    assert max(thought) < min(spoken)
    text = "".join(delta.get("reasoning_content") or "" for delta in deltas)
    assert seen[-1]["usage"]["completion_tokens_details"]["reasoning_tokens"] == -(-len(text.encode()) // 4)


async def test_openais_chat_hides_what_was_thought_and_counts_it(client: Client) -> None:
    body = {"model": GPT, "messages": [{"role": "user", "content": "hello"}]}
    reply = await client.chat(body)
    message = reply.body["choices"][0]["message"]
    assert set(message) == {"role", "content", "refusal"}
    thinking = reply.usage["completion_tokens_details"]["reasoning_tokens"]
    assert reply.usage["completion_tokens"] == thinking + -(-len(message["content"]) // 4)
    tooled = await client.chat({**ChatLane(GPT).body(), **body})
    assert (tooled.status, "Please use /v1/responses instead." in tooled.message) == (400, True)


@pytest.mark.parametrize("lane_of", LANES)
async def test_effort_scales_what_is_thought_and_a_bound_cuts_it(client: Client, lane_of: Callable[[], Lane]) -> None:
    def asked(word: str) -> dict[str, Any]:
        if isinstance(lane, AnthropicLane):
            return {"output_config": {"effort": word}}
        return {"reasoning": {"effort": word}} if isinstance(lane, ResponsesLane) else {"reasoning_effort": word}

    thought = {}
    for word in ("low", "max"):
        lane = lane_of()
        lane.hear("hello")
        lane.more |= asked(word)
        reply, _ = await lane.turn(client, EPOCH)
        thought[word] = lane.tokens(reply.usage)[4]
    assert thought["max"] > 3 * thought["low"] > 0
    lane = lane_of()
    lane.hear("hello")
    lane.more |= {"max_output_tokens" if isinstance(lane, ResponsesLane) else "max_tokens": 20}
    reply, calls = await lane.turn(client, EPOCH)
    assert lane.tokens(reply.usage)[3:] == (20, 20)
    assert not calls


async def test_the_anthropic_sdk_assembles_thinking_with_its_signature(personas: Path) -> None:
    import anthropic
    import httpx2

    app = simulated_provider(tasks=[], personas=personas)
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app)) as http:
        claude = anthropic.AsyncAnthropic(api_key="k", base_url="http://sim", http_client=http, max_retries=0)
        lane = AnthropicLane("sim-redacting")
        lane.hear("hello")
        async with claude.messages.stream(**lane.body()) as stream:
            message = await stream.get_final_message()
        assert [block.type for block in message.content] == ["thinking", "redacted_thinking", "text", "tool_use"]
        thinking = message.content[0]
        assert thinking.type == "thinking"
        assert thinking.signature == signature("sim-redacting", thinking.thinking)
        details = message.usage.output_tokens_details
        assert details is not None
        assert 0 < details.thinking_tokens < message.usage.output_tokens
        lane.messages.append({"role": "assistant", "content": [block.model_dump() for block in message.content]})


async def test_a_model_that_does_not_think_sends_no_trace_of_it(client: Client) -> None:
    lane = AnthropicLane(PLAIN)
    lane.hear("hello")
    reply, _ = await lane.turn(client, EPOCH)
    assert [block["type"] for block in reply.body["content"]] == ["text", "tool_use"]
    assert "output_tokens_details" not in reply.usage


@given(text=st.text(max_size=300), place=st.integers(0, 10_000), other=st.sampled_from("ABCDwxyz0189"))
def test_a_seal_opens_for_its_own_model_alone_and_only_unaltered(text: str, place: int, other: str) -> None:
    sealed = seal("one", text)
    assert unseal("one", sealed) == text
    assert unseal("two", sealed) is None
    place %= len(sealed)
    altered = sealed[:place] + other + sealed[place + 1 :]
    # Padding bits of the last character may change nothing.
    assert unseal("one", altered) in ((text,) if sealed[place] == other or place >= len(sealed) - 4 else (None,)) + (
        None,
    )


@given(st.lists(st.tuples(st.text(max_size=20), st.booleans()), max_size=3), st.integers(0, 15))
def test_a_calls_id_names_its_thoughts(pairs: list[tuple[str, bool]], number: int) -> None:
    thoughts = [Thought(*pair) for pair in pairs]
    origin = issued(f"toolu_{call_id('m', thoughts, 'f' * 32, number)}")
    assert origin is not None
    assert origin.follows("m", thoughts)
    assert not origin.follows("m", [*thoughts, Thought("more")])
    assert not origin.follows("other", thoughts)
    assert thoughts == thoughts[::-1] or not origin.follows("m", thoughts[::-1])
