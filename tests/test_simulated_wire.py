"""Both protocols, streamed and whole, in this process and over loopback; usage, ids and the simulator's bill."""

import json
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.simulated.app import simulated_provider
from agents.simulated.bill import dollars
from agents.simulated.catalogue import Catalogue
from agents.simulated.errors import Refused, SimulatorError
from agents.simulated.persona import load_personas
from agents.simulated.provider import Provider, Served
from agents.simulated.serve import serve
from tests.simulated_client import (
    ANTHROPIC,
    DEEPSEEK,
    EPOCH,
    Client,
    anthropic_head,
    compact,
    events,
    openai_head,
    system_text,
    timing,
)

USER = {"role": "user", "content": "Do something nobody has heard of."}
FLAGS = {"stream": True, "stream_options": {"include_usage": True}}


def anthropic_body(**more: Any) -> dict[str, Any]:
    return anthropic_head("solo", messages=[USER], **more)


def openai_body(**more: Any) -> dict[str, Any]:
    return openai_head("solo", messages=[{"role": "system", "content": system_text("solo")}, USER], **more)


async def test_an_anthropic_stream_says_what_the_whole_answer_says() -> None:
    replies = []
    for more in ({}, {"stream": True}):
        async with Client(simulated_provider(tasks=[])) as client:
            replies.append(await client.messages(anthropic_body(**more)))
    whole, streamed = replies
    assert [block["type"] for block in whole.body["content"]] == ["text", "tool_use"]
    seen = events(streamed.raw)
    kinds = [event["type"] for event in seen]
    assert (kinds[0], kinds[-2:]) == ("message_start", ["message_delta", "message_stop"])
    start, end = seen[0]["message"], seen[-2]
    said = "".join(e["delta"]["text"] for e in seen if e["type"] == "content_block_delta" and "text" in e["delta"])
    typed = "".join(e["delta"].get("partial_json", "") for e in seen if e["type"] == "content_block_delta")
    assert said == whole.body["content"][0]["text"]
    assert json.loads(typed) == whole.body["content"][1]["input"]
    assert end["delta"]["stop_reason"] == whole.body["stop_reason"] == "tool_use"
    assert start["usage"]["cache_creation"] == whole.usage["cache_creation"]
    assert "cache_creation" not in end["usage"]
    totals = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens")
    assert {name: end["usage"][name] for name in totals} == {name: whole.usage[name] for name in totals}
    assert start["usage"]["output_tokens"] == 1 < end["usage"]["output_tokens"]


async def test_an_openai_stream_says_what_the_whole_answer_says() -> None:
    replies = []
    for more in ({}, FLAGS):
        async with Client(simulated_provider(tasks=[])) as client:
            replies.append(await client.chat(openai_body(**more)))
    whole, streamed = replies
    message = whole.body["choices"][0]["message"]
    seen = events(streamed.raw)
    assert streamed.raw.endswith(b"data: [DONE]\n\n")
    assert (seen[-1]["choices"], seen[-1]["usage"]) == ([], whole.usage)
    deltas = [event["choices"][0]["delta"] for event in seen[:-1]]
    assert "".join(delta.get("content") or "" for delta in deltas) == message["content"]
    calls = [call for delta in deltas for call in delta.get("tool_calls", [])]
    assert calls[0]["function"]["name"] == message["tool_calls"][0]["function"]["name"] == "bash"
    arguments = "".join(call["function"]["arguments"] for call in calls)
    assert arguments == message["tool_calls"][0]["function"]["arguments"]
    assert seen[-2]["choices"][0]["finish_reason"] == whole.body["choices"][0]["finish_reason"] == "tool_calls"


async def test_an_openai_stream_tells_usage_only_when_asked() -> None:
    async with Client(simulated_provider(tasks=[])) as client:
        reply = await client.chat(openai_body(stream=True))
    assert all("usage" not in event for event in events(reply.raw))


