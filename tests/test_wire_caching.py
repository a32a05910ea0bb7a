"""How the cache is asked for: the bytes on the wire, by entry, lifetime and turn."""

import re
from collections.abc import Sequence
from typing import Any

import orjson
import pytest

from agents.clients import Client, ToolResult, connect
from agents.lane import Lane
from agents.registry import ModelEntry
from agents.tools.bash import BASH
from tests.wire_provider import NONCE, entry, options

CLAUDE, DEEPSEEK, GPT = entry("sim-claude-opus-5-5"), entry("sim-deepseek-v4-flash"), entry("sim-gpt-6.1-sol")
MARK = re.compile(rb',"cache_control":(\{[^}]*\})')
BREAKPOINT = b',"prompt_cache_breakpoint":{"mode":"explicit"}'
ROUTER = entry("openrouter-sonnet-5.5")
QWEN = entry("qwen3.8-max-marks")
KIMI = entry("kimi-k3")
OLDER_GPT = entry("gpt-5.5")
NO_HTTP: Any = None


def open_client(model: ModelEntry, **chosen: Any) -> tuple[Client, Lane]:
    import httpx2

    http = httpx2.AsyncClient(transport=httpx2.MockTransport(lambda _: httpx2.Response(500)))
    client = connect(model, key="k", options=options(**chosen), http=http)
    lane = client.open_lane("solo-0", "You are tested.", [BASH], NONCE)
    lane.append(client.user("begin"))
    return client, lane


def assistant(client: Client, calls: Sequence[str]) -> dict[str, object]:
    arguments = '{"command":"ls"}'
    if client.flavour == "anthropic_messages":
        blocks = [{"type": "tool_use", "id": c, "name": "bash", "input": {"command": "ls"}} for c in calls]
        return {"role": "assistant", "content": [{"type": "text", "text": "on it"}, *blocks]}
    if client.flavour == "openai_responses":
        items = [{"type": "function_call", "call_id": c, "name": "bash", "arguments": arguments} for c in calls]
        return {"role": "assistant", "items": items}
    function = {"name": "bash", "arguments": arguments}
    return {
        "role": "assistant",
        "content": "on it",
        "tool_calls": [{"id": c, "type": "function", "function": function} for c in calls],
    }


def turn(client: Client, lane: Lane, number: int, calls: int = 1) -> bytes:
    """One more turn of so many parallel calls, and the request that follows."""
    names = [f"c{number}_{i}" for i in range(calls)]
    lane.append(assistant(client, names))
    for message in client.results([ToolResult(name, f"exit code 0\n{name}") for name in names]):
        lane.append(message)
    return client.render(lane)


def places(body: bytes, field: str) -> list[tuple[int, int]]:
    """(message, block) of every mark; the system text is message -1, or 0 where it is a message."""
    document = orjson.loads(body)
    found = [(-1, i) for i, block in enumerate(document.get("system", [])) if field in block]
    for number, message in enumerate(document.get("messages") or document.get("input")):
        content = message.get("content", message.get("output"))
        for position, block in enumerate(content if isinstance(content, list) else []):
            if field in block:
                found.append((number, position))
    return found


def test_anthropic_marks_the_system_text_and_the_ends_of_the_two_newest_turns() -> None:
    client, lane = open_client(CLAUDE)
    seen = [client.render(lane), turn(client, lane, 1), turn(client, lane, 2)]
    assert [places(body, "cache_control") for body in seen] == [
        [(-1, 0), (0, 0)],
        [(-1, 0), (0, 0), (2, 0)],
        [(-1, 0), (2, 0), (4, 0)],
    ]
    assert set(MARK.findall(seen[2])) == {b'{"type":"ephemeral"}'}


def test_a_request_that_is_tried_again_is_the_same_request() -> None:
    client, lane = open_client(CLAUDE)
    client.render(lane)
    assert turn(client, lane, 1) == client.render(lane) == client.render(lane)


def test_an_hour_is_asked_for_in_every_mark_so_that_none_stands_behind_a_shorter_one() -> None:
    client, lane = open_client(CLAUDE, lifetime="1h")
    client.render(lane)
    body = turn(client, lane, 1, calls=30)
    assert MARK.findall(body) == [b'{"type":"ephemeral","ttl":"1h"}'] * 4


def test_the_mark_stays_where_the_last_request_ended_though_the_model_said_nothing() -> None:
    client, lane = open_client(CLAUDE)
    client.render(lane)
    lane.append(client.user("You did not act."))
    assert places(client.render(lane), "cache_control") == [(-1, 0), (0, 0), (1, 0)]


def test_a_paused_answer_is_asked_for_again_with_its_marks_where_they_were() -> None:
    client, lane = open_client(CLAUDE)
    client.render(lane)
    lane.append({"role": "assistant", "content": [{"type": "text", "text": "I am still"}]})
    assert places(client.render(lane), "cache_control") == [(-1, 0), (0, 0)]


