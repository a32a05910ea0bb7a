"""Why prompt tokens were billed as they were: one vocabulary, one cause for each token of a call's prompt."""

from typing import Literal

Cause = Literal[
    "hit",
    "first_write",
    "growth",
    "expiry_rebuild",
    "change_rebuild",
    "eviction",
    "race",
    "below_minimum",
    "uncacheable",
    "output",
    "beside",
    "unknown",
]

HIT: Cause = "hit"
"""Read from the cache: the head of the prompt, up to the provider's own count."""

FIRST_WRITE: Cause = "first_write"
"""Sent for the first time, by the first call of its lane."""

GROWTH: Cause = "growth"
"""Sent for the first time, behind what the lane had sent before: the conversation became longer."""

EXPIRY_REBUILD: Cause = "expiry_rebuild"
"""Sent before, unaltered, but nobody touched it for longer than its lifetime, so it was billed again."""

CHANGE_REBUILD: Cause = "change_rebuild"
"""Lies within what the lane had sent before, but something at or before it was altered, so it was billed again."""

EVICTION: Cause = "eviction"
"""Sent before, unaltered, in time and readable, and yet the provider missed it."""

RACE: Cause = "race"
"""Sent before, but the call that wrote it had not begun to answer when this one started: nothing to read yet."""

BELOW_MINIMUM: Cause = "below_minimum"
"""The prompt, or the part of it that was sent before, is too short for the provider to cache."""

UNCACHEABLE: Cause = "uncacheable"
"""Could not be read: nothing is ever cached here, the rest is smaller than the steps in which the cache reads, or its
end lies more blocks back than the cache looks."""

OUTPUT: Cause = "output"
"""What the model wrote. Not a cause of the prompt; it stands here so that every charge has one."""

BESIDE: Cause = "beside"
"""Billed beside the call's own prompt and answer: another model's tokens (an advisor's), searches, storage."""

UNKNOWN: Cause = "unknown"
"""The call's usage never came: its prompt may have cost anything between the charge's low and high."""

REBUILDS: frozenset[Cause] = frozenset({EXPIRY_REBUILD, CHANGE_REBUILD, EVICTION, RACE})
"""Causes whose tokens had been sent before and could have been read: what they cost over a read is excess."""
