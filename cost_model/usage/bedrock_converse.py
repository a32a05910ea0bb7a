"""Usage of Bedrock's Converse API: input, cache reads and cache writes add up, as the total says."""

from collections.abc import Mapping

from cost_model.tokens import Tokens
from cost_model.usage.fields import UsageFields
from cost_model.usage.reading import Counted

NAME = "bedrock_converse"

MOST_DETAILS = 100


def fits(raw: Mapping[str, object]) -> bool:
    return "inputTokens" in raw or "outputTokens" in raw


def count(usage: UsageFields) -> Counted:
    """Tokens of one answer; what was read and written lies beside `inputTokens`. Raises UsageError."""
    fresh, output = usage.needed("inputTokens"), usage.needed("outputTokens")
    read = _either(usage, "cacheReadInputTokens", "cacheReadInputTokenCount")
    written = _either(usage, "cacheWriteInputTokens", "cacheWriteInputTokenCount")
    total = usage.count("totalTokens")
    if total is not None and total != fresh + read + written + output:
        if total != fresh + output:
            raise usage.error(
                f"totalTokens ({total}) fits neither the sum of all classes ({fresh} + {read} + {written} + {output}) "
                f"nor input + output ({fresh} + {output})"
            )
        if read + written > fresh:
            raise usage.error(f"cached and written tokens ({read + written}) exceed inputTokens ({fresh})")
        fresh -= read + written
    by_lifetime = _by_lifetime(usage, written)
    return Counted(Tokens(input=fresh, cache_read=read, output=output, **by_lifetime))


def _either(usage: UsageFields, name: str, older: str) -> int:
    told = {count for count in (usage.count(name), usage.count(older)) if count is not None}
    if len(told) > 1:
        raise usage.error(f"{name} and {older} disagree")
    return told.pop() if told else 0


def _by_lifetime(usage: UsageFields, written: int) -> dict[str, int]:
    details = usage.raw.get("cacheDetails")
    if details is None or details == []:
        return {"cache_write_unknown": written}
    if not isinstance(details, list) or len(details) > MOST_DETAILS:
        raise usage.error(f"cacheDetails must be a list of at most {MOST_DETAILS}, not {type(details).__name__}")
    counts = {"cache_write_5m": 0, "cache_write_1h": 0}
    for number, detail in enumerate(details):
        if not isinstance(detail, Mapping):
            raise usage.error(f"cacheDetails[{number}] must be an object, not {type(detail).__name__}")
        name = f"cache_write_{str(detail.get('ttl'))[:10]}"
        if name not in counts:
            raise usage.error(f"cacheDetails[{number}].ttl must be 5m or 1h, not {str(detail.get('ttl'))[:10]!r}")
        counts[name] += UsageFields(detail, usage.raw, f"cacheDetails[{number}].").needed("inputTokens")
    if sum(counts.values()) != written:
        raise usage.error(f"cacheDetails add up to {sum(counts.values())}, cacheWriteInputTokens says {written}")
    return counts
