"""Bounds of dollars: of one call that is about to be sent, and of all that a plan has left to do.

They are bounds and no estimates: the dearest class and step of the price, and more tokens than the call can have. A
request's bytes bound its tokens, because no tokenizer makes more than one token of a byte.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from agents.crew import RoleModel
from cost_model.calls import CallSent
from cost_model.price_card import PriceCard
from cost_model.tokens import PROMPT_CLASSES
from experiments.experiment import Arm, Experiment
from experiments.plan import PlannedTrial

PROVIDER_TOKENS = 1_000
"""Allowed for what a provider puts before a prompt and bills (its own words on tools): some hundred tokens."""

UNLIMITED_OUTPUT_TOKENS = 128_000
"""Taken where a request set no limit of the answer."""

AHEAD = timedelta(days=8)
"""A plan's bound takes the dearest prices of so many days from its start: a week with its peak hours, and a bit."""


@dataclass(frozen=True, slots=True)
class ArmBound:
    """What the `trials` of an arm can cost at most, each of at most `calls` answered calls of which none is dearer than
    `dearest_call_usd`. A try that breaks off and is repeated comes on top."""

    arm: str
    trials: int
    calls: int
    dearest_call_usd: Decimal
    usd: Decimal


def call_bound(card: PriceCard, prompt_tokens: int, output_tokens: int) -> Decimal:
    """The most that a call of at most so many tokens can cost, whatever the classes of its prompt."""
    # A longer prompt may reprice the whole call: each step that it can reach is looked at.
    sizes = {prompt_tokens, 0} | {tier.above + 1 for tier in card.tiers if tier.above < prompt_tokens}
    prompt = max(card.price(name, size) for size in sizes for name in PROMPT_CLASSES if name in card.usd_per_mtok)
    output = max(card.price("output", size) for size in sizes)
    return (prompt * prompt_tokens + output * output_tokens).scaleb(-6)


def sent_bound(card: PriceCard, prompt_bytes: int, max_output_tokens: int | None) -> Decimal:
    """The most that a request of this size can cost."""
    longest = UNLIMITED_OUTPUT_TOKENS if max_output_tokens is None else max_output_tokens
    return call_bound(card, prompt_bytes + PROVIDER_TOKENS, longest)


def bound_of(call: CallSent, card: PriceCard) -> Decimal:
    return sent_bound(card, call.prompt_bytes, call.max_output_tokens)


def arm_bounds(experiment: Experiment, trials: Iterable[PlannedTrial]) -> list[ArmBound]:
    """One an arm of the experiment, in its order, over those of its trials that are given."""
    counts = dict.fromkeys(experiment.arms, 0)
    for trial in trials:
        counts[trial.arm] += 1
    return [_arm_bound(experiment, arm, counts[arm.name]) for arm in experiment.arms.values()]


def _arm_bound(experiment: Experiment, arm: Arm, trials: int) -> ArmBound:
    turns = experiment.spec.limits.max_turns
    dearest = [_dearest_call(experiment, role) for role in arm.roles.values()]
    return ArmBound(
        arm=arm.name,
        trials=trials,
        calls=turns * len(dearest),
        dearest_call_usd=max(dearest),
        usd=sum(dearest, Decimal(0)) * turns * trials,
    )


def _dearest_call(experiment: Experiment, role: RoleModel) -> Decimal:
    """A prompt that fills the model's context and the longest answer it may give."""
    limits = role.entry.limits
    longest = min(experiment.spec.limits.max_output_tokens or limits.max_output_tokens, limits.max_output_tokens)
    return max(call_bound(card, limits.context_tokens, longest) for card in _cards(experiment, role.entry.name))


def _cards(experiment: Experiment, model: str) -> Iterator[PriceCard]:
    """The prices of a model from the experiment's start on, as far as AHEAD."""
    spec = experiment.spec
    moment = spec.prices_at or (spec.virtual_epoch if experiment.simulated else datetime.now(UTC))
    end = moment + AHEAD
    while True:
        card = experiment.card(model, moment)
        yield card
        if spec.prices_at is not None or card.valid_until is None or card.valid_until >= end:
            return
        moment = card.valid_until