async def test_loopback_and_in_process_give_the_same_bytes() -> None:
    bodies = [("/v1/messages", anthropic_body(stream=flag)) for flag in (True, False)]
    bodies += [("/v1/chat/completions", openai_body(**flags)) for flags in ({}, FLAGS)]
    async with Client(simulated_provider(tasks=[])) as client:
        here = [await client.post(path, body) for path, body in bodies]
    async with (
        serve(simulated_provider(tasks=[])) as port,
        Client(base_url=f"http://127.0.0.1:{port}") as client,
    ):
        there = [await client.post(path, body) for path, body in bodies]
    assert [reply.raw for reply in there] == [reply.raw for reply in here]
    times = [reply.headers["x-fullchain-time"] for reply in here]
    assert times == [reply.headers["x-fullchain-time"] for reply in there]


async def test_the_official_sdks_understand_the_streams() -> None:
    import anthropic
    import httpx2
    import openai

    app = simulated_provider(tasks=[])
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app)) as http:
        claude = anthropic.AsyncAnthropic(api_key="k", base_url="http://sim", http_client=http, max_retries=0)
        async with claude.messages.stream(**anthropic_body()) as stream:
            message = await stream.get_final_message()
        assert [block.type for block in message.content] == ["text", "tool_use"]
        assert message.usage.cache_creation is not None
        assert message.usage.cache_creation.ephemeral_5m_input_tokens == message.usage.cache_creation_input_tokens != 0
        chat = openai.AsyncOpenAI(api_key="k", base_url="http://sim/v1", http_client=http, max_retries=0)
        completion = await chat.chat.completions.create(**openai_body())
        assert completion.choices[0].finish_reason == "tool_calls"
        chunks = [chunk async for chunk in await chat.chat.completions.create(**openai_body(**FLAGS))]
        assert chunks[-1].usage is not None
        assert completion.usage is not None
        assert chunks[-1].usage.total_tokens == completion.usage.total_tokens
        with pytest.raises(anthropic.NotFoundError):
            await claude.messages.create(model="x", max_tokens=1, messages=[{"role": "user", "content": "hi"}])
        with pytest.raises(openai.BadRequestError, match="empty array"):
            await chat.chat.completions.create(model=DEEPSEEK, messages=[])


async def test_serving_frees_its_port_and_refuses_what_is_no_loopback() -> None:
    app = simulated_provider(tasks=[])
    async with serve(app) as port:
        with pytest.raises(SimulatorError, match="cannot be bound"):
            async with serve(app, port=port):
                pass
    async with serve(app, host="localhost", port=port) as again:
        assert again == port
    for host in ("0.0.0.0", "192.168.1.1", "example"):  # noqa: S104 - refused, never bound
        with pytest.raises(SimulatorError, match=host):
            async with serve(app, host=host):
                pass


async def test_the_time_header_follows_from_the_persona_and_the_output() -> None:
    async with Client(simulated_provider(tasks=[])) as client:
        reply = await client.messages(anthropic_body())
    pace = load_personas()[ANTHROPIC].pace
    took = timing(reply.headers["x-fullchain-time"])
    assert took["first"] == pytest.approx(pace.first_token_s)
    assert took["end"] == pytest.approx(pace.first_token_s + reply.usage["output_tokens"] / pace.tokens_per_s)
    assert took["tool"] == pytest.approx(pace.tool_s)


async def test_an_answer_is_cut_at_its_bound() -> None:
    async with Client(simulated_provider(tasks=[])) as client:
        full = await client.messages(anthropic_body())
        tokens = full.usage["output_tokens"]
        for bound in (0, 1, 20, tokens - 1):
            reply = await client.messages(anthropic_body(max_tokens=bound))
            assert reply.usage["output_tokens"] <= bound
            assert reply.body["stop_reason"] == "max_tokens"
            assert all(block["type"] == "text" for block in reply.body["content"])
            assert "".join(block["text"] for block in full.body["content"][:1]).startswith(
                "".join(block["text"] for block in reply.body["content"])
            )
        chat = await client.chat(openai_body(max_tokens=3))
        assert chat.body["choices"][0]["finish_reason"] == "length"
        exact = await client.messages(anthropic_body(max_tokens=tokens))
        assert exact.body["stop_reason"] == "tool_use"


async def test_a_request_sent_again_gets_the_same_id_and_words() -> None:
    async with Client(simulated_provider(tasks=[])) as client:
        first, second = await client.messages(anthropic_body()), await client.messages(anthropic_body())
        other = await client.messages(anthropic_body(metadata={"user_id": "u"}))
    assert first.body["id"] == second.body["id"] != other.body["id"]
    assert first.body["content"] == second.body["content"]


