"""Which prompt cache a model has, by its public name: for calls that come from a log and from no models file."""

import re
from collections.abc import Sequence

_MAKER = re.compile(r"^(?:[a-z0-9_-]+[:/])*(?:(?:[a-z-]{2,12}\.)?(?:anthropic|mistral|deepseek|openai|qwen)\.)?")
"""A provider before the name: openrouter:z-ai/glm-5.3, eu.anthropic.claude-..."""

_DATE = re.compile(r"[-@](?:20\d{6}|20\d\d-\d\d-\d\d|latest)(?:-v\d+(?::\d+)?)?$|-v\d+(?::\d+)?$")
"""A release behind the name: claude-haiku-4-5-20251001, gpt-5-2025-08-07."""

_FAMILIES: Sequence[tuple[str, str]] = (
    (r"claude-(opus-4-[56]|haiku-4-5)", "anthropic-4096"),
    (r"claude-(opus-4-7|3-haiku|3-5-haiku)", "anthropic-2048"),
    (r"claude-(opus-4(-[018])?|sonnet-4(-[056])?|sonnet-5|3-opus|3-(5-|7-)?sonnet)", "anthropic-1024"),
    (r"claude-(opus-5|fable-5|[a-z]+-5-[1-9])", "anthropic-512"),
    (r"gpt-(5\.[6-9]|6).*", "openai-30m"),
    (r"gpt-5\.5.*", "openai-24h"),
    (r"(gpt-(4o|4\.1|5|5\.[1-4])|o[134])(-.*)?", "openai-1024"),
    (r"deepseek-.*", "deepseek"),
    (r"gemini-(2\.5|3)-flash.*", "gemini-1024"),
    (r"gemini-(3\.[5-8]-flash|3\.1-pro|4-argon).*", "gemini-4096"),
    (r"kimi-k3.*", "kimi"),
    (r"kimi-.*", "kimi-implicit"),
    (r"qwen.*-marks", "qwen-explicit"),
    (r"qwen.*", "qwen-implicit"),
    (r"glm-.*", "glm"),
    (r"grok-.*", "xai"),
    (r"(mistral|ministral|magistral|codestral|devstral)-.*", "mistral"),
    (r"self-hosted|local(-.*)?", "prefix-16"),
)
"""The first that fits the whole name. Minimums and lifetimes: see `cost_model.policies`."""


def cache_of(model: str, api: str | None = None) -> str | None:
    """The name of a policy of `cost_model.policies.POLICIES`, None where the model's name does not decide.

    `api`: a name of `cost_model.usage.SHAPES`. Two things no name tells: whether a Qwen request marked its parts
    (taken: it did not), and who else a gateway asks under the name of a model.
    """
    if api == "llama_cpp":
        return "prefix-16"
    name = _DATE.sub("", _MAKER.sub("", model.lower()))
    if name.startswith("claude-"):
        name = name.replace(".", "-")
    found = next((policy for family, policy in _FAMILIES if re.fullmatch(family, name)), None)
    return "openai-30m-chat" if found == "openai-30m" and api == "openai_chat" else found
