"""OpenRouter's record of a generation (GET /generation): the provider's own counts under `native_tokens_*`.

What was written to a cache is inside the prompt and is not told; the bill that stands beside may tell it.
"""

from collections.abc import Mapping

from cost_model.tokens import Tokens
from cost_model.usage.fields import UsageFields
from cost_model.usage.reading import Counted

NAME = "openrouter_generation"


def fits(raw: Mapping[str, object]) -> bool:
    return "native_tokens_prompt" in raw


def count(usage: UsageFields) -> Counted:
    """Tokens of one generation in the model's own count; what was cached lies inside the prompt. Raises UsageError."""
    prompt, output = usage.needed("native_tokens_prompt"), usage.needed("native_tokens_completion")
    read = usage.count("native_tokens_cached") or 0
    reasoning = usage.count("native_tokens_reasoning") or 0
    if read > prompt:
        raise usage.error(f"native_tokens_cached ({read}) exceed native_tokens_prompt ({prompt})")
    if reasoning > output:
        raise usage.error(f"native_tokens_reasoning ({reasoning}) exceed native_tokens_completion ({output})")
    tokens = Tokens(input=prompt - read, cache_read=read, output=output, reasoning=reasoning)
    return Counted(tokens, written_told=False)