async def test_the_bill_has_a_line_for_each_request_with_exact_dollars(tmp_path: Path) -> None:
    bill = tmp_path / "new" / "bill.jsonl"
    async with Client(simulated_provider(tasks=[], bill=bill)) as client:
        named = {"x-fullchain-call": "trial/1/solo/1/1"}
        first = await client.messages(anthropic_body(), headers=named)
        second = await client.chat(openai_body())
        refused = await client.chat(openai_body(surprise=1), headers={"x-fullchain-call": "trial/1/solo/2/1"})
        keyless = await client.messages(anthropic_body(), headers={"x-api-key": ""})
    assert (refused.status, keyless.status) == (400, 401)
    lines = [json.loads(line) for line in bill.read_text().splitlines()]
    assert [line["call"] for line in lines] == ["trial/1/solo/1/1", None, "trial/1/solo/2/1", None]
    assert [line["status"] for line in lines] == [200, 200, 400, 401]
    assert [line["response"] for line in lines] == [first.body["id"], second.body["id"], None, None]
    assert lines[0]["requested_at"] == EPOCH.isoformat(timespec="microseconds")
    usage = first.usage
    assert usage["cache_creation_input_tokens"] > 0
    assert lines[0]["tokens"] == {
        "input": usage["input_tokens"],
        "cache_read": 0,
        "cache_write_5m": usage["cache_creation_input_tokens"],
        "output": usage["output_tokens"],
    }
    by_hand = 4 * usage["input_tokens"] + 5 * usage["cache_creation_input_tokens"] + 20 * usage["output_tokens"]
    assert Decimal(lines[0]["usd"]) == Decimal(by_hand) / 10**6
    for line in lines[2:]:
        assert (line["usd"], line["tokens"], line["model"]) == ("0", {}, None)
        assert line["error"]


def test_a_bill_that_cannot_be_written_is_refused_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(SimulatorError, match="name another file"):
        simulated_provider(tasks=[], bill=tmp_path)


def test_dollars_are_exact_at_any_size() -> None:
    prices = {"input": Decimal("0.15"), "cache_read": Decimal("0.003"), "output": Decimal("0.6")}
    assert dollars({"input": 1, "cache_read": 1, "output": 0}, prices) == Decimal("0.000000153")
    assert dollars({"input": 10**15, "cache_read": 1, "output": 7}, prices) == Decimal("150000000.000004203")


WORDS = st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), min_size=1, max_size=400).filter(
    str.strip
)


def provider() -> Provider:
    return Provider(load_personas(), Catalogue([]), seed=0)


def serve_one(sim: Provider, protocol: Any, body: object, step: int = 0) -> Served:
    return sim.serve(protocol, "key", compact(body), EPOCH + timedelta(seconds=30 * step), timed=True)


