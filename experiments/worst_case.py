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
    `dearest_call_usd`. A try that breaks off and is repeated, and a ping, comes on top, unless dollars or tokens are
    limited: then the calls in flight when a limit is reached do, which `usd` holds."""

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
    return call_bound(card, *_most(prompt_bytes, max_output_tokens))


def bound_of(call: CallSent, card: PriceCard) -> Decimal:
    return sent_bound(card, call.prompt_bytes, call.max_output_tokens)


def most_tokens(call: CallSent) -> int:
    """The most that a call can have, prompt and answer together."""
    return sum(_most(call.prompt_bytes, call.max_output_tokens))


def _most(prompt_bytes: int, max_output_tokens: int | None) -> tuple[int, int]:
    longest = UNLIMITED_OUTPUT_TOKENS if max_output_tokens is None else max_output_tokens
    return prompt_bytes + PROVIDER_TOKENS, longest


def arm_bounds(experiment: Experiment, trials: Iterable[PlannedTrial]) -> list[ArmBound]:
    """One an arm of the experiment, in its order, over those of its trials that are given."""
    counts = dict.fromkeys(experiment.arms, 0)
    for trial in trials:
        counts[trial.arm] += 1
    return [_arm_bound(experiment, arm, counts[arm.name]) for arm in experiment.arms.values()]


def _arm_bound(experiment: Experiment, arm: Arm, trials: int) -> ArmBound:
    limits = experiment.spec.limits
    roles = [_role_bound(experiment, role) for role in arm.roles.values()]
    most = sum((min(role.usd, role.limited_usd) for role in roles), Decimal(0))
    # Whatever the role, it is in flight but once, and once more where it is pinged.
    in_flight = sum((role.in_flight_usd for role in roles), Decimal(0))
    dearest_token = max(role.dearest_token_usd for role in roles)
    return ArmBound(
        arm=arm.name,
        trials=trials,
        calls=sum(role.turns for role in roles),
        dearest_call_usd=max(role.dearest_call_usd for role in roles),
        usd=min(most, _limited(limits.max_usd, limits.max_tokens, dearest_token, in_flight)) * trials,
    )


@dataclass(frozen=True, slots=True)
class _RoleBound:
    """Of one role in one trial: by its turns, and by its own limits of dollars and tokens (infinite without)."""

    turns: int
    dearest_call_usd: Decimal
    dearest_token_usd: Decimal
    in_flight_usd: Decimal
    limited_usd: Decimal

    @property
    def usd(self) -> Decimal:
        return self.dearest_call_usd * self.turns


def _role_bound(experiment: Experiment, role: RoleModel) -> _RoleBound:
    """Its dearest call is a prompt that fills the model's context and the longest answer that it may give."""
    whole, limits = experiment.spec.limits, role.entry.limits
    answers = (whole.max_output_tokens, limits.max_output_tokens, role.max_output_tokens)
    longest = min(most for most in answers if most is not None)
    context = limits.context_tokens
    cards = list(_cards(experiment, role.entry.name))
    call = max(call_bound(card, context, longest) for card in cards)
    prompt = max(call_bound(card, context, 0) / context for card in cards)
    output = max(call_bound(card, context, 1) - call_bound(card, context, 0) for card in cards)
    token, in_flight = max(prompt, output), call * (1 if role.keep_alive is None else 2)
    return _RoleBound(
        turns=min(whole.max_turns, role.max_turns or whole.max_turns),
        dearest_call_usd=call,
        dearest_token_usd=token,
        in_flight_usd=in_flight,
        limited_usd=_limited(role.max_usd, role.max_tokens, token, in_flight),
    )


def _limited(max_usd: Decimal | None, max_tokens: int | None, token_usd: Decimal, in_flight_usd: Decimal) -> Decimal:
    """What can be spent under these limits, with what is in flight when one is reached."""
    by_tokens = Decimal("Infinity") if max_tokens is None else max_tokens * token_usd
    return min(Decimal("Infinity") if max_usd is None else max_usd, by_tokens) + in_flight_usd


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
