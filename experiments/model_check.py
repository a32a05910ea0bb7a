"""Whether a model of the registry does what its entry says: two calls, what they cost, and what they show."""

import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING

from agents.clock import VirtualClock, WallClock
from agents.errors import ProviderRefused, VisitEnded
from agents.model_entry import ModelEntry
from agents.probe import CALLS, OUTPUT_TOKENS, Exchange, Probe, Tape, longest_prompts
from agents.transport import open_http
from cost_model.calls import CallSent, SpendingStopped
from cost_model.errors import PriceMissing, UsageError
from cost_model.policies import POLICIES, charged_classes
from cost_model.price_card import SELF_HOSTED, PriceCard
from cost_model.prices import PriceBook
from cost_model.usage import normalise
from cost_model.writes import settle_writes
from experiments.model_findings import (
    WRITES,
    CheckedCall,
    Finding,
    findings_of_cache,
    findings_of_call,
    second_refused,
)
from experiments.spec import DEFAULT_EPOCH
from experiments.worst_case import PROVIDER_TOKENS, call_bound

if TYPE_CHECKING:
    from agents.transport.streaming_asgi import ASGIApp

CALL_LIMIT_S = 600.0
"""Real time that one call of a check may take: its answers are short, and a slow machine of one's own reads slowly."""


@dataclass(frozen=True, slots=True)
class CheckedModel:
    """`usd` sums what is known; `tries` counts the requests that were sent."""

    entry: ModelEntry
    calls: tuple[CheckedCall, ...]
    findings: tuple[Finding, ...]
    usd: Decimal
    tries: int


def price_card(entry: ModelEntry, prices: PriceBook) -> PriceCard:
    """Today's prices; of a simulated model those at which simulated time begins. Raises PriceMissing when a class that
    the model can be billed in has no price."""
    if entry.price is None:
        return SELF_HOSTED
    card = prices.card(entry.price, DEFAULT_EPOCH if entry.simulated else datetime.now(UTC))
    lacking = card.lacking(charged_classes(POLICIES[entry.cache]))
    if lacking:
        raise PriceMissing(
            f"the price of {entry.price!r} does not cover {', '.join(lacking)} tokens, which the cache policy "
            f"{entry.cache} bills; add them in a price file, or mend `cache`"
        )
    return card


def worst_case(entry: ModelEntry, card: PriceCard, output_tokens: int = OUTPUT_TOKENS) -> Decimal:
    """Dollars that the calls can cost at most. Raises RegistryError when the model's limits have no room for them."""
    output = min(output_tokens, entry.limits.max_output_tokens)
    prompts = longest_prompts(entry, output)
    return sum((call_bound(card, prompt + PROVIDER_TOKENS, output) for prompt in prompts), Decimal(0))


async def check_model(
    entry: ModelEntry, card: PriceCard, *, simulator_url: str | None = None, output_tokens: int = OUTPUT_TOKENS
) -> CheckedModel:
    """Raises RegistryError when the key is missing, and ProviderRefused when the first call gets no answer or the
    second one none for a fault that a person must mend."""
    tape = Tape()
    clock = VirtualClock(DEFAULT_EPOCH) if entry.simulated else WallClock()
    simulator = _simulator() if entry.simulated and simulator_url is None else None
    async with open_http(simulator=simulator, simulator_url=simulator_url, call_limit_s=CALL_LIMIT_S) as http:
        probe = Probe(
            entry,
            http=http,
            clock=clock,
            book=_Bounded(tape),
            tape=tape,
            nonce=secrets.token_hex(8),
            output_tokens=output_tokens,
        )
        try:
            first = _checked(await probe.first(), entry, card, None)
        except (SpendingStopped, VisitEnded) as end:
            raise _unanswered(entry, probe, end) from end
        calls = [first]
        findings = list(findings_of_call(first, entry))
        try:
            second = _checked(await probe.second(), entry, card, first)
        except ProviderRefused as error:
            if error.fault is not None:
                raise
            findings.append(second_refused(str(error)))
        except (SpendingStopped, VisitEnded) as end:
            findings.append(second_refused(str(_unanswered(entry, probe, end))))
        else:
            calls.append(second)
            findings += findings_of_call(second, entry)
            findings += findings_of_cache(first, second, entry)
    usd = sum((call.usd for call in calls if call.usd is not None), Decimal(0))
    unique = tuple(dict.fromkeys(findings))
    return CheckedModel(entry, tuple(calls), unique, usd, len(tape.calls))


class _Bounded:
    """Lets no more calls be billed than the stated worst case counts: a request that broke off may have been."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape
        self.ended = tape.ended
        self.judged = tape.judged

    async def sent(self, call: CallSent) -> None:
        ends = self._tape.ends
        billed = sum(key not in ends or ends[key].outcome != "refused" for key in self._tape.calls)
        if billed >= CALLS:
            raise SpendingStopped("a further try could cost more than the worst case that was stated")
        await self._tape.sent(call)


def _simulator() -> "ASGIApp":
    from agents.simulated.app import simulated_provider

    return simulated_provider(tasks=[])


def _unanswered(entry: ModelEntry, probe: Probe, end: Exception) -> ProviderRefused:
    """What ended the asking, in one line: the last try's own error, or that the prompt is too long."""
    if isinstance(end, VisitEnded):
        return ProviderRefused(
            f"{entry.name}: the prompt of the check is longer than the model takes",
            advice=f"mend context_tokens: {entry.limits.context_tokens} of its entry, or the server's context size",
        )
    return ProviderRefused(f"{entry.name}: {probe.failed or 'a try broke off'}", advice=str(end))


def _checked(exchange: Exchange, entry: ModelEntry, card: PriceCard, before: CheckedCall | None) -> CheckedCall:
    ended = exchange.ended
    raw = ended.usage or {}
    tokens = usd = None
    try:
        if ended.usage is not None:
            tokens = normalise(exchange.sent.flavour, raw)
            settled = settle_writes(tokens, policy=POLICIES[entry.cache], lifetime=exchange.sent.lifetime, card=card)
            usd = card.cost(settled)
    except (UsageError, PriceMissing):
        # Told as a finding.
        pass
    return CheckedCall(exchange, tuple(_flat(raw)), tokens, usd, _predicted(entry, before))


def _predicted(entry: ModelEntry, before: CheckedCall | None) -> int | None:
    """What is read of a prompt whose beginning is the prompt `before`."""
    policy = POLICIES[entry.cache]
    if before is None or policy.matching == "none":
        return 0
    if before.tokens is None:
        return None
    prompt = before.tokens.prompt
    if prompt < policy.minimum_tokens:
        return 0
    if policy.matching == "prefix":
        return prompt // policy.multiple * policy.multiple
    kept = before.tokens.cache_read + sum(before.tokens.of(name) for name in WRITES)
    return kept or prompt


def _flat(raw: Mapping[str, object], above: str = "") -> Iterator[tuple[str, object]]:
    for name, value in raw.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value