@settings(max_examples=40)
@given(
    texts=st.lists(WORDS, min_size=1, max_size=12), big=st.booleans(), marked=st.sets(st.integers(0, 11), max_size=3)
)
def test_anthropic_usage_adds_up_to_the_bytes_that_were_sent(texts: list[str], big: bool, marked: set[int]) -> None:
    sim = provider()
    texts = [text * (20 if big else 1) for text in texts]
    for step in range(1, len(texts) + 1):
        content: list[dict[str, Any]] = [{"type": "text", "text": text} for text in texts[:step]]
        expected = sum(-(-(len(b"user\n") + len(compact(block))) // 4) for block in content)
        for index in marked:
            if index < step:
                content[index]["cache_control"] = {"type": "ephemeral"}
        body = {"model": ANTHROPIC, "max_tokens": 9, "messages": [{"role": "user", "content": content}]}
        served = serve_one(sim, "anthropic_messages", body, step)
        split = served.split
        assert split.read + sum(split.written.values()) + split.uncached == expected
        assert min(split.read, split.uncached, *split.written.values(), 0) == 0
        assert sum(served.tokens.values()) == expected + served.emission.tokens


@settings(max_examples=40)
@given(texts=st.lists(WORDS, min_size=1, max_size=12), big=st.booleans())
def test_openai_usage_adds_up_to_the_bytes_that_were_sent(texts: list[str], big: bool) -> None:
    sim = provider()
    messages = [{"role": "user", "content": text * (20 if big else 1)} for text in texts]
    for step in range(1, len(messages) + 1):
        body = {"model": DEEPSEEK, "messages": messages[:step]}
        served = serve_one(sim, "openai_chat", body, step)
        assert served.split.read + served.split.uncached == sum(-(-len(compact(m)) // 4) for m in messages[:step])
        assert served.split.read % 64 == 0
        if step > 1:
            before = sum(-(-len(compact(m)) // 4) for m in messages[: step - 1])
            assert served.split.read == before // 64 * 64


def turns(number: int, protocol: str, texts: list[str]) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = [{"role": "user", "content": texts[0]}]
    for k in range(1, number):
        text = texts[k % len(texts)]
        if k % 2 and protocol == "anthropic_messages":
            block = {"type": "tool_use", "id": f"c{k}", "name": "bash", "input": {"command": text}}
            messages.append({"role": "assistant", "content": [{"type": "text", "text": text}, block]})
        elif k % 2:
            function = {"name": "bash", "arguments": json.dumps({"command": text})}
            call = {"id": f"c{k}", "type": "function", "function": function}
            messages.append({"role": "assistant", "content": text, "tool_calls": [call]})
        elif protocol == "anthropic_messages":
            block = {"type": "tool_result", "tool_use_id": f"c{k - 1}", "content": text}
            messages.append({"role": "user", "content": [block]})
        else:
            messages.append({"role": "tool", "tool_call_id": f"c{k - 1}", "content": text})
    return messages


@settings(max_examples=40)
@given(
    protocol=st.sampled_from(["anthropic_messages", "openai_chat"]),
    texts=st.lists(WORDS, min_size=1, max_size=4),
    lengths=st.lists(st.sampled_from([1, 3, 5, 7, 33, 65, 97]), min_size=2, max_size=4),
    edit=st.none() | st.integers(0, 96),
    spaced=st.booleans(),
    order=st.booleans(),
    choice=st.booleans(),
)
def test_remembering_a_conversation_changes_no_answer(
    protocol: str, texts: list[str], lengths: list[int], edit: int | None, spaced: bool, order: bool, choice: bool
) -> None:
    """Two providers get the same requests; one of them reads each as if it had never seen any."""
    remembering, forgetful = provider(), provider()
    for step, length in enumerate(lengths):
        messages = turns(length, protocol, texts)
        if edit is not None and step and edit < length and edit % 2 == 0:
            message = messages[edit]
            target = message["content"][0] if isinstance(message["content"], list) else message
            target["content"] = target.get("content", "") + "!"
        head = anthropic_head("solo") if protocol == "anthropic_messages" else openai_head("solo")
        if choice and step:
            head["tool_choice"] = {"type": "any"} if protocol == "anthropic_messages" else "required"
        body = {"messages": messages, **head} if order else {**head, "messages": messages}
        raw = json.dumps(body).encode() if spaced else compact(body)
        forgetful._recollections = provider()._recollections
        answers = [
            sim.serve(protocol, "key", raw, EPOCH, timed=True)  # type: ignore[arg-type]  # drawn from the two names
            for sim in (remembering, forgetful)
        ]
        assert answers[0].emission == answers[1].emission
        assert answers[0].split == answers[1].split
        assert answers[0].timing == answers[1].timing


@pytest.mark.parametrize("ending", [b",]}", b"}", b"]", b",,]}", b'],"messages":[]}', b" , ]}", b""])
def test_a_broken_end_is_refused_although_the_beginning_is_remembered(ending: bytes) -> None:
    sim = provider()
    body = compact(openai_head("solo", messages=turns(5, "openai_chat", ["some text"])))
    sim.serve("openai_chat", "key", body, EPOCH, timed=True)
    broken = body.removesuffix(b"]}") + ending
    with pytest.raises(Refused) as remembered:
        sim.serve("openai_chat", "key", broken, EPOCH, timed=True)
    with pytest.raises(Refused) as fresh:
        provider().serve("openai_chat", "key", broken, EPOCH, timed=True)
    assert remembered.value.status == fresh.value.status == 400
