"""The commonest usages, read in a fraction of the time: for millions of stored ones.

A usage is plain when its fields are those that the APIs themselves send, each a whole number, and nothing in it alters
a price. Whatever holds more, or does not add up, is for `read_usage`. There is one way to read a usage, and this is a
short cut through it: for a plain one both give the same.
"""

from collections.abc import Callable, Mapping
from typing import Any

from cost_model.usage.fields import MOST_TOKENS
from cost_model.usage.modifiers import MODIFIERS, ORDINARY

Counts = tuple[int, int, int, int, int, int, int, int, int]
"""The fields of Tokens, in their order."""

# Below, types are compared and not asked for: neither True nor 1.0 is a count, though they add up like one.


def plain_counts(api: str, raw: Mapping[str, Any]) -> Counts | None:
    """The tokens of a plain usage, which tells nothing beside them; None for any other: read that with `read_usage`."""
    read = _PLAIN.get(api)
    if read is None:
        return None
    try:
        found = read(raw)
        if found is None or min(found) < 0 or sum(found) - found[8] > MOST_TOKENS or found[8] > found[7]:
            return None
    except (AttributeError, KeyError, TypeError):
        # Something is missing, or null, or text where a number is usual.
        return None
    return found


_NOTHING: Mapping[str, Any] = {}
_ANTHROPIC = frozenset(
    {
        "input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "cache_creation",
        *MODIFIERS,
    }
)  # fmt: skip
_WRITES = frozenset({"ephemeral_5m_input_tokens", "ephemeral_1h_input_tokens"})
_CHAT = frozenset(
    {
        "prompt_tokens", "completion_tokens", "total_tokens", "prompt_tokens_details", "completion_tokens_details",
        "prompt_cache_hit_tokens", "prompt_cache_miss_tokens", *MODIFIERS,
    }
)  # fmt: skip
_RESPONSES = frozenset(
    {"input_tokens", "input_tokens_details", "output_tokens", "output_tokens_details", "total_tokens", *MODIFIERS}
)
_OF_PROMPT = frozenset({"cached_tokens", "audio_tokens"})
_OF_OUTPUT = frozenset(
    {"reasoning_tokens", "audio_tokens", "accepted_prediction_tokens", "rejected_prediction_tokens"}
)  # fmt: skip


def _anthropic(raw: Mapping[str, Any]) -> Counts | None:
    split = raw.get("cache_creation", _NOTHING)
    if not (raw.keys() <= _ANTHROPIC and split.keys() <= _WRITES and _ordinary(raw)):
        return None
    fresh, output, read = raw["input_tokens"], raw["output_tokens"], raw.get("cache_read_input_tokens", 0)
    written = raw.get("cache_creation_input_tokens", 0)
    short, long = split.get("ephemeral_5m_input_tokens", 0), split.get("ephemeral_1h_input_tokens", 0)
    if not type(fresh) is type(output) is type(read) is type(written) is type(short) is type(long) is int:
        return None
    if not split:
        return fresh, read, 0, 0, 0, 0, written, output, 0
    return (fresh, read, short, 0, long, 0, 0, output, 0) if short + long == written else None


def _chat(raw: Mapping[str, Any]) -> Counts | None:
    of_prompt, of_output = raw.get("prompt_tokens_details", _NOTHING), raw.get("completion_tokens_details", _NOTHING)
    prompt, output = raw["prompt_tokens"], raw["completion_tokens"]
    hit, miss = raw.get("prompt_cache_hit_tokens"), raw.get("prompt_cache_miss_tokens")
    if hit is None and miss is None:
        hit = of_prompt.get("cached_tokens", 0)
    elif not type(hit) is type(miss) is int or hit + miss != prompt:
        return None
    if not raw.keys() <= _CHAT or of_prompt.get("cached_tokens", hit) != hit:
        return None
    return _inclusive(raw, of_prompt, of_output, prompt, hit, output)


def _responses(raw: Mapping[str, Any]) -> Counts | None:
    of_prompt, of_output = raw.get("input_tokens_details", _NOTHING), raw.get("output_tokens_details", _NOTHING)
    if not raw.keys() <= _RESPONSES:
        return None
    read = of_prompt.get("cached_tokens", 0)
    return _inclusive(raw, of_prompt, of_output, raw["input_tokens"], read, raw["output_tokens"])


def _inclusive(
    raw: Mapping[str, Any],
    of_prompt: Mapping[str, Any],
    of_output: Mapping[str, Any],
    prompt: int,
    read: int,
    output: int,
) -> Counts | None:
    """What was read lies inside the prompt, reasoning inside the output, and the total is both."""
    if not (of_prompt.keys() <= _OF_PROMPT and of_output.keys() <= _OF_OUTPUT and _ordinary(raw)):
        return None
    reasoning = of_output.get("reasoning_tokens", 0)
    cached = of_prompt.get("cached_tokens", 0)
    if not type(prompt) is type(read) is type(cached) is type(output) is type(reasoning) is int:
        return None
    total = raw.get("total_tokens", prompt + output)
    if type(total) is not int or total != prompt + output:
        return None
    return prompt - read, read, 0, 0, 0, 0, 0, output, reasoning


def _ordinary(raw: Mapping[str, Any]) -> bool:
    """Whether nothing tells of another price than the ordinary one."""
    # A loop, because this is asked for every call.
    for name in MODIFIERS:  # noqa: SIM110
        if name in raw and raw[name] not in ORDINARY:
            return False
    return True


_PLAIN: Mapping[str, Callable[[Mapping[str, Any]], Counts | None]] = {
    "anthropic_messages": _anthropic,
    "openai_chat": _chat,
    "openai_responses": _responses,
}