@pytest.mark.parametrize(
    ("calls", "extra"),
    [(9, None), (10, (1, 1)), (12, (1, 5)), (19, (1, 19)), (20, (2, 0)), (30, (2, 10)), (60, (2, 40))],
)
def test_a_turn_of_more_than_20_blocks_gets_a_mark_20_blocks_before_its_end(
    calls: int, extra: tuple[int, int] | None
) -> None:
    client, lane = open_client(CLAUDE)
    first = client.render(lane)
    body = turn(client, lane, 1, calls)
    found = places(body, "cache_control")
    ends = [(-1, 0), (0, 0), (2, calls - 1)]
    assert found == sorted([*ends, *([extra] if extra else [])])
    if extra:
        blocks = [(m, b) for m, n in ((1, calls + 1), (2, calls)) for b in range(n)]
        assert blocks.index((2, calls - 1)) - blocks.index(extra) == 19
    assert MARK.sub(b"", body).startswith(MARK.sub(b"", first)[:-2] + b",")


def test_thinking_is_never_marked() -> None:
    client, lane = open_client(CLAUDE)
    client.render(lane)
    thinking = {"type": "thinking", "thinking": "hm", "signature": "s"}
    calls = [{"type": "tool_use", "id": f"c{i}", "name": "bash", "input": {}} for i in range(10)]
    lane.append({"role": "assistant", "content": [thinking, thinking, *calls]})
    lane.append(client.results([ToolResult(f"c{i}", "ok") for i in range(10)])[0])
    assert places(client.render(lane), "cache_control") == [(-1, 0), (0, 0), (1, 2), (2, 9)]


@pytest.mark.parametrize("model", [ROUTER, QWEN], ids=["openrouter", "qwen"])
def test_marks_over_chat_stand_in_the_content_parts(model: ModelEntry) -> None:
    client, lane = open_client(model)
    seen = [client.render(lane), turn(client, lane, 1, 2), turn(client, lane, 2)]
    assert [places(body, "cache_control") for body in seen] == [
        [(0, 0), (1, 0)],
        [(0, 0), (1, 0), (4, 0)],
        [(0, 0), (4, 0), (6, 0)],
    ]
    assert set(MARK.findall(seen[2])) == {b'{"type":"ephemeral"}'}
    assert orjson.loads(seen[2])["messages"][4] == {
        "role": "tool",
        "tool_call_id": "c1_1",
        "content": [{"type": "text", "text": "exit code 0\nc1_1", "cache_control": {"type": "ephemeral"}}],
    }
    many = turn(client, lane, 3, 30)
    assert len(places(many, "cache_control")) == 4
    assert b"prompt_cache" not in many


def test_openrouter_is_told_the_upstream_and_the_hour() -> None:
    client, lane = open_client(ROUTER, lifetime="1h")
    body = client.render(lane)
    assert set(MARK.findall(body)) == {b'{"type":"ephemeral","ttl":"1h"}'}
    assert orjson.loads(body)["provider"] == {"order": ["anthropic"], "allow_fallbacks": False}


@pytest.mark.parametrize("protocol", ["openai_responses", "openai_chat"])
@pytest.mark.parametrize("lifetime", [None, "30m", "12h"])
def test_openai_gets_breakpoints_a_key_and_the_lifetime(protocol: str, lifetime: str | None) -> None:
    client, lane = open_client(GPT.model_copy(update={"protocol": protocol}), lifetime=lifetime)
    seen = [client.render(lane), turn(client, lane, 1, 2), turn(client, lane, 2, 30)]
    result = (4, 0) if protocol == "openai_chat" else (5, 0)
    last = (35, 0) if protocol == "openai_chat" else (65, 0)
    assert [places(body, "prompt_cache_breakpoint") for body in seen] == [
        [(0, 0), (1, 0)],
        [(0, 0), (1, 0), result],
        [(0, 0), result, last],
    ]
    document = orjson.loads(seen[2])
    assert document["prompt_cache_options"] == {"mode": "explicit"} | ({"ttl": lifetime} if lifetime else {})
    assert document["prompt_cache_key"] == f"{NONCE}-solo"
    assert seen[2].count(BREAKPOINT) == 3
    assert "prompt_cache_retention" not in document


@pytest.mark.parametrize(
    ("model", "lifetime", "sent"),
    [
        (DEEPSEEK, None, {}),
        (OLDER_GPT, None, {}),
        (OLDER_GPT, "24h", {"prompt_cache_retention": "24h"}),
        (OLDER_GPT, "10m", {"prompt_cache_retention": "in_memory"}),
        (KIMI, None, {}),
        (KIMI, "1h", {"prompt_cache_options": {"ttl": "1h"}}),
        (entry("claude-opus-5-5", caching="automatic"), None, {}),
    ],
    ids=["deepseek", "gpt-5.5", "gpt-5.5-24h", "gpt-5.5-10m", "kimi", "kimi-1h", "claude-without"],
)
def test_where_the_provider_caches_by_itself_no_block_is_marked(
    model: ModelEntry, lifetime: str | None, sent: dict[str, object]
) -> None:
    client, lane = open_client(model, lifetime=lifetime)
    first, second = client.render(lane), turn(client, lane, 1, 2)
    assert b"cache_control" not in second
    assert b"prompt_cache_breakpoint" not in second
    asked = {k: v for k, v in orjson.loads(second).items() if k.startswith("prompt_cache") and k != "prompt_cache_key"}
    assert asked == sent
    assert second.startswith(first[:-2] + b",")


def test_a_text_that_is_blank_is_a_word_since_no_blank_block_can_be_sent_or_marked() -> None:
    for model in (CLAUDE, ROUTER, GPT):
        client, lane = open_client(model)
        lane.append(client.user(" \n"))
        assert b'"text":"(empty)"' in client.render(lane)
