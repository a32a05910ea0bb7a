"""Bounds of dollars: no call and no plan can cost more."""

from decimal import Decimal
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from cost_model.price_card import PriceCard, PriceTier
from cost_model.tokens import PROMPT_CLASSES, Tokens
from experiments.loading import load
from experiments.worst_case import arm_bounds, call_bound, sent_bound
from tests.experiment_files import PAIR, SOLO, write_spec

prices = st.integers(0, 50_000_000).map(lambda value: Decimal(value).scaleb(-6))
cards = st.builds(
    lambda base, steps: PriceCard(
        ref="any",
        source="a test",
        valid_from=None,
        valid_until=None,
        usd_per_mtok=base,
        tiers=tuple(PriceTier(above, step) for above, step in sorted(steps.items())),
    ),
    st.fixed_dictionaries(dict.fromkeys((*PROMPT_CLASSES, "output"), prices)),
    st.dictionaries(st.integers(1, 3000), st.dictionaries(st.sampled_from(["input", "cache_read", "output"]), prices)),
)


@given(
    card=cards, counts=st.lists(st.integers(0, 600), min_size=7, max_size=7), output=st.integers(0, 500),
    more=st.integers(0, 2000),
)  # fmt: skip
def test_no_split_of_a_prompt_into_classes_costs_more_than_the_bound(
    card: PriceCard, counts: list[int], output: int, more: int
) -> None:
    tokens = Tokens(**dict(zip(PROMPT_CLASSES, counts, strict=True)), output=output)
    assert card.cost(tokens) <= call_bound(card, tokens.prompt + more, output + more)
    # A request has at least a byte a token.
    assert card.cost(tokens) <= sent_bound(card, tokens.prompt, output)


def test_a_plan_is_bounded_by_every_role_at_its_full_context_on_every_turn(tmp_path: Path) -> None:
    experiment = load(
        write_spec(tmp_path, SOLO + PAIR, repeats=3, more="limits: {max_turns: 40, max_output_tokens: 20000}\n")
    )
    alone, pair = arm_bounds(experiment, experiment.plan().trials)
    # Per million tokens: $8 for the dearest class of Opus's prompt and $20 for its answer; Flash costs twice its $0.15
    # and $0.60 in the peak hours of the days after the start.
    opus, flash = Decimal("8.32768"), Decimal("0.3196608")
    assert (alone.arm, alone.trials, alone.calls, alone.dearest_call_usd) == ("alone", 3, 40, flash)
    assert alone.usd == 3 * 40 * flash
    assert (pair.arm, pair.trials, pair.calls, pair.dearest_call_usd) == ("pair", 3, 80, opus)
    assert pair.usd == 3 * 40 * (opus + flash)


def test_a_spec_that_fixes_its_prices_is_bounded_by_these(tmp_path: Path) -> None:
    experiment = load(write_spec(tmp_path, more="prices_at: 2026-11-24T12:00:00Z\n"))
    (alone,) = arm_bounds(experiment, experiment.plan().trials)
    assert alone.dearest_call_usd == Decimal("0.1598304")
