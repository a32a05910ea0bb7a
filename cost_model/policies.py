"""The prompt caches of the providers, by name: what a model's registry entry refers to.

Lifetimes and minimums are as the providers' documentation states them in November 2026; what it does not state, or
was only measured by others, is marked assumed.
"""

from collections.abc import Mapping
from datetime import timedelta
from types import MappingProxyType

from cost_model.policy import CachePolicy


def _anthropic(minimum_tokens: int) -> CachePolicy:
    return CachePolicy(
        name=f"anthropic-{minimum_tokens}",
        matching="breakpoints",
        lifetimes={"5m": timedelta(minutes=5), "1h": timedelta(hours=1)},
        default_lifetime="5m",
        minimum_tokens=minimum_tokens,
        look_back_blocks=20,
        write_class={"5m": "cache_write_5m", "1h": "cache_write_1h"},
    )


def _unpromised(name: str, *, minimum_tokens: int = 0, multiple: int = 1) -> CachePolicy:
    """A cache of any prefix, with free writes, whose provider states no lifetime: every loss is an eviction."""
    return CachePolicy(
        name=name,
        matching="prefix",
        lifetimes={},
        default_lifetime=None,
        minimum_tokens=minimum_tokens,
        multiple=multiple,
    )


_ALL = (
    # 512: Opus 5, Fable 5 and everything from 5.1 on. 1,024: Sonnet 4.5, 4.6 and 5, Opus 4.8. 2,048: Opus 4.7.
    # 4,096: Opus 4.5 and 4.6, Haiku 4.5. A shorter prompt is no error and not cached.
    _anthropic(512),
    _anthropic(1024),
    _anthropic(2048),
    _anthropic(4096),
    # Stated: an entry goes after 5 to 10 idle minutes and may live up to an hour in quiet times. Ten minutes is the
    # stated end of what can be relied on; a hit after it is still a hit. 24h is stated as a maximum, not a promise.
    CachePolicy(
        name="openai-1024",
        matching="prefix",
        lifetimes={"10m": timedelta(minutes=10), "24h": timedelta(hours=24)},
        default_lifetime="10m",
        minimum_tokens=1024,
        multiple=128,
    ),
    # gpt-5.5 knows the long retention only.
    CachePolicy(
        name="openai-24h",
        matching="prefix",
        lifetimes={"24h": timedelta(hours=24)},
        default_lifetime="24h",
        minimum_tokens=1024,
        multiple=128,
    ),
    # Matches are exact, at breakpoints; no look back is stated.
    CachePolicy(
        name="openai-30m",
        matching="breakpoints",
        lifetimes={"30m": timedelta(minutes=30), "12h": timedelta(hours=12)},
        default_lifetime="30m",
        minimum_tokens=1024,
        write_class={"30m": "cache_write_30m", "12h": "cache_write_12h"},
    ),
    # Chat completions of the same models take no other lifetime.
    CachePolicy(
        name="openai-30m-chat",
        matching="breakpoints",
        lifetimes={"30m": timedelta(minutes=30)},
        default_lifetime="30m",
        minimum_tokens=1024,
        write_class={"30m": "cache_write_30m"},
    ),
    # Stated: entries on disk are cleared a few hours to a few days after their last use. The short end is taken.
    CachePolicy(
        name="deepseek",
        matching="prefix",
        lifetimes={"4h": timedelta(hours=4)},
        default_lifetime="4h",
        minimum_tokens=64,
        multiple=64,
    ),
    # Implicit caches. The minimums are stated (1,024 for 2.5 and 3 Flash, 4,096 for 3.5 to 3.8 Flash and 3.1 Pro);
    # steps and lifetimes are not.
    _unpromised("gemini-1024", minimum_tokens=1024),
    _unpromised("gemini-4096", minimum_tokens=4096),
    # Writes are billed without having been asked for: at the price of input for 5 minutes, at twice that for an hour.
    # A hit refreshes the entry for free. Usage does not tell a write's lifetime: the request does. Steps of 256 and
    # nothing below 256 are assumed (measured by others, on another endpoint of the same provider).
    CachePolicy(
        name="kimi",
        matching="prefix",
        lifetimes={"5m": timedelta(minutes=5), "1h": timedelta(hours=1)},
        default_lifetime="5m",
        minimum_tokens=256,
        multiple=256,
        write_class={"5m": "cache_write_5m", "1h": "cache_write_1h"},
    ),
    # Older Kimi models: automatic, writes free, no lifetime stated; the steps assumed as above.
    _unpromised("kimi-implicit", minimum_tokens=256, multiple=256),
    # Marks as at Anthropic, one lifetime, refreshed by a hit, and a look back over 20 parts.
    CachePolicy(
        name="qwen-explicit",
        matching="breakpoints",
        lifetimes={"5m": timedelta(minutes=5)},
        default_lifetime="5m",
        minimum_tokens=1024,
        look_back_blocks=20,
        write_class={"5m": "cache_write_5m"},
    ),
    # Where no part is marked. Earlier pages stated a minimum of 256; the latest says 1,024. Steps assumed.
    _unpromised("qwen-implicit", minimum_tokens=1024),
    # No minimum, step or lifetime is stated.
    _unpromised("glm"),
    # Entries stand on one server each: `prompt_cache_key` leads back to it. 64-token steps assumed.
    _unpromised("xai", minimum_tokens=64, multiple=64),
    # Only with `prompt_cache_key`; steps of 64 as documented, no lifetime.
    _unpromised("mistral", minimum_tokens=64, multiple=64),
    # A server of one's own: llama.cpp reads token by token, vLLM in blocks of 16, and both compute the last token
    # afresh. Nothing expires there; what the memory has no room for is evicted.
    _unpromised("prefix-16", minimum_tokens=16, multiple=16),
    CachePolicy(name="none", matching="none", lifetimes={}, default_lifetime=None),
)

POLICIES: Mapping[str, CachePolicy] = MappingProxyType({policy.name: policy for policy in _ALL})
"""anthropic-N: breakpoints, prompts from N tokens on, 5 minutes (the default) or 1 hour. openai-1024, openai-24h: any
prefix in steps of 128, writes free, models up to 5.4 and 5.5. openai-30m (Responses), openai-30m-chat: breakpoints,
charged writes, models from 5.6 on. deepseek: any prefix in units of 64, writes free. kimi: any prefix, charged writes.
qwen-explicit: breakpoints, charged writes. gemini-N, kimi-implicit, qwen-implicit, glm, xai, mistral: any prefix,
writes free, no lifetime stated. prefix-16: a server of one's own. none: nothing is ever cached."""


def charged_classes(policy: CachePolicy) -> tuple[str, ...]:
    """The token classes that calls under this policy can be billed in: what a price card must cover."""
    read = () if policy.matching == "none" else ("cache_read",)
    return ("input", *read, *policy.write_class.values(), "output")
