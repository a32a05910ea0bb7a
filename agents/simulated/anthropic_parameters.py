"""Top-level parameters of the Anthropic Messages protocol, by the provider's rules."""

from collections.abc import Mapping

from agents.simulated.errors import Refused
from agents.simulated.persona import EFFORTS, Persona
from agents.simulated.wire_rules import whole

# fmt: off
TAKEN = frozenset((
    "model", "max_tokens", "messages", "system", "tools", "tool_choice", "stream", "temperature", "top_p",
    "top_k", "metadata", "service_tier", "thinking", "cache_control", "output_config",
))
# fmt: on
# fmt: off
NOT_SIMULATED = frozenset((
    "stop_sequences", "container", "context_management", "inference_geo", "output_format", "mcp_servers", "speed",
))
# fmt: on
SETTINGS = ("tool_choice", "thinking", "output_config")
"""Changing these spoils what is cached of the messages, not of tools and system text."""

_WORDS = ("low", "medium", "high", "xhigh", "max")


def check_parameters(document: Mapping[str, object], persona: Persona) -> int:
    """Returns max_tokens. Raises Refused."""
    for name in document:
        if name not in TAKEN:
            if name in NOT_SIMULATED:
                raise Refused(f"{name}: not supported by simulated models")
            raise Refused(f"{name}: Extra inputs are not permitted")
        if name in persona.refuses:
            raise Refused(f"`{name}` is not supported by this model.")
    if "max_tokens" not in document:
        raise Refused("max_tokens: Field required")
    max_tokens = whole(document["max_tokens"])
    if max_tokens is None or max_tokens < 0:
        raise Refused("max_tokens: Input should be a whole number greater than or equal to 0")
    if max_tokens > persona.max_output_tokens:
        raise Refused(
            f"max_tokens: {max_tokens} > {persona.max_output_tokens}, which is the maximum allowed number of output "
            f"tokens for {persona.model}"
        )
    if not isinstance(document.get("stream", False), bool):
        raise Refused("stream: Input should be a valid boolean")
    for name, upper in (("temperature", 1), ("top_p", 1)):
        value = document.get(name, 0)
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= upper:
            raise Refused(f"{name}: Input should be a number from 0 to {upper}")
    if "top_k" in document and whole(document["top_k"]) is None:
        raise Refused("top_k: Input should be a valid integer")
    if document.get("service_tier", "auto") not in ("auto", "standard_only"):
        raise Refused("service_tier: Input should be 'auto' or 'standard_only'")
    if not isinstance(document.get("metadata", {}), dict):
        raise Refused("metadata: Input should be an object")
    thinks(document, persona)
    by_schema(document)
    return max_tokens


def thinks(document: Mapping[str, object], persona: Persona) -> float:
    """How many times its usual length the model thinks; 0 when the request disables it."""
    thinking = document.get("thinking", {"type": "adaptive"})
    if not isinstance(thinking, dict) or thinking.get("type") not in ("adaptive", "disabled"):
        raise Refused("thinking.type: Input should be 'adaptive' or 'disabled' for this model")
    kind = thinking["type"]
    for key in thinking:
        if key not in ("type", "display"):
            raise Refused(f"thinking.{kind}.{key}: Extra inputs are not permitted")
    if thinking.get("display") not in (None, "summarized"):
        raise Refused(f"thinking.{kind}.display: simulated models show their thinking, as 'summarized' asks")
    word = _output_config(document).get("effort")
    if word is not None and (word not in _WORDS or not persona.takes_effort(word)):
        known = ", ".join(f"'{name}'" for name in _WORDS if persona.takes_effort(name))
        raise Refused(f"output_config.effort: Input should be one of {known or 'none: this model takes no effort'}")
    return 0.0 if kind == "disabled" else EFFORTS[str(word or "medium")]


def by_schema(document: Mapping[str, object]) -> bool:
    """Whether the answer has to follow a schema."""
    wanted = _output_config(document).get("format")
    if wanted is None:
        return False
    path = "output_config.format"
    if not isinstance(wanted, dict) or wanted.get("type") != "json_schema":
        raise Refused(f"{path}.type: Input should be 'json_schema'")
    schema = wanted.get("schema")
    if not isinstance(schema, dict):
        raise Refused(f"{path}.schema: Field required")
    if schema.get("type") == "object" and schema.get("additionalProperties") is not False:
        raise Refused(f"{path}.schema: For 'object' type, 'additionalProperties' must be explicitly set to false")
    return True


def _output_config(document: Mapping[str, object]) -> Mapping[str, object]:
    value = document.get("output_config", {})
    if not isinstance(value, dict):
        raise Refused("output_config: Input should be an object")
    for key in value:
        if key not in ("effort", "format"):
            raise Refused(f"output_config.{key}: Extra inputs are not permitted")
    return value
