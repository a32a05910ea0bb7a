"""Whether a model of the registry does what its entry says: two calls, what they cost, and what is off about them."""

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
from cost_model.tokens import Tokens
from cost_model.usage import normalise
from experiments.spec import DEFAULT_EPOCH
from experiments.worst_case import PROVIDER_TOKENS, call_bound

if TYPE_CHECKING:
    from agents.transport.streaming_asgi import ASGIApp

_TELLS_OF_A_CACHE = ("cache", "hit_tokens")

NEAR = Decimal("0.9")
"""A read of at least so much of what the policy predicts is as predicted: a template adds or takes some tokens."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is off, and what to do about it."""

    what: str
    advice: str


@dataclass(frozen=True, slots=True)
class CheckedCall:
    """`tokens` None: no usage came, or it is not believed. `usd` None: unknown. `predicted_read`: tokens that the cache
    policy says are read from the cache; None where it cannot say."""

    exchange: Exchange
    usage: tuple[tuple[str, object], ...]
    tokens: Tokens | None
    usd: Decimal | None
    predicted_read: int | None

    @property
    def first_token_s(self) -> float | None:
        ended, sent = self.exchange.ended, self.exchange.sent
        return None if ended.first_token_at is None else (ended.first_token_at - sent.requested_at).total_seconds()


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
    async with open_http(simulator=simulator, simulator_url=simulator_url) as http:
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
            raise _unanswered(entry, tape, end) from end
        calls = [first]
        findings = list(_of_call(first, entry))
        try:
            second = _checked(await probe.second(), entry, card, first)
        except ProviderRefused as error:
            if error.fault is not None:
                raise
            findings.append(_second_refused(str(error)))
        except (SpendingStopped, VisitEnded) as end:
            findings.append(_second_refused(str(_unanswered(entry, tape, end))))
        else:
            calls.append(second)
            findings += _of_call(second, entry)
            findings += _of_cache(first, second, entry)
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


def _unanswered(entry: ModelEntry, tape: Tape, end: Exception) -> ProviderRefused:
    """What ended the asking, in one line: the last try's own error, or that the prompt is too long."""
    if isinstance(end, VisitEnded):
        return ProviderRefused(
            f"{entry.name}: the prompt of the check is longer than the model takes",
            advice=f"mend context_tokens: {entry.limits.context_tokens} of its entry, or the server's context size",
        )
    told = next((ended.error for ended in reversed(tape.ends.values()) if ended.error), "a try broke off")
    return ProviderRefused(f"{entry.name}: {told}", advice=str(end))


def _second_refused(told: str) -> Finding:
    return Finding(
        f"the first call was answered and the next turn of the same conversation was not: {told}",
        "what the model had answered went back to it: see whether `reasoning`, `actions` and `protocol` of it fit",
    )


def _checked(exchange: Exchange, entry: ModelEntry, card: PriceCard, before: CheckedCall | None) -> CheckedCall:
    ended = exchange.ended
    raw = ended.usage or {}
    tokens = usd = None
    try:
        if ended.usage is not None:
            tokens = normalise(exchange.sent.flavour, raw)
            usd = card.cost(tokens)
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
    kept = before.tokens.cache_read + sum(before.tokens.of(name) for name in _writes())
    return kept or prompt


def _writes() -> list[str]:
    from cost_model.tokens import PROMPT_CLASSES

    return [name for name in PROMPT_CLASSES if name.startswith("cache_write")]


def _of_call(call: CheckedCall, entry: ModelEntry) -> Iterator[Finding]:
    exchange = call.exchange
    if call.tokens is None:
        yield _usage_finding(exchange, entry)
    elif call.usd is None:
        yield Finding(
            f"the price of {entry.price!r} does not cover every class of token that was billed",
            f"see `cache: {entry.cache}` of the entry, and `fullchain models show {entry.name}` for what is priced",
        )
    if exchange.acted == "valid" or (exchange.acted == "none" and exchange.sent.turn != "1"):
        return
    if exchange.reply.ending == "max_tokens":
        yield Finding(
            f"the answer was cut at {exchange.sent.max_output_tokens} tokens",
            "check again with --output-tokens 4000, or turn its thinking off (`extra_body`)",
        )
    elif exchange.reply.ending == "refusal":
        yield Finding("the model refused a harmless errand", "another model would do; nothing of the entry mends this")
    elif exchange.acted == "none":
        yield Finding("the model was asked for an action and only talked", _other_actions(entry))
    else:
        yield Finding(f"the action cannot be carried out: {exchange.mend}", _other_actions(entry))


