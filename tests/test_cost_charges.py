"""What a call cost: exactly where its usage came, within a range where it did not, and by the provider's own bill."""

from dataclasses import replace
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cost_model.calls import Outcome
from cost_model.ledger import MOST_OUTPUT_TOKENS
from cost_model.price_card import SELF_HOSTED
from cost_model.scope import explain
from cost_model.tokens import Tokens
from cost_model.usage import normalise
from tests.cost_calls import OPUS, call, causes, wrote


@pytest.mark.parametrize(("lifetime", "booked"), [(None, "cache_write_5m"), ("1h", "cache_write_1h")])
def test_a_write_of_untold_lifetime_is_booked_under_the_lifetime_asked_for(lifetime: str | None, booked: str) -> None:
    tokens = Tokens(cache_write_unknown=2000, output=1)
    explained = explain([call(0, "head", tokens, lifetime=lifetime)])[0]
    assert explained.tokens == Tokens(**{booked: 2000}, output=1)
    assert explained.basis == "arithmetic"


@pytest.mark.parametrize(("lifetime", "usd"), [(None, "0.0100"), ("5m", "0.0100"), ("1h", "0.0160")])
def test_a_write_of_anthropic_without_its_split_costs_what_the_lifetime_asked_for_costs(
    lifetime: str | None, usd: str
) -> None:
    raw = {"input_tokens": 0, "cache_creation_input_tokens": 2000, "output_tokens": 0}
    tokens = normalise("anthropic_messages", raw)
    assert explain([call(0, "head", tokens, lifetime=lifetime)])[0].list_usd == Decimal(usd)


def test_a_write_of_the_default_lifetime_may_have_only_a_general_price() -> None:
    card = replace(OPUS, usd_per_mtok={"input": Decimal(4), "cache_write_unknown": Decimal(5), "output": Decimal(20)})
    explained = explain([call(0, "head", Tokens(cache_write_unknown=2000), card=card)])[0]
    assert explained.cost_usd == Decimal("0.01")
    hour = explain([call(0, "head", Tokens(cache_write_unknown=2000), card=card, lifetime="1h")])[0]
    assert (hour.cost_usd, hour.cost_low_usd, hour.cost_high_usd) == (None, Decimal(0), Decimal("0.04"))


def test_tokens_of_a_class_that_the_card_lacks_cost_between_nothing_and_its_dearest_price() -> None:
    card = replace(OPUS, usd_per_mtok={"input": Decimal(4), "output": Decimal(20)})
    calls = [
        call(0, "head", Tokens(input=1000, cache_write_5m=5000, output=100), card=card),
        call(900, "head a", Tokens(cache_write_5m=6000, output=100), card=card),
    ]
    first, second = explain(calls)
    assert (first.list_usd, first.cost_usd, first.basis) == (None, None, "estimated")
    assert (first.cost_low_usd, first.cost_high_usd) == (Decimal("0.006"), Decimal("0.106"))
    assert [(c.token_class, c.units, c.usd_low, c.usd_high) for c in first.charges] == [
        ("cache_write_5m", 5000, 0, Decimal("0.1")),
        ("input", 1000, Decimal("0.004"), Decimal("0.004")),
        ("output", 100, Decimal("0.002"), Decimal("0.002")),
    ]
    assert "expiry_rebuild" in {charge.cause for charge in second.charges}
    assert second.excess_usd == 0


def test_a_refused_call_costs_nothing_and_touches_nothing() -> None:
    refused = call(200, "head a", None, outcome="refused", first_token_s=None)
    explained = explain([call(0, "head", wrote(5000)), refused, call(400, "head a", wrote(5100))])
    assert explained[1].cost_usd == explained[1].list_usd == 0
    assert explained[1].charges == ()
    assert causes(explained[2]) == {"expiry_rebuild": 5000, "growth": 100}
    assert (explained[1].idle_s, explained[2].idle_s) == (200, 400)


def test_a_lost_call_is_a_range_from_nothing_to_the_dearest() -> None:
    known = call(0, "head:4000", wrote(2000))
    lost = call(9, "head:4000 a:4000", None, outcome="lost", first_token_s=None, max_output_tokens=500)
    explained = explain([known, lost])[1]
    assert (explained.cost_usd, explained.list_usd, explained.tokens) == (None, None, None)
    assert explained.basis == "estimated"
    assert explained.cost_low_usd == 0
    # 8000 bytes at the half token a byte that the lane's last call had, one more for rounding, all at the 1h write.
    assert explained.cost_high_usd == (4001 * Decimal(8) + 500 * Decimal(20)).scaleb(-6)
    assert [(c.token_class, c.cause, c.units, c.basis) for c in explained.charges] == [
        ("unknown", "unknown", None, "estimated"),
        ("output", "output", None, "estimated"),
    ]


