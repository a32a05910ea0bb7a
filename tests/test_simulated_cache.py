"""The simulated prefix cache: what is read and written follows from the bytes that were sent, and from time."""

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.simulated.app import simulated_provider
from agents.simulated.prefix_cache import BreakpointCache, Mark, UnitCache
from agents.simulated.prompt_chain import BlockChain, UnitChain
from agents.simulated.tokenizer import count
from cost_model.policies import POLICIES
from cost_model.policy import CachePolicy
from tests.simulated_client import ANTHROPIC, DEEPSEEK, EPOCH, Client, Reply

MARK = {"type": "ephemeral"}
HOUR = {"type": "ephemeral", "ttl": "1h"}
SECOND = 1_000_000


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with Client(simulated_provider(tasks=[])) as opened:
        yield opened


def at(seconds: float) -> Any:
    return EPOCH + timedelta(seconds=seconds)


def text(value: str, mark: dict[str, str] | None = None) -> dict[str, Any]:
    return {"type": "text", "text": value} | ({"cache_control": mark} if mark else {})


def ask(*blocks: dict[str, Any], system: dict[str, Any] | None = None) -> dict[str, Any]:
    head = {} if system is None else {"system": [system]}
    return {"model": ANTHROPIC, "max_tokens": 50, **head, "messages": [{"role": "user", "content": list(blocks)}]}


def figures(reply: Reply) -> tuple[int, int, int]:
    """(read, written, uncached)."""
    usage = reply.usage
    assert sum(usage["cache_creation"].values()) == usage["cache_creation_input_tokens"]
    return usage["cache_read_input_tokens"], usage["cache_creation_input_tokens"], usage["input_tokens"]


