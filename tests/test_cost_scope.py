"""The fold over the calls of one cache scope: exact in its sums, the same in every order, one pass."""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cost_model.apportion import apportion
from cost_model.call_fact import CallFact
from cost_model.calls import Outcome
from cost_model.causes import REBUILDS
from cost_model.policies import POLICIES
from cost_model.prefixes import PromptBlock
from cost_model.price_card import PriceCard
from cost_model.scope import explain
from cost_model.tokens import CLASSES, PROMPT_CLASSES, Tokens
from tests.cost_calls import ANTHROPIC, DEEPSEEK, OPENAI, call, causes, wrote


def test_a_read_that_nobody_in_the_scope_can_have_written_is_told() -> None:
    calls = [
        call(0, "head", wrote(100, read=4900)),
        call(5, "head a", wrote(100, read=5000)),
        call(9, "other", wrote(100, read=2000), lane="other"),
    ]
    assert [one.unexplained_read for one in explain(calls)] == [4900, 0, 2000]
    lost = call(-9, "other", None, outcome="lost", first_token_s=None, lane="third")
    assert [one.unexplained_read for one in explain([lost, *calls])] == [0, 0, 0, 0]


def test_a_read_of_less_than_the_cache_keeps_is_no_leak() -> None:
    server = POLICIES["prefix-16"]
    first = call(0, "head", Tokens(input=500, cache_read=server.minimum_tokens - 1), policy=server)
    leak = call(0, "head", Tokens(input=500, cache_read=server.minimum_tokens), policy=server)
    assert [one.unexplained_read for one in [*explain([first]), *explain([leak])]] == [0, server.minimum_tokens]


def test_a_key_that_comes_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="twice"):
        explain([call(0, "head", wrote(2000), key="k"), call(1, "head", wrote(2000), key="k")])


@given(st.integers(0, 10**6), st.lists(st.integers(0, 10**6), min_size=1, max_size=20))
def test_apportioned_shares_sum_to_the_whole_and_miss_their_quota_by_less_than_one(
    total: int, weights: list[int]
) -> None:
    shares = apportion(total, weights)
    assert sum(shares) == total
    if sum(weights):
        assert all(
            abs(share * sum(weights) - total * weight) < sum(weights)
            for share, weight in zip(shares, weights, strict=True)
        )


OUTCOMES: list[Outcome] = ["complete", "complete", "complete", "cut", "lost", "refused", "cancelled"]


@st.composite
def scopes(draw: st.DrawFn) -> list[CallFact]:
    """Calls of a few lanes, with shared heads, changes, reads that may not fit, gaps and outcomes of all kinds."""
    policies = [ANTHROPIC, OPENAI, DEEPSEEK, POLICIES["none"]]
    prices = {name: Decimal(draw(st.integers(1, 10**8))).scaleb(-6) for name in CLASSES}
    card = PriceCard("m", "drawn", None, None, prices)
    words = ["head", "a", "b", "c", "d"]
    calls = []
    at = 0.0
    for number in range(draw(st.integers(1, 12))):
        at += draw(st.sampled_from([0.0, 0.5, 30.0, 299.0, 301.0, 4000.0]))
        prompt = " ".join(draw(st.lists(st.sampled_from(words), min_size=1, max_size=5)))
        counts = {name: draw(st.sampled_from([0, 1, 700, 5000])) for name in (*PROMPT_CLASSES, "output")}
        outcome = draw(st.sampled_from(OUTCOMES))
        calls.append(
            call(
                at,
                prompt,
                Tokens(**counts) if outcome == "complete" or draw(st.booleans()) else None,
                key=f"call{number:02}",
                lane=draw(st.sampled_from(["planner", "worker"])),
                policy=draw(st.sampled_from(policies)),
                card=card,
                first_token_s=draw(st.sampled_from([None, 0.2, 40.0])),
                outcome=outcome,
            )
        )
    return calls


