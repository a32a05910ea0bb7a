"""Calls, prompts and usages in few words, for the tests of the cost model."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from cost_model.call_fact import CallFact
from cost_model.calls import Outcome
from cost_model.policies import POLICIES
from cost_model.policy import CachePolicy
from cost_model.prefixes import PromptBlock
from cost_model.price_card import PriceCard
from cost_model.scope import ExplainedCall
from cost_model.tokens import Tokens

START = datetime(2026, 11, 24, 12, tzinfo=UTC)
ANTHROPIC = POLICIES["anthropic-1024"]
OPENAI = POLICIES["openai-1024"]
DEEPSEEK = POLICIES["deepseek"]
OPUS = PriceCard(
    "claude-opus-5-5",
    "list",
    None,
    None,
    {
        "input": Decimal(4),
        "cache_read": Decimal("0.2"),
        "cache_write_5m": Decimal(5),
        "cache_write_1h": Decimal(8),
        "output": Decimal(20),
    },
)


def blocks(text: str) -> list[PromptBlock]:
    """A prompt out of words: "head a b" is three blocks; word:500 has 500 bytes, others 1000."""
    return [PromptBlock(word.split(":")[0], int(word.split(":")[1]) if ":" in word else 1000) for word in text.split()]


def call(
    at_s: float,
    prompt: str,
    tokens: Tokens | None,
    *,
    key: str | None = None,
    lane: str = "planner",
    policy: CachePolicy = ANTHROPIC,
    card: PriceCard = OPUS,
    first_token_s: float | None = 1.0,
    outcome: Outcome = "complete",
    **more: Any,
) -> CallFact:
    sent = blocks(prompt)
    facts: dict[str, Any] = {
        "lifetime": None,
        "model": "opus",
        "prompt_bytes": sum(block.size for block in sent),
        "max_output_tokens": 1000,
        **more,
    }
    return CallFact(
        key=key or f"{lane}/{at_s:012.3f}",
        lane=lane,
        requested_at=START + timedelta(seconds=at_s),
        first_token_at=None if first_token_s is None else START + timedelta(seconds=at_s + first_token_s),
        outcome=outcome,
        tokens=tokens,
        policy=policy,
        card=card,
        prompt=sent,
        **facts,
    )


def causes(explained: ExplainedCall) -> dict[str, int]:
    """Prompt tokens by cause."""
    count: Counter[str] = Counter()
    for charge in explained.charges:
        if charge.token_class != "output":
            assert charge.units is not None
            count[charge.cause] += charge.units
    return dict(count)


def wrote(count: int, read: int = 0, output: int = 100) -> Tokens:
    return Tokens(cache_read=read, cache_write_5m=count, output=output)