def size(block: dict[str, Any], role: str = "user") -> int:
    """The documented count: the role, a newline, the block's compact JSON; four bytes a token."""
    return -(-(len(role) + 1 + len('{"type":"text","text":""}') + len(block["text"].encode())) // 4)


LONG, MORE, TAIL = "a" * 6000, "b" * 3000, "c" * 500


async def test_a_growing_conversation_reads_what_it_wrote_and_writes_what_is_new(client: Client) -> None:
    reply = await client.messages(ask(text(LONG, MARK)), at=at(0))
    first = size(text(LONG))
    assert figures(reply) == (0, first, 0)
    reply = await client.messages(ask(text(LONG), text(MORE, MARK)), at=at(60))
    assert figures(reply) == (first, size(text(MORE)), 0)
    reply = await client.messages(ask(text(LONG), text(MORE, MARK), text(TAIL)), at=at(120))
    assert figures(reply) == (first + size(text(MORE)), 0, size(text(TAIL)))


async def test_an_entry_lives_300_seconds_from_the_start_of_the_request_that_wrote_it(client: Client) -> None:
    for key, gap, alive in (("a", 300, True), ("b", 300.000001, False)):
        client.key = key
        await client.messages(ask(text(LONG, MARK)), at=at(0))
        read, written, _ = figures(await client.messages(ask(text(LONG, MARK)), at=at(gap)))
        assert (read > 0, written > 0) == (alive, not alive)


async def test_a_read_renews_an_entry(client: Client) -> None:
    for seconds in (0, 250, 500, 750):
        reply = await client.messages(ask(text(LONG, MARK)), at=at(seconds))
    assert figures(reply)[0] > 0


async def test_an_hour_entry_outlives_five_minutes_and_is_told_apart(client: Client) -> None:
    reply = await client.messages(ask(text(MORE, MARK), system=text(LONG, HOUR)), at=at(0))
    hour, five = size(text(LONG), "system"), size(text(MORE))
    assert reply.usage["cache_creation"] == {"ephemeral_5m_input_tokens": five, "ephemeral_1h_input_tokens": hour}
    reply = await client.messages(ask(text(MORE, MARK), system=text(LONG, HOUR)), at=at(3599))
    assert figures(reply) == (hour, five, 0)
    reply = await client.messages(ask(text(MORE, MARK), system=text(LONG, HOUR)), at=at(3599 + 3601))
    assert figures(reply)[0] == 0


async def test_a_prompt_below_the_minimum_is_plain_input(client: Client) -> None:
    for length, cached in ((4 * 1000, False), (4 * 1024, True)):
        reply = await client.messages(ask(text("x" * length, MARK)), at=at(0))
        assert (figures(reply)[1] > 0) == cached


async def test_without_a_mark_nothing_is_cached(client: Client) -> None:
    await client.messages(ask(text(LONG)), at=at(0))
    assert figures(await client.messages(ask(text(LONG)), at=at(9))) == (0, 0, size(text(LONG)))


async def test_a_mark_looks_back_twenty_blocks_and_no_further(client: Client) -> None:
    for key, between, found in (("a", 19, True), ("b", 20, False)):
        client.key = key
        await client.messages(ask(text(LONG, MARK)), at=at(0))
        filler = [text(f"block {k}") for k in range(between - 1)]
        reply = await client.messages(ask(text(LONG), *filler, text("last", MARK)), at=at(9))
        assert (figures(reply)[0] > 0) == found


async def test_an_entry_is_unreadable_until_the_first_token_of_its_writer(client: Client) -> None:
    first = await client.messages(ask(text(LONG, MARK)), at=at(0))
    seconds = float(first.headers["x-fullchain-time"].split(";")[0].removeprefix("first="))
    assert seconds > 0
    assert figures(await client.messages(ask(text(LONG, MARK)), at=at(seconds - 0.001)))[0] == 0
    assert figures(await client.messages(ask(text(LONG, MARK)), at=at(seconds)))[0] > 0


async def test_another_key_or_other_tools_or_settings_read_nothing(client: Client) -> None:
    await client.messages(ask(text(LONG, MARK)), at=at(0))
    tools = [{"name": "t", "input_schema": {"type": "object"}}]
    assert figures(await client.messages({**ask(text(LONG, MARK)), "tools": tools}, at=at(9)))[0] == 0
    assert figures(await client.messages({**ask(text(LONG, MARK)), "tool_choice": {"type": "none"}}, at=at(9)))[0] == 0
    assert figures(await client.messages(ask(text(LONG, MARK)), at=at(9), headers={"x-api-key": "else"}))[0] == 0
    assert figures(await client.messages(ask(text(LONG, MARK)), at=at(9)))[0] > 0


async def test_changing_tool_choice_keeps_the_cached_system_text(client: Client) -> None:
    body = ask(text(MORE, MARK), system=text(LONG, MARK))
    await client.messages(body, at=at(0))
    reply = await client.messages({**body, "tool_choice": {"type": "none"}}, at=at(9))
    assert figures(reply) == (size(text(LONG), "system"), size(text(MORE)), 0)


async def test_the_top_level_mark_stands_at_the_last_block(client: Client) -> None:
    body = {**ask(text(LONG), text(MORE)), "cache_control": MARK}
    assert figures(await client.messages(body, at=at(0))) == (0, size(text(LONG)) + size(text(MORE)), 0)
    assert figures(await client.messages(ask(text(LONG), text(MORE, MARK)), at=at(9)))[0] > 0


async def test_without_the_time_header_the_wall_clock_rules_and_answers_take_no_time(client: Client) -> None:
    reply = await client.messages(ask(text(LONG, MARK)), at=None)
    assert reply.headers["x-fullchain-time"] == "first=0.000000;end=0.000000;tool=0.000000"
    assert figures(await client.messages(ask(text(LONG, MARK)), at=None))[0] > 0


def chat(*contents: str) -> dict[str, Any]:
    return {"model": DEEPSEEK, "messages": [{"role": "user", "content": content} for content in contents]}


async def test_a_prefix_cache_reads_whole_units_and_leaves_the_last_token(client: Client) -> None:
    reply = await client.chat(chat("x" * 4000), at=at(0))
    prompt = reply.usage["prompt_tokens"]
    assert (reply.usage["prompt_cache_hit_tokens"], reply.usage["prompt_cache_miss_tokens"]) == (0, prompt)
    reply = await client.chat(chat("x" * 4000), at=at(20))
    assert reply.usage["prompt_cache_hit_tokens"] == (prompt - 1) // 64 * 64
    reply = await client.chat(chat("x" * 4000, "y" * 400), at=at(40))
    assert reply.usage["prompt_cache_hit_tokens"] == prompt // 64 * 64
    assert figures_openai(reply) == reply.usage["prompt_tokens"]


def figures_openai(reply: Reply) -> int:
    usage = reply.usage
    assert usage["prompt_tokens_details"]["cached_tokens"] == usage["prompt_cache_hit_tokens"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    return int(usage["prompt_cache_hit_tokens"] + usage["prompt_cache_miss_tokens"])


async def test_a_prefix_cache_forgets_after_its_lifetime(client: Client) -> None:
    lifetime = POLICIES["deepseek"].lifetime(None)
    assert lifetime is not None
    await client.chat(chat("x" * 4000), at=EPOCH)
    assert (await client.chat(chat("x" * 4000), at=EPOCH + lifetime)).usage["prompt_cache_hit_tokens"] > 0
    late = EPOCH + 2 * lifetime + timedelta(seconds=1)
    assert (await client.chat(chat("x" * 4000), at=late)).usage["prompt_cache_hit_tokens"] == 0


CONTENTS = ["The quick brown fox jumps. " * 40 + str(k) for k in range(14)]


@settings(max_examples=60)
@given(block=st.integers(0, 13), data=st.data())
def test_one_byte_edited_in_a_block_loses_the_cache_from_that_block_on(block: int, data: st.DataObject) -> None:
    position = data.draw(st.integers(0, len(CONTENTS[block]) - 1))
    edited = list(CONTENTS)
    edited[block] = CONTENTS[block][:position] + "#" + CONTENTS[block][position + 1 :]
    marks_at = sorted({data.draw(st.integers(0, 13)), data.draw(st.integers(0, 13)), 13})
    cache = BreakpointCache(POLICIES["anthropic-1024"])
    before, after = blocks(CONTENTS), blocks(edited)
    marks = [Mark(index, "5m", "") for index in marks_at]
    cache.take("key", before, marks, 0, SECOND)
    split = cache.take("key", after, marks, 9 * SECOND, 9 * SECOND)
    tokens_before = after.ends[block - 1] if block else 0
    standing = [before.ends[m] for m in marks_at if m < block and before.ends[m] >= 1024]
    assert split.read <= tokens_before
    assert split.read == max(standing, default=0)
    assert split.read + sum(split.written.values()) + split.uncached == after.tokens


@settings(max_examples=60)
@given(unit=st.sampled_from([64, 128]), block=st.integers(0, 13), data=st.data())
def test_one_byte_edited_in_a_prompt_loses_the_cache_from_that_unit_on(
    unit: int, block: int, data: st.DataObject
) -> None:
    position = data.draw(st.integers(0, len(CONTENTS[block]) - 1))
    edited = list(CONTENTS)
    edited[block] = CONTENTS[block][:position] + "#" + CONTENTS[block][position + 1 :]
    policy = POLICIES["deepseek" if unit == 64 else "openai-1024"]
    cache = UnitCache(policy)
    cache.take("key", units(CONTENTS, unit), 0, SECOND)
    split = cache.take("key", units(edited, unit), 9 * SECOND, 9 * SECOND)
    token = sum(count(content.encode()) for content in CONTENTS[:block]) + position // 4
    expected = token // unit * unit
    assert split.read == (expected if expected >= policy.minimum_tokens else 0)


@pytest.mark.parametrize("block", [0, 3, 6])
async def test_one_byte_edited_in_a_sent_conversation_changes_the_usage_of_both_protocols_from_its_block_on(
    client: Client, block: int
) -> None:
    contents = [f"{k} {'The quick brown fox jumps. ' * 200}" for k in range(8)]
    edited = [content.replace("quick", "quack", 1) if k == block else content for k, content in enumerate(contents)]

    def marked(said: list[str]) -> dict[str, Any]:
        return ask(*(text(content, MARK if k in (block - 1, 7) else None) for k, content in enumerate(said)))

    total, before = (sum(size(text(content)) for content in contents[:end]) for end in (8, block))
    for second, said, read in ((0, contents, 0), (9, contents, total), (18, edited, before)):
        reply = await client.messages(marked(said), at=at(second))
        assert figures(reply) == (read, total - read, 0)
    hits = []
    for second, said in ((0, contents), (9, contents), (18, edited)):
        reply = await client.chat(chat(*said), at=at(second))
        hits.append(reply.usage["prompt_cache_hit_tokens"])
    prompt = reply.usage["prompt_tokens"]
    # All messages are equally long; the edit stands at the head of its own.
    assert hits[:2] == [0, (prompt - 1) // 64 * 64]
    assert prompt * block // 8 - 64 < hits[2] <= prompt * block // 8 + 10


def blocks(contents: list[str]) -> BlockChain:
    chain = BlockChain()
    for content in contents:
        chain.add(content.encode())
    return chain


def units(contents: list[str], unit: int) -> UnitChain:
    chain = UnitChain(unit)
    for content in contents:
        chain.add(content.encode())
    return chain


@settings(max_examples=100)
@given(
    contents=st.lists(st.binary(max_size=700), min_size=2, max_size=12),
    split_at=st.integers(1, 11),
    salt=st.binary(max_size=3),
)
def test_a_chain_that_was_cut_back_goes_on_like_one_read_from_the_start(
    contents: list[bytes], split_at: int, salt: bytes
) -> None:
    for chain in (BlockChain(), UnitChain(64)):
        chain.salt(salt)
        for content in contents[:split_at]:
            chain.add(content)
        state = chain.state()
        chain.add(b"what is cut off again" * 30)
        resumed = chain.cut(state)
        fresh = BlockChain() if isinstance(chain, BlockChain) else UnitChain(64)
        fresh.salt(salt)
        for content in contents[:split_at]:
            fresh.add(content)
        for content in contents[split_at:]:
            resumed.add(content)
            fresh.add(content)
        assert (resumed.links, resumed.tokens) == (fresh.links, fresh.tokens)
        assert resumed.tokens == sum(map(count, contents))


def test_a_chain_forgets_what_has_expired_and_the_longest_unused_beyond_its_limit() -> None:
    policy = POLICIES["anthropic-1024"]
    cache = BreakpointCache(policy)
    for turn in range(2000):
        chain = blocks([CONTENTS[0] * 4, *map(str, range(turn % 7)), f"turn {turn}"])
        cache.take("key", chain, [Mark(len(chain.links) - 1, "5m", "")], turn * 30 * SECOND, turn * 30 * SECOND)
    assert len(cache) < 600
    bounded = UnitCache(POLICIES["deepseek"], limit=500)
    for trial in range(50):
        bounded.take("key", units([f"trial {trial}", *CONTENTS], 64), 0, 0)
    assert len(bounded) <= 500
    last = bounded.take("key", units(["trial 49", *CONTENTS], 64), SECOND, SECOND)
    first = bounded.take("key", units(["trial 0", *CONTENTS], 64), SECOND, SECOND)
    assert (last.read > 0, first.read) == (True, 0)


def test_one_conversations_time_expires_nothing_of_another() -> None:
    cache = UnitCache(POLICIES["deepseek"])
    cache.take("key", units(["early", *CONTENTS], 64), 0, 0)
    for k in range(300):
        cache.take("key", units(["late", *CONTENTS, str(k)], 64), 10**6 * SECOND, 10**6 * SECOND)
    assert cache.take("key", units(["early", *CONTENTS], 64), 60 * SECOND, 60 * SECOND).read > 0


def test_a_policy_that_charges_prefix_writes_reports_them() -> None:
    base = POLICIES["openai-1024"]
    assert base.default_lifetime is not None
    policy = CachePolicy(
        name="charged",
        matching="prefix",
        lifetimes=base.lifetimes,
        default_lifetime=base.default_lifetime,
        minimum_tokens=1024,
        multiple=128,
        write_class={base.default_lifetime: "cache_write_30m"},
    )
    cache = UnitCache(policy)
    chain = units(CONTENTS, 128)
    split = cache.take("key", chain, 0, 0)
    assert split.written == {base.default_lifetime: chain.tokens // 128 * 128}
    assert split.uncached == chain.tokens % 128
