"""Usage of the OpenAI Responses API and of those that imitate it.

`input_tokens` holds everything that was sent: what was read from a cache and what was written to one is inside it, as
reasoning is inside `output_tokens`.
"""

from collections.abc import Mapping

from cost_model.tokens import Tokens
from cost_model.usage.fields import UsageFields
from cost_model.usage.reading import Counted

NAME = "openai_responses"

_ANTHROPICS = ("cache_creation_input_tokens", "cache_read_input_tokens", "cache_creation", "iterations")


def fits(raw: Mapping[str, object]) -> bool:
    """Input with its details, or with a total and none of Anthropic's or LangChain's fields."""
    if "input_tokens_details" in raw:
        return True
    others = ("input_token_details", "output_token_details", *_ANTHROPICS)
    return "input_tokens" in raw and "total_tokens" in raw and not any(name in raw for name in others)


def count(usage: UsageFields) -> Counted:
    """Tokens of one response; what was read and written lies inside `input_tokens`. Raises UsageError."""
    details = usage.raw.get("input_tokens_details", {})
    null = details is None or (isinstance(details, Mapping) and details.get("cached_tokens", 0) is None)
    return Counted(_tokens(usage), untold=frozenset({"cache_read"}) if null else frozenset())


def _tokens(usage: UsageFields) -> Tokens:
    """Tokens of one response. Writes whose lifetime the usage does not tell are `cache_write_unknown`."""
    prompt = usage.needed("input_tokens")
    details = usage.inside("input_tokens_details")
    read = details.count("cached_tokens") or 0
    write_30m, write_12h, write_unknown = split_writes(details, details.count("cache_write_tokens") or 0)
    uncached = prompt - read - write_30m - write_12h - write_unknown
    if uncached < 0:
        raise usage.error(f"cached and written tokens ({prompt - uncached}) exceed input_tokens ({prompt})")
    output, reasoning = _output(usage, prompt)
    return Tokens(
        input=uncached,
        cache_read=read,
        cache_write_30m=write_30m,
        cache_write_12h=write_12h,
        cache_write_unknown=write_unknown,
        output=output,
        reasoning=reasoning,
    )


def split_writes(details: UsageFields, written: int) -> tuple[int, int, int]:
    """Of the tokens written: for 30 minutes, for 12 hours, and for a time that only the request knows.

    Raises UsageError when the split does not add up to them.
    """
    split = details.inside("cache_write_tokens_details")
    half_hour, half_day = split.count("ttl_30m_tokens"), split.count("ttl_12h_tokens")
    if half_hour is None and half_day is None:
        return 0, 0, written
    sum_of_split = (half_hour or 0) + (half_day or 0)
    if sum_of_split != written:
        raise details.error(f"cache_write_tokens_details add up to {sum_of_split}, {written} tokens were written")
    return half_hour or 0, half_day or 0, 0


def _output(usage: UsageFields, prompt: int) -> tuple[int, int]:
    output = usage.needed("output_tokens")
    reasoning = usage.inside("output_tokens_details").count("reasoning_tokens") or 0
    total = usage.count("total_tokens")
    if total is not None and total == prompt + output + reasoning:
        # An imitation that counts reasoning beside the output.
        return output + reasoning, reasoning
    if total is not None and total != prompt + output:
        raise usage.error(
            f"total_tokens ({total}) fits neither input + output ({prompt} + {output}) "
            f"nor that with reasoning ({reasoning}) on top"
        )
    if reasoning > output:
        raise usage.error(f"reasoning_tokens ({reasoning}) exceed output_tokens ({output})")
    return output, reasoning
