"""Usage of the OpenAI Chat Completions API and of the many that imitate it.

`prompt_tokens` holds everything that was sent: what was read from a cache and what was written to one is inside it.
A llama.cpp server also keeps `timings` (here as a field of the usage), whose `prompt_n` is without what was cached.
"""

from collections.abc import Mapping

from cost_model.tokens import Tokens
from cost_model.usage.fields import UsageFields
from cost_model.usage.openai_responses import split_writes
from cost_model.usage.reading import Counted, searches

NAME = "openai_chat"


def fits(raw: Mapping[str, object]) -> bool:
    return "prompt_tokens" in raw or "completion_tokens" in raw


def count(usage: UsageFields) -> Counted:
    """Tokens of one completion, and the searches it made.

    A server that would tell its cached tokens and was not asked to sends null for them: then `cache_read` is untold.
    Raises UsageError.
    """
    beside = searches(usage)
    untold = frozenset({"cache_read"}) if _read_untold(usage) else frozenset()
    return Counted(_tokens(usage), beside, untold, written_told=_writes_told(usage))


def _tokens(usage: UsageFields) -> Tokens:
    """Writes whose lifetime the usage does not tell are `cache_write_unknown`."""
    prompt = _prompt(usage)
    read = _read(usage, prompt)
    writes = _writes(usage)
    prompt += _left_out(usage, prompt, read + sum(writes.values()))
    uncached = prompt - read - sum(writes.values())
    if uncached < 0:
        raise usage.error(f"cached and written tokens ({prompt - uncached}) exceed prompt_tokens ({prompt})")
    output, reasoning = _output(usage, prompt)
    return Tokens(input=uncached, cache_read=read, output=output, reasoning=reasoning, **writes)


def _prompt(usage: UsageFields) -> int:
    timings = usage.inside("timings")
    fresh, cached = timings.count("prompt_n"), timings.count("cache_n")
    told = None if fresh is None or cached is None else fresh + cached
    prompt = usage.count("prompt_tokens")
    if told is not None and prompt not in (None, told):
        raise usage.error(f"timings tell a prompt of {fresh} + {cached} tokens, prompt_tokens is {prompt}")
    return usage.needed("prompt_tokens") if told is None else told


def _left_out(usage: UsageFields, prompt: int, cached: int) -> int:
    """The cached tokens, where a framework that keeps them under Anthropic's names left them out of the prompt.

    The total tells: it is the sum of all of them. Cached tokens in the details of the prompt are always part of it.
    """
    total, completion = usage.count("total_tokens"), usage.count("completion_tokens")
    if total is None or completion is None or usage.raw.get("prompt_tokens_details") is not None:
        return 0
    names = ("cache_read_input_tokens", "cache_creation_input_tokens")
    anthropics = any(usage.raw.get(name) is not None for name in names)
    return cached if anthropics and total == prompt + cached + completion else 0


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
    if hit is None and miss is not None:
        if miss > prompt:
            raise usage.error(f"cache misses ({miss}) exceed prompt_tokens ({prompt})")
        hit = prompt - miss
    return _agreed(usage, "cached tokens", _reads(usage, hit))


def _reads(usage: UsageFields, hit: int | None) -> dict[str, int | None]:
    """What was read, by the places in which it may stand; `hit` is DeepSeek's, told or worked out of the misses."""
    return {
        "prompt_tokens_details.cached_tokens": usage.inside("prompt_tokens_details").count("cached_tokens"),
        "prompt_token_details.cached_tokens": usage.inside("prompt_token_details").count("cached_tokens"),
        "num_cached_tokens": usage.count("num_cached_tokens"),
        "cached_tokens": usage.count("cached_tokens"),
        "prompt_cache_hit_tokens": hit,
        "cache_read_input_tokens": usage.count("cache_read_input_tokens"),
        "timings.cache_n": usage.inside("timings").count("cache_n"),
    }


def _read_untold(usage: UsageFields) -> bool:
    """Whether a place for the cached tokens is there and null, and no other place tells them."""
    details = usage.raw.get("prompt_tokens_details", _NO_DETAILS)
    if details is not None and not (isinstance(details, Mapping) and details.get("cached_tokens", 0) is None):
        return False
    hit, miss = usage.count("prompt_cache_hit_tokens"), usage.count("prompt_cache_miss_tokens")
    return miss is None and all(told is None for told in _reads(usage, hit).values())


_NO_DETAILS: Mapping[str, object] = {}
_WRITTEN = {
    f"prompt_tokens_details.{name}": name
    for name in ("cache_write_tokens", "cache_creation_input_tokens", "cache_creation_tokens")
}
"""What was written, by the places in which it may stand."""


_SPLITS = ("cache_creation", "cache_creation_token_details", "cache_write_tokens_details")


def _writes_told(usage: UsageFields) -> bool:
    details = usage.raw.get("prompt_tokens_details")
    if any(usage.raw.get(name) is not None for name in ("cache_creation_input_tokens", "cache_creation")):
        return True
    names = (*_WRITTEN.values(), *_SPLITS)
    return isinstance(details, Mapping) and any(details.get(name) is not None for name in names)


def _writes(usage: UsageFields) -> dict[str, int]:
    """Tokens written, by class: of a lifetime that the usage tells, else of one that only the request knows."""
    if not _writes_told(usage):
        return {}
    details = usage.inside("prompt_tokens_details")
    by_lifetime = {
        "cache_write_5m": _ephemeral(usage, details, "5m"),
        "cache_write_1h": _ephemeral(usage, details, "1h"),
    }
    split = {name: count for name, count in by_lifetime.items() if count is not None}
    written = _agreed(
        usage,
        "written tokens",
        {
            **{place: details.count(name) for place, name in _WRITTEN.items()},
            "cache_creation_input_tokens": usage.count("cache_creation_input_tokens"),
            "the sum by lifetime": sum(split.values()) if split else None,
        },
    )
    if split:
        return split
    half_hour, half_day, unknown = split_writes(details, written)
    return {"cache_write_30m": half_hour, "cache_write_12h": half_day, "cache_write_unknown": unknown}


def _ephemeral(usage: UsageFields, details: UsageFields, lifetime: str) -> int | None:
    """The three places in which imitations keep Anthropic's split; they must agree."""
    name = f"ephemeral_{lifetime}_input_tokens"
    inner = "cache_creation_token_details"
    places = {
        "cache_creation": usage.inside("cache_creation").count(name),
        "prompt_tokens_details.cache_creation": details.inside("cache_creation").count(name),
        f"prompt_tokens_details.{inner}": details.inside(inner).count(name),
    }
    if all(count is None for count in places.values()):
        return None
    return _agreed(usage, f"tokens written for {lifetime}", places)


def _output(usage: UsageFields, prompt: int) -> tuple[int, int]:
    """Output with its reasoning inside, and the reasoning. Which reading holds is what makes the total come out."""
    predicted = usage.inside("timings").count("predicted_n")
    completion = usage.count("completion_tokens") if predicted is not None else usage.needed("completion_tokens")
    if completion is None:
        return predicted or 0, 0
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
