"""Usage of Gemini's own API. What was read from a cache is inside the prompt; thoughts and the prompts of tools stand
outside of both counts, and whether they do the total tells.

Hours for which an explicit cache was held are billed too and never told here.
"""

from collections.abc import Mapping

from cost_model.errors import OutputUntold
from cost_model.tokens import Tokens
from cost_model.usage.fields import UsageFields
from cost_model.usage.reading import Counted

NAME = "gemini"


def fits(raw: Mapping[str, object]) -> bool:
    return any(name in raw for name in ("promptTokenCount", "prompt_token_count", "totalTokenCount"))


def count(usage: UsageFields) -> Counted:
    """Tokens of one answer.

    The API writes JSON as protocol buffers do, without counts of zero: an absent one is zero. A total cannot be zero
    where there was a prompt: if it is absent too, somebody took fields out, and absent candidates may be any number.
    Raises OutputUntold.
    """
    prompt = _count(usage, "promptTokenCount", "prompt_token_count") or 0
    cached = _count(usage, "cachedContentTokenCount", "cached_content_token_count") or 0
    candidates = _count(usage, "candidatesTokenCount", "candidates_token_count")
    written = candidates or 0
    thoughts = _count(usage, "thoughtsTokenCount", "thoughts_token_count") or 0
    of_tools = _count(usage, "toolUsePromptTokenCount", "tool_use_prompt_token_count") or 0
    total = _count(usage, "totalTokenCount", "total_token_count")
    # By the documentation first, then the readings of older and other servers.
    readings = (
        (prompt + of_tools, written + thoughts),
        (prompt, written + thoughts),
        (prompt + of_tools, written),
        (prompt, written),
    )
    for whole_prompt, output in readings:
        inside = of_tools <= whole_prompt and thoughts <= output
        if inside and (total is None or total == whole_prompt + output):
            break
    else:
        raise usage.error(
            f"totalTokenCount ({total}) fits no sum of prompt ({prompt}), tool prompts ({of_tools}), candidates "
            f"({written}) and thoughts ({thoughts})"
        )
    if cached > prompt:
        raise usage.error(f"cachedContentTokenCount ({cached}) exceeds promptTokenCount ({prompt})")
    tokens = Tokens(input=whole_prompt - cached, cache_read=cached, output=output, reasoning=thoughts)
    if candidates is None and total is None and tokens.prompt:
        message = (
            "usage: neither candidatesTokenCount nor totalTokenCount is there: how long the answer was is not told"
        )
        raise OutputUntold(message, usage.raw, tokens, _traffic(usage))
    return Counted(tokens, modifiers=_traffic(usage))


_TRAFFIC = {"ON_DEMAND_FLEX": "flex", "ON_DEMAND_PRIORITY": "priority", "PROVISIONED_THROUGHPUT": "provisioned"}


def _traffic(usage: UsageFields) -> dict[str, str]:
    """The tier, by the name that other APIs have for it."""
    told = usage.raw.get("trafficType", usage.raw.get("traffic_type"))
    return {"service_tier": _TRAFFIC[told]} if isinstance(told, str) and told in _TRAFFIC else {}


def _count(usage: UsageFields, wire: str, python: str) -> int | None:
    """A field by its name on the wire or the one that Google's Python library gives it."""
    told, other = usage.count(wire), usage.count(python)
    if told is not None and other is not None and told != other:
        raise usage.error(f"{wire} ({told}) and {python} ({other}) disagree")
    return other if told is None else told
