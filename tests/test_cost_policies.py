"""The declared caches: what they may bill, and how a write is booked whose lifetime only the request knew."""

from datetime import UTC, datetime
from decimal import Decimal

import pytest

from agents.clients.caching import LOOK_BACK
from agents.simulated.prefix_cache import LOOKBACK
from cost_model.policies import POLICIES, charged_classes
from cost_model.policy import CachePolicy
from cost_model.prices import PriceBook
from cost_model.scope import explain
from cost_model.tokens import CLASSES, Tokens
from tests.cost_calls import call

BOOK = PriceBook()
DAY = datetime(2026, 11, 24, 12, tzinfo=UTC)


@pytest.mark.parametrize("policy", POLICIES.values(), ids=lambda policy: policy.name)
def test_a_policy_is_consistent(policy: CachePolicy) -> None:
    assert POLICIES[policy.name] is policy
    assert set(charged_classes(policy)) <= set(CLASSES)
    assert set(policy.write_class) <= set(policy.lifetimes)
    # Whoever charges for one lifetime charges for all, or a choice of lifetime would be free by oversight.
    assert not policy.write_class or set(policy.write_class) == set(policy.lifetimes)
    if policy.lifetimes:
        assert policy.default_lifetime in policy.lifetimes
    else:
        assert (policy.default_lifetime, policy.lifetime(None)) == (None, None)
    assert policy.multiple >= 1
    assert policy.matching != "none" or charged_classes(policy) == ("input", "output")


def test_the_look_back_is_declared_where_it_is_stated_as_the_client_and_the_simulated_cache_have_it() -> None:
    declared = {name: policy.look_back_blocks for name, policy in POLICIES.items() if policy.look_back_blocks}
    names = ("anthropic-512", "anthropic-1024", "anthropic-2048", "anthropic-4096", "qwen-explicit")
    assert declared == dict.fromkeys(names, 20)
    assert LOOK_BACK == LOOKBACK == 20


@pytest.mark.parametrize(
    ("model", "policy", "lifetime", "booked", "dollars"),
    [
        ("kimi-k3", "kimi", "1h", "cache_write_1h", "6"),
        ("kimi-k3", "kimi", "5m", "cache_write_5m", "3"),
        ("kimi-k3", "kimi", None, "cache_write_5m", "3"),
        ("qwen3.7-max-marks", "qwen-explicit", None, "cache_write_5m", "3.125"),
        ("gpt-6.1-sol", "openai-30m", "12h", "cache_write_12h", "5"),
        ("gpt-6.1-sol", "openai-30m-chat", None, "cache_write_30m", "2.5"),
        ("openrouter:anthropic/claude-sonnet-5.5", "anthropic-512", "1h", "cache_write_1h", "4"),
    ],
)
def test_a_write_of_untold_lifetime_is_booked_as_the_request_asked(
    model: str, policy: str, lifetime: str | None, booked: str, dollars: str
) -> None:
    card = BOOK.card(model, DAY)
    told = Tokens(input=10, cache_write_unknown=10**6)
    one = call(0, "head a", told, policy=POLICIES[policy], card=card, lifetime=lifetime)
    (explained,) = explain([one])
    assert explained.tokens is not None
    assert (explained.tokens.cache_write_unknown, explained.tokens.of(booked)) == (0, 10**6)
    price = card.price("input", told.prompt)
    assert explained.cost_usd == card.price(booked, told.prompt) + price / 10**5
    assert card.usd_per_mtok[booked] == Decimal(dollars)


def test_a_cache_that_promises_no_lifetime_loses_entries_by_eviction_only() -> None:
    policy, card = POLICIES["gemini-4096"], BOOK.card("gemini-3.8-flash", DAY)
    first = call(0, "head a", Tokens(input=9000, output=1), policy=policy, card=card)
    much_later = call(10**6, "head a b", Tokens(input=9500, output=1), policy=policy, card=card)
    causes = {charge.cause for charge in explain([first, much_later])[1].charges}
    assert "eviction" in causes
    assert "expiry_rebuild" not in causes


def test_an_hour_at_kimi_outlives_twenty_minutes_and_five_minutes_do_not() -> None:
    policy, card = POLICIES["kimi"], BOOK.card("kimi-k3", DAY)
    written, missed = Tokens(input=0, cache_write_unknown=8192), Tokens(input=0, cache_write_unknown=8448)
    for lifetime, cause in (("1h", "eviction"), ("5m", "expiry_rebuild")):
        calls = [
            call(at, prompt, tokens, policy=policy, card=card, lifetime=lifetime)
            for at, prompt, tokens in ((0, "head a", written), (1200, "head a b", missed))
        ]
        assert cause in {charge.cause for charge in explain(calls)[1].charges}


def test_what_a_local_server_computes_afresh_at_the_end_is_no_eviction() -> None:
    policy = POLICIES["prefix-16"]
    calls = [
        call(at, "head a", tokens, policy=policy, outcome="complete")
        for at, tokens in ((0, Tokens(input=486, output=1)), (60, Tokens(input=1, cache_read=485, output=1)))
    ]
    assert [charge.cause for charge in explain(calls)[1].charges] == ["hit", "uncacheable", "output"]
