"""The token classes that a call would have been billed in, had its cache let it read something else than it did."""

from dataclasses import replace

from cost_model.call_fact import CallFact
from cost_model.tokens import PROMPT_CLASSES, Tokens
from cost_model.writes import settle_writes

_WRITES_FROM_THE_END = tuple(name for name in reversed(PROMPT_CLASSES) if name.startswith("cache_write"))
UNKNOWN_LIFETIME = "cache_write_unknown"


def predicted_read(measured: int, expected: int, expected_now: int, step: int) -> int:
    """What a call would read.

    `measured`: what it did read. `expected`, `expected_now`: what its cache should have let it read as it was, and as
    it would be. `step`: in what steps the cache as it was reads. Where the policy says the same both times, the
    provider does what it did, right or wrong. An early eviction stays one: no lifetime brings back what was thrown
    away. A lucky read of an entry whose lifetime was over stays where entries live longer, and goes where they live
    shorter.
    """
    if expected_now == expected:
        return measured
    lost = expected - measured
    if 0 <= lost < max(step, 1):
        # No loss: the length of a prefix inside a prompt is only estimated.
        return max(0, expected_now - lost)
    if lost > 0:
        return min(measured, expected_now)
    return max(measured, expected_now) if expected_now > expected else expected_now


def predicted_tokens(told: Tokens, measured: CallFact, now: CallFact, total: int, read: int) -> Tokens:
    """The usage of a call with another prompt, read or cache; exactly the measured one, `told`, where nothing differs.

    What was neither read nor written stays so: it lies behind the last breakpoint. Raises PriceMissing when the card
    lacks the class of writes that only occur now.
    """
    same_cache = measured.policy == now.policy and measured.lifetime == now.lifetime
    if same_cache and total == told.prompt and read == told.cache_read:
        return told
    rest = total - read
    as_before = replace(told, **dict.fromkeys(PROMPT_CLASSES, 0))
    if now.policy.matching == "none" or not now.policy.write_class or total < now.policy.minimum_tokens:
        return replace(as_before, cache_read=read, input=rest)
    settled = settle_writes(told, policy=measured.policy, lifetime=measured.lifetime, card=measured.card)
    cached = measured.policy.write_class and settled.input < settled.prompt
    counts = {"cache_read": read, "input": min(settled.input, rest) if cached else 0}
    rest -= counts["input"]
    if same_cache:
        for token_class in _WRITES_FROM_THE_END:
            counts[token_class] = min(settled.of(token_class), rest)
            rest -= counts[token_class]
    if rest:
        token_class = _write_class(now, total)
        counts[token_class] = counts.get(token_class, 0) + rest
    return replace(as_before, **counts)


def _write_class(call: CallFact, total: int) -> str:
    """How a write of the lifetime that the call asks for is billed."""
    asked = call.lifetime or call.policy.default_lifetime
    named = call.policy.write_class.get(asked or "", UNKNOWN_LIFETIME)
    general = call.card.lacking([named]) and asked == call.policy.default_lifetime
    chosen = UNKNOWN_LIFETIME if general else named
    call.card.price(chosen, total)
    return chosen
