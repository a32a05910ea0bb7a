"""The prompt caches of the providers, by name: what a model's registry entry refers to."""

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
        write_class={"5m": "cache_write_5m", "1h": "cache_write_1h"},
    )


_ALL = (
    _anthropic(512),
    _anthropic(1024),
    _anthropic(2048),
    _anthropic(4096),
    # Stated: an entry goes after 5 to 10 idle minutes and may live up to an hour in quiet times. Ten minutes is the
    # stated end of what can be relied on; a hit after it is still a hit.
    CachePolicy(
        name="openai-1024",
        matching="prefix",
        lifetimes={"10m": timedelta(minutes=10), "24h": timedelta(hours=24)},
        default_lifetime="10m",
        minimum_tokens=1024,
        multiple=128,
    ),
    CachePolicy(
        name="openai-30m",
        matching="breakpoints",
        lifetimes={"30m": timedelta(minutes=30), "12h": timedelta(hours=12)},
        default_lifetime="30m",
        minimum_tokens=1024,
        write_class={"30m": "cache_write_30m", "12h": "cache_write_12h"},
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
    CachePolicy(name="none", matching="none", lifetimes={}, default_lifetime=None),
)

POLICIES: Mapping[str, CachePolicy] = MappingProxyType({policy.name: policy for policy in _ALL})
"""anthropic-N: breakpoints, prompts from N tokens on, 5 minutes (the default) or 1 hour. openai-1024: any prefix in
steps of 128, writes free, models up to 5.5. openai-30m: breakpoints, charged writes, models from 5.6 on. deepseek: any
prefix in units of 64, writes free. none: nothing is ever cached."""


def charged_classes(policy: CachePolicy) -> tuple[str, ...]:
    """The token classes that calls under this policy can be billed in: what a price card must cover."""
    read = () if policy.matching == "none" else ("cache_read",)
    return ("input", *read, *policy.write_class.values(), "output")