@given(scopes())
@settings(max_examples=100)
def test_charges_have_the_margins_of_the_usage_and_sum_to_the_list_price_exactly(calls: list[CallFact]) -> None:
    by_key = {one.key: one for one in calls}
    for one in explain(calls):
        assert sum(charge.usd_low for charge in one.charges) <= one.cost_high_usd
        assert [charge.line for charge in one.charges] == list(range(len(one.charges)))
        tokens = by_key[one.key].tokens
        if tokens is None:
            continue
        assert one.tokens is not None
        by_class: Counter[str] = Counter()
        for charge in one.charges:
            assert charge.units is None or charge.units > 0
            assert (charge.excess_usd == 0) or charge.cause in REBUILDS
            by_class[charge.token_class] += charge.units or 0
        assert all(by_class[name] == one.tokens.of(name) for name in PROMPT_CLASSES)
        assert sum(causes(one).values()) == tokens.prompt
        assert causes(one).get("hit", 0) == tokens.cache_read
        if one.list_usd is not None:
            assert sum(charge.usd_low for charge in one.charges) == one.list_usd
            assert one.list_usd == by_key[one.key].card.cost(one.tokens)
            assert sum(charge.excess_usd for charge in one.charges) == one.excess_usd


@given(scopes(), st.randoms())
@settings(max_examples=50)
def test_the_order_in_which_calls_are_given_does_not_matter(calls: list[CallFact], chance: random.Random) -> None:
    shuffled = list(calls)
    chance.shuffle(shuffled)
    assert explain(shuffled) == explain(calls)


def naive_longest_shared(calls: Sequence[CallFact], one: CallFact) -> int:
    """Blocks of a prompt that some earlier call had sent, by comparing with every one of them."""
    mine = [block.hash for block in one.prompt]
    longest = 0
    for other in calls:
        if (other.requested_at, other.key) < (one.requested_at, one.key):
            theirs = [block.hash for block in other.prompt]
            while longest < min(len(mine), len(theirs)) and mine[: longest + 1] == theirs[: longest + 1]:
                longest += 1
    return longest


@given(
    st.lists(st.tuples(st.sampled_from("xy"), st.lists(st.sampled_from("abc"), min_size=1, max_size=6)), max_size=15)
)
def test_what_was_sent_before_is_the_longest_prefix_shared_with_any_earlier_call(
    drawn: list[tuple[str, list[str]]],
) -> None:
    """Every block is 100 tokens in 1000 bytes, and nothing is ever read: the eviction is what had been sent before."""
    policy = replace(DEEPSEEK, minimum_tokens=0, multiple=1)
    calls = [
        call(at, " ".join(words), Tokens(input=100 * len(words)), lane=lane, policy=policy, first_token_s=0)
        for at, (lane, words) in enumerate(drawn)
    ]
    for one, explained in zip(calls, explain(calls), strict=True):
        assert causes(explained).get("eviction", 0) == 100 * naive_longest_shared(calls, one)


class CountedHash(str):
    """A block's hash that counts how often it is looked up."""

    looked_up = 0

    def __hash__(self) -> int:
        CountedHash.looked_up += 1
        return super().__hash__()


def long_lanes(lanes: int, turns: int) -> list[CallFact]:
    """Lanes with one head in common, each turn appending two blocks, every prefix read back."""
    calls = []
    for lane in range(lanes):
        prompt = [PromptBlock(CountedHash("head"), 4000)]
        for turn in range(turns):
            prompt = [*prompt, *(PromptBlock(CountedHash(f"{lane}/{turn}/{half}"), 400) for half in "ab")]
            tokens = wrote(200, read=1000 + 200 * turn)
            one = call(turn * 10 + lane / 100, "head", tokens, key=f"{lane}/{turn:03}", lane=f"lane{lane}")
            calls.append(replace(one, prompt=prompt, prompt_bytes=4000 + 800 * turn))
    return calls


def test_a_growing_lane_is_walked_from_where_its_last_call_ended() -> None:
    calls = long_lanes(lanes=5, turns=100)
    CountedHash.looked_up = 0
    explained = explain(calls)
    assert all(set(causes(one)) <= {"hit", "growth", "first_write"} for one in explained)
    # A block is looked up and stored once, when it is new; to start each prompt at its head would take 50,000.
    assert CountedHash.looked_up <= 5 * (1 + 2 * 100) * 2
