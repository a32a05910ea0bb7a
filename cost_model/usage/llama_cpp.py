"""The `timings` of a llama.cpp server, where no usage stands beside them: `prompt_n` is without what was cached."""

from collections.abc import Mapping

from cost_model.tokens import Tokens
from cost_model.usage.fields import UsageFields
from cost_model.usage.reading import Counted

NAME = "llama_cpp"


def fits(raw: Mapping[str, object]) -> bool:
    return "timings" in raw and not any(name in raw for name in ("prompt_tokens", "completion_tokens", "input_tokens"))


def count(usage: UsageFields) -> Counted:
    """Tokens of one completion. An older server does not tell what was cached: then `cache_read` is untold.
    Raises UsageError."""
    timings = usage.inside("timings")
    cached = timings.count("cache_n")
    tokens = Tokens(input=timings.needed("prompt_n"), cache_read=cached or 0, output=timings.needed("predicted_n"))
    return Counted(tokens, untold=frozenset() if cached is not None else frozenset({"cache_read"}))
