"""Usage of the OpenAI Chat Completions API and of the many that imitate it.

`prompt_tokens` holds everything that was sent: what was read from a cache and what was written to one is inside it.
"""

from collections.abc import Mapping

from cost_model.tokens import Tokens
from cost_model.usage.fields import UsageFields


def normalise(raw: Mapping[str, object]) -> Tokens:
    """Tokens of one completion. Writes whose lifetime the usage does not tell are `cache_write_unknown`."""
    usage = UsageFields(raw)
    prompt = usage.needed("prompt_tokens")
    read = _read(usage, prompt)
    write_30m, write_12h, write_unknown = _writes(usage)
    uncached = prompt - read - write_30m - write_12h - write_unknown
    if uncached < 0:
        raise usage.error(f"cached and written tokens ({prompt - uncached}) exceed prompt_tokens ({prompt})")
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


def _agreed(usage: UsageFields, what: str, places: Mapping[str, int | None]) -> int:
    """One number that imitations keep in several places: those that tell it must agree. 0 when nobody tells."""
    told = {name: value for name, value in places.items() if value is not None}
    if len(set(told.values())) > 1:
        raise usage.error(f"{what} disagree: " + ", ".join(f"{name} {value}" for name, value in told.items()))
    return next(iter(told.values()), 0)


def _read(usage: UsageFields, prompt: int) -> int:
    hit, miss = usage.count("prompt_cache_hit_tokens"), usage.count("prompt_cache_miss_tokens")
    if hit is not None and miss is not None and hit + miss != prompt:
        raise usage.error(f"cache hits and misses ({hit} + {miss}) are not prompt_tokens ({prompt})")
    return _agreed(
        usage,
        "cached tokens",
        {
            "prompt_tokens_details.cached_tokens": usage.inside("prompt_tokens_details").count("cached_tokens"),
            "cached_tokens": usage.count("cached_tokens"),
            "prompt_cache_hit_tokens": hit,
            "cache_read_input_tokens": usage.count("cache_read_input_tokens"),
        },
    )


def _writes(usage: UsageFields) -> tuple[int, int, int]:
    """Tokens written for 30 minutes, for 12 hours, and for a time that only the request knows."""
    details = usage.inside("prompt_tokens_details")
    written = _agreed(
        usage,
        "written tokens",
        {
            "prompt_tokens_details.cache_write_tokens": details.count("cache_write_tokens"),
            "prompt_tokens_details.cache_creation_input_tokens": details.count("cache_creation_input_tokens"),
            "prompt_tokens_details.cache_creation_tokens": details.count("cache_creation_tokens"),
            "cache_creation_input_tokens": usage.count("cache_creation_input_tokens"),
        },
    )
    split = details.inside("cache_write_tokens_details")
    half_hour, half_day = split.count("ttl_30m_tokens"), split.count("ttl_12h_tokens")
    if half_hour is None and half_day is None:
        return 0, 0, written
    sum_of_split = (half_hour or 0) + (half_day or 0)
    if sum_of_split != written:
        raise usage.error(f"cache_write_tokens_details add up to {sum_of_split}, {written} tokens were written")
    return half_hour or 0, half_day or 0, 0


def _output(usage: UsageFields, prompt: int) -> tuple[int, int]:
    """Output with its reasoning inside, and the reasoning. Which reading holds is what makes the total come out."""
    completion = usage.needed("completion_tokens")
    reasoning = usage.inside("completion_tokens_details").count("reasoning_tokens")
    total = usage.count("total_tokens")
    thought = reasoning or 0
    if total is None or total == prompt + completion:
        if thought > completion:
            raise usage.error(f"reasoning_tokens ({thought}) exceed completion_tokens ({completion})")
        return completion, thought
    if total == prompt + completion + thought:
        return completion + thought, thought
    if reasoning is None and total > prompt + completion:
        # Thinking that is billed as output but left out of completion_tokens and of the details.
        return total - prompt, total - prompt - completion
    raise usage.error(
        f"total_tokens ({total}) fits neither prompt + completion ({prompt} + {completion}) "
        f"nor that with reasoning ({thought}) on top"
    )
