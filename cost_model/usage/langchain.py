"""LangChain's `usage_metadata`: one object for all providers, with everything that was sent inside `input_tokens`."""

from collections.abc import Mapping

from cost_model.tokens import Tokens
from cost_model.usage.fields import UsageFields
from cost_model.usage.reading import Counted

NAME = "langchain"

_TIERS = ("priority", "flex")


def fits(raw: Mapping[str, object]) -> bool:
    return "input_token_details" in raw or "output_token_details" in raw


def count(usage: UsageFields) -> Counted:
    """Tokens of one message. The total is input + output; where it is more by just the cached tokens, they were left
    out of the input after all. Raises UsageError."""
    prompt, output = usage.needed("input_tokens"), usage.needed("output_tokens")
    details, of_output = usage.inside("input_token_details"), usage.inside("output_token_details")
    tiers = [tier for tier in _TIERS if details.raw.get(f"{tier}_cache_read", details.raw.get(tier)) is not None]
    if len(tiers) > 1:
        raise usage.error(f"input_token_details tell of several tiers: {', '.join(tiers)}")
    before = f"{tiers[0]}_" if tiers else ""
    read = details.count(f"{before}cache_read") or 0
    writes = _writes(details)
    cached = read + sum(writes.values())
    reasoning = of_output.count(f"{before}reasoning") or 0
    total = usage.count("total_tokens")
    if total is not None and total == prompt + cached + output != prompt + output:
        prompt += cached
    elif total is not None and total != prompt + output:
        raise usage.error(
            f"total_tokens ({total}) fits neither input + output ({prompt} + {output}) nor that with cached tokens "
            f"({cached}) on top"
        )
    if cached > prompt:
        raise usage.error(f"cached and written tokens ({cached}) exceed input_tokens ({prompt})")
    if reasoning > output:
        raise usage.error(f"reasoning ({reasoning}) exceeds output_tokens ({output})")
    tokens = Tokens(input=prompt - cached, cache_read=read, output=output, reasoning=reasoning, **writes)
    return Counted(tokens, modifiers={"service_tier": tiers[0]} if tiers else {})


def _writes(details: UsageFields) -> dict[str, int]:
    """By lifetime where the provider told it; `cache_creation` is then their sum or, so as not to count twice, 0."""
    written = details.count("cache_creation")
    split = {
        "cache_write_5m": details.count("ephemeral_5m_input_tokens") or 0,
        "cache_write_1h": details.count("ephemeral_1h_input_tokens") or 0,
    }
    if not any(split.values()):
        return {"cache_write_unknown": written or 0}
    if written not in (None, 0, sum(split.values())):
        raise details.error(f"tokens written add up to {sum(split.values())}, cache_creation says {written}")
    return split
