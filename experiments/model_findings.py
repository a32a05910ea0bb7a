"""What is off about a model's answers to a check, and what to do about it."""

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal

from agents.model_entry import ModelEntry
from agents.probe import Exchange
from agents.wire_text import one_line
from cost_model.errors import UsageError
from cost_model.policies import POLICIES
from cost_model.tokens import PROMPT_CLASSES, Tokens
from cost_model.usage import normalise

WRITES = tuple(name for name in PROMPT_CLASSES if name.startswith("cache_write"))

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


def findings_of_call(call: CheckedCall, entry: ModelEntry) -> Iterator[Finding]:
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
        said = one_line(exchange.reply.text, limit=120) or "nothing at all"
        yield Finding(f"the model was asked for an action and only talked ({said})", _other_actions(entry))
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


def findings_of_cache(first: CheckedCall, second: CheckedCall, entry: ModelEntry) -> Iterator[Finding]:
    if first.tokens is None or second.tokens is None:
        return
    policy, read = POLICIES[entry.cache], second.tokens.cache_read
    written = [name for name in WRITES if first.tokens.of(name) or second.tokens.of(name)]
    if policy.matching == "none":
        if read or written:
            yield Finding(
                f"the entry says `cache: none`, and {read:,} tokens were read from a cache",
                "name the policy that fits under `cache` (see cost_model/policies.py): else causes are told wrongly",
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


def second_refused(told: str) -> Finding:
    return Finding(
        f"the first call was answered and the next turn of the same conversation was not: {told}",
        "what the model had answered went back to it: see whether `reasoning`, `actions` and `protocol` of it fit",
    )