def _other_actions(entry: ModelEntry) -> str:
    if entry.actions == "tools":
        return "try `actions: json_schema`, and where the server ignores schemas `actions: fenced`"
    if entry.actions == "json_schema":
        return "the server seems to ignore schemas: try `actions: fenced`"
    return "try `actions: json_schema`, or a larger model"


def _usage_finding(exchange: Exchange, entry: ModelEntry) -> Finding:
    raw = exchange.ended.usage
    if raw is None:
        return Finding(
            "no usage came with the answer, so its cost is unknown",
            "switch on the usage of streams at the server or gateway: no cost can be counted without it",
        )
    try:
        normalise(exchange.sent.flavour, raw)
    except UsageError as error:
        return Finding(
            f"the usage is not believed: {error}",
            f"see whether `protocol: {entry.protocol}` is what the server speaks; runs book such calls as a range",
        )
    raise AssertionError("usage that can be read is no finding")


def _of_cache(first: CheckedCall, second: CheckedCall, entry: ModelEntry) -> Iterator[Finding]:
    if first.tokens is None or second.tokens is None:
        return
    policy, read = POLICIES[entry.cache], second.tokens.cache_read
    written = [name for name in _writes() if first.tokens.of(name) or second.tokens.of(name)]
    if policy.matching == "none":
        if read or written:
            yield Finding(
                f"the entry says `cache: none`, and {read:,} tokens were read from a cache",
                "name the policy that fits under `cache` (see cost_model/policies.py): else costs are explained wrongly",
            )
        return
    if first.tokens.prompt < policy.minimum_tokens:
        yield Finding(
            f"the prompt came to {first.tokens.prompt:,} tokens, fewer than the cache's minimum of "
            f"{policy.minimum_tokens:,}",
            "nothing can be said of its cache: see `fullchain run` with a longer prompt",
        )
        return
    strange = [name for name in written if name != "cache_write_unknown" and name not in policy.write_class.values()]
    if strange:
        yield Finding(
            f"the usage tells of {', '.join(strange)} tokens, which the cache policy {entry.cache} does not have",
            "name the policy that fits under `cache`",
        )
    if policy.write_class and not written:
        yield Finding(
            f"nothing was written to the cache, though {entry.cache} bills writes",
            f"see whether `caching: {entry.cache_request}` is what this endpoint wants, and whether it tells writes",
        )
    predicted = second.predicted_read
    if predicted is None or Decimal(read) >= predicted * NEAR - policy.multiple:
        return
    if read:
        yield Finding(
            f"{read:,} tokens were read from the cache where {predicted:,} were predicted",
            "see whether something between here and the model rewrites the prompt; else another policy may fit better",
        )
    else:
        yield Finding(
            f"nothing was read from the cache, {predicted:,} tokens were predicted", _why_no_read(second, entry)
        )


def _why_no_read(call: CheckedCall, entry: ModelEntry) -> str:
    if not any(word in name for name, _ in call.usage for word in _TELLS_OF_A_CACHE):
        return (
            "the usage has no field for cached tokens: the server does not tell them (vLLM: start it with "
            "--enable-prompt-tokens-details, SGLang: --enable-cache-report), or it has no cache: `cache: none`"
        )
    if POLICIES[entry.cache].matching == "breakpoints":
        return f"see whether `caching: {entry.cache_request}` is what this endpoint wants, and whether it passes it on"
    return (
        "a cache that is filled on the quiet may take a while or miss now and then: check again; if it stays so, a "
        "gateway may spread calls over servers (`cache_key: true`, or pin the upstream by `extra_body`)"
    )


def _flat(raw: Mapping[str, object], above: str = "") -> Iterator[tuple[str, object]]:
    for name, value in raw.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value