def test_a_cut_call_cost_at_least_a_read_of_its_prompt() -> None:
    known = call(0, "head:4000", wrote(2000))
    cut = call(9, "head:4000 a:4000", None, outcome="cut")
    explained = explain([known, cut])[1]
    assert explained.cost_low_usd == (4000 * Decimal("0.2")).scaleb(-6)
    assert explained.cost_low_usd < explained.cost_high_usd


@pytest.mark.parametrize("outcome", ["lost", "cut", "cancelled", "complete"])
def test_the_range_of_an_unknown_call_holds_what_it_can_have_cost(outcome: Outcome) -> None:
    unknown = call(0, "head:8000", None, outcome=outcome, max_output_tokens=None)
    explained = explain([unknown])[0]
    cheapest = OPUS.cost(Tokens(cache_read=2000))
    dearest = OPUS.cost(Tokens(cache_write_1h=4000, output=MOST_OUTPUT_TOKENS))
    assert explained.cost_low_usd <= cheapest
    assert explained.cost_high_usd >= dearest
    assert explained.cost_usd is None


def test_a_cut_stream_whose_prompt_is_known_leaves_only_the_output_open() -> None:
    cut = call(0, "head", wrote(5000, output=1), outcome="cut", max_output_tokens=1000)
    explained = explain([cut, call(9, "head a", wrote(100, read=5000))])
    assert causes(explained[0]) == {"first_write": 5000}
    assert explained[0].list_usd is None
    assert explained[0].cost_low_usd == Decimal("0.02502")
    assert explained[0].cost_high_usd == Decimal("0.045")
    assert causes(explained[1]) == {"hit": 5000, "growth": 100}


@given(
    st.integers(0, 10**5), st.integers(0, 10**5), st.integers(0, 5000), st.one_of(st.none(), st.integers(0, 4000)),
    st.integers(0, 5000),
)  # fmt: skip
def test_a_whole_answer_whose_output_was_never_told_leaves_only_the_output_open(
    written: int, read: int, told: int, limit: int | None, output: int
) -> None:
    one = call(0, "head", wrote(written, read=read, output=told), max_output_tokens=limit, output_untold=True)
    explained = explain([one])[0]
    prompt = OPUS.cost(wrote(written, read=read, output=0))
    assert sum(charge.usd_low for charge in explained.charges if charge.cause != "output") == prompt
    most = max(told, MOST_OUTPUT_TOKENS if limit is None else limit)
    assert explained.cost_low_usd == prompt + OPUS.usd("output", told, 0)
    assert explained.cost_high_usd == prompt + OPUS.usd("output", most, 0)
    if told <= output <= most:
        assert explained.cost_low_usd <= OPUS.cost(wrote(written, read=read, output=output)) <= explained.cost_high_usd
    assert (explained.cost_usd is None) == (told < most)
    assert explained.list_usd is None
    assert explained.charges[-1].units is None


def test_a_retry_after_a_lost_request_that_finds_nothing_is_a_first_write() -> None:
    lost = call(0, "head", None, outcome="lost", first_token_s=None)
    assert causes(explain([lost, call(9, "head", wrote(5000))])[1]) == {"first_write": 5000}


def test_a_call_of_unknown_usage_still_touches_the_cache() -> None:
    calls = [
        call(0, "head", wrote(5000)),
        call(200, "head a", None, outcome="cut"),
        call(450, "head a b", wrote(300, read=5100)),
        call(900, "head a c", wrote(5400), lane="other"),
    ]
    lost = replace(calls[1], outcome="lost", first_token_at=None)
    for unknown in (calls[1], lost):
        again = replace(calls[2], tokens=wrote(5400))
        assert causes(explain([calls[0], unknown, again])[2])["eviction"] >= 5000
    assert causes(explain(calls)[2]) == {"hit": 5100, "growth": 300}


def test_what_a_self_hosted_model_cost_is_known_even_where_its_usage_is_not() -> None:
    explained = explain([call(0, "head", None, outcome="lost", card=SELF_HOSTED)])[0]
    assert explained.cost_usd == explained.cost_high_usd == 0


def test_the_provider_s_own_bill_beats_the_list_and_both_are_kept() -> None:
    billed = Decimal("0.0123")
    known, unknown = explain(
        [
            call(0, "head", wrote(5000), billed_usd=billed),
            call(9, "head", None, outcome="cut", billed_usd=billed),
        ]
    )
    assert (known.cost_usd, known.billed_usd, known.list_usd) == (billed, billed, Decimal("0.027"))
    assert (unknown.cost_usd, unknown.cost_low_usd, unknown.cost_high_usd) == (billed, billed, billed)
    assert unknown.list_usd is None
