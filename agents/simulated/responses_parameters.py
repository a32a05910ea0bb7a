"""Top-level parameters of the OpenAI Responses protocol, by the provider's rules."""

from collections.abc import Mapping
from typing import Any

from agents.simulated.breakpoints import cache_options
from agents.simulated.errors import Refused
from agents.simulated.openai_parameters import check_flags, check_numbers, check_stream_options
from agents.simulated.openai_refusals import moved, unknown, unsupported, wrong_type, wrong_value
from agents.simulated.persona import Persona
from agents.simulated.wire_rules import whole

Settings = dict[str, Any]

# fmt: off
TAKEN = frozenset((
    "model", "input", "instructions", "tools", "tool_choice", "parallel_tool_calls", "stream", "stream_options",
    "max_output_tokens", "temperature", "top_p", "metadata", "store", "include", "reasoning", "text", "truncation",
    "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention", "safety_identifier", "service_tier", "user",
))
# fmt: on
# fmt: off
NOT_SIMULATED = frozenset((
    "access_programs", "background", "background_options", "context_management", "conversation", "image",
    "max_tool_calls", "moderation", "previous_response_id", "prompt", "top_logprobs",
))
# fmt: on
_MOVED = {
    "messages": "input",
    "max_tokens": "max_output_tokens",
    "max_completion_tokens": "max_output_tokens",
    "response_format": "text.format",
    "reasoning_effort": "reasoning.effort",
    "verbosity": "text.verbosity",
}
LEAST_OUTPUT = 16
"""The smallest max_output_tokens that is taken."""

ENCRYPTED = "reasoning.encrypted_content"

_INCLUDABLE = frozenset((ENCRYPTED, "message.output_text.logprobs", "message.input_image.image_url"))


def check_parameters(document: Mapping[str, object], persona: Persona) -> int:
    """Top-level parameters; returns the bound on the answer's tokens. Raises Refused."""
    for name in document:
        if name not in TAKEN:
            if name in _MOVED:
                raise moved(name, _MOVED[name])
            if name in NOT_SIMULATED:
                raise unsupported(name, "by simulated models")
            raise unknown(name)
        if name in persona.refuses:
            raise unsupported(name, "with this model")
    if document.get("prompt_cache_retention") is not None and persona.marking is None:
        raise unsupported("prompt_cache_retention", "by simulated models")
    check_flags(document, ("stream", "parallel_tool_calls", "store"))
    check_numbers(document)
    check_stream_options(document, "include_obfuscation")
    cache_options(document, persona, "openai_responses")
    include = document.get("include") or []
    if not isinstance(include, list):
        raise wrong_type("include", "an array of strings")
    for number, wanted in enumerate(include):
        if wanted not in _INCLUDABLE:
            raise wrong_value(f"include[{number}]", wanted, *sorted(_INCLUDABLE))
    if document.get("truncation") not in (None, "disabled"):
        raise unsupported("truncation", "by simulated models unless it is 'disabled'")
    if document.get("max_output_tokens") is None:
        return persona.max_output_tokens
    bound = whole(document["max_output_tokens"])
    if bound is None:
        raise wrong_type("max_output_tokens", "an integer")
    if bound < LEAST_OUTPUT:
        raise Refused(
            f"Invalid 'max_output_tokens': integer below minimum value. Expected a value >= {LEAST_OUTPUT}, but got "
            f"{bound} instead.",
            param="max_output_tokens",
            code="integer_below_min_value",
        )
    if bound > persona.max_output_tokens:
        raise Refused(
            f"Invalid 'max_output_tokens': integer above maximum value. Expected a value <= "
            f"{persona.max_output_tokens}, but got {bound} instead.",
            param="max_output_tokens",
            code="integer_above_max_value",
        )
    return bound


def settings(document: Mapping[str, object]) -> tuple[Settings, Settings]:
    """`text` and `reasoning`, checked; empty when they are not given. Raises Refused."""
    text, reasoning = _object(document, "text"), _object(document, "reasoning")
    for key in text:
        if key not in ("format", "verbosity"):
            raise unknown(f"text.{key}")
    for key in reasoning:
        if key not in ("effort", "summary", "context", "generate_summary"):
            raise unknown(f"reasoning.{key}")
    if text.get("verbosity") not in (None, "low", "medium", "high"):
        raise wrong_value("text.verbosity", text["verbosity"], "low", "medium", "high")
    if reasoning.get("summary") not in (None, "auto", "concise", "detailed"):
        raise wrong_value("reasoning.summary", reasoning["summary"], "auto", "concise", "detailed")
    return text, reasoning


def _object(document: Mapping[str, object], name: str) -> dict[str, object]:
    value = document.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise wrong_type(name, "an object")
    return value
