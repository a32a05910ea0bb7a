"""Where a cached prefix ends by the request's own word: OpenAI's breakpoints, and the rules of `cache_control` marks.

OpenAI, models from 5.6 on: a content part may carry `prompt_cache_breakpoint`; `prompt_cache_options` say whether an
implicit one is added at the end of the latest input message, and the lifetime of those that name none.
"""

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from agents.simulated.errors import Refused
from agents.simulated.openai_refusals import missing, not_on_this_model, unknown, wrong_type, wrong_value
from agents.simulated.persona import Persona, Protocol
from agents.simulated.prefix_cache import Mark
from agents.simulated.prompt import Prompt

MAX_MARKS = 4
"""`cache_control` marks in one request; one more is refused."""

MAX_WRITES = 4
"""Breakpoints that one request writes: the latest ones, the implicit one among them."""

MATCHED = 80
"""So many of the latest breakpoints are looked up."""

_INPUT = frozenset(("user", "system", "developer", "tool"))
_OPTIONS = frozenset(("mode", "ttl"))


class CacheOptions(NamedTuple):
    implicit: bool
    lifetime: str


class Chosen(NamedTuple):
    """Blocks to look up, in prompt order, and breakpoints to write."""

    places: Sequence[int]
    writes: Sequence[Mark]


def cache_options(document: Mapping[str, object], persona: Persona, protocol: Protocol) -> CacheOptions:
    """`prompt_cache_options`, checked. Raises Refused."""
    value = document.get("prompt_cache_options")
    breaks = persona.marking == "prompt_cache_breakpoint"
    if document.get("prompt_cache_retention") is not None and breaks:
        raise not_on_this_model("prompt_cache_retention")
    default = persona.policy.default_lifetime or ""
    if value is None:
        return CacheOptions(implicit=True, lifetime=default)
    if not breaks:
        raise not_on_this_model("prompt_cache_options")
    if not isinstance(value, dict):
        raise wrong_type("prompt_cache_options", "an object")
    for key in value:
        if key not in _OPTIONS:
            raise unknown(f"prompt_cache_options.{key}")
    mode, lifetime = value.get("mode", "implicit"), value.get("ttl", default)
    if mode not in ("implicit", "explicit"):
        raise wrong_value("prompt_cache_options.mode", mode, "implicit", "explicit")
    # Chat completions take the short lifetime alone.
    supported = [default] if protocol == "openai_chat" else list(persona.policy.lifetimes)
    if lifetime not in supported:
        raise wrong_value("prompt_cache_options.ttl", lifetime, *supported)
    return CacheOptions(mode == "implicit", str(lifetime))


def add_mark(part: Mapping[str, object], path: str, prompt: Prompt) -> None:
    """Takes the mark of a content part that was just added, if it has one. Its lifetime is empty when the request's
    is meant. Raises Refused."""
    name = prompt.persona.marking
    if name is None or part.get(name) is None:
        return
    mark, where = part[name], f"{path}.{name}"
    if not isinstance(mark, dict):
        raise wrong_type(where, "an object")
    policy, kind = prompt.persona.policy, "type" if name == "cache_control" else "mode"
    for key in mark:
        if key not in (kind, "ttl"):
            raise unknown(f"{where}.{key}")
    if kind not in mark:
        raise missing(f"{where}.{kind}")
    expected = "ephemeral" if name == "cache_control" else "explicit"
    if mark[kind] != expected:
        raise wrong_value(f"{where}.{kind}", mark[kind], expected)
    lifetime = mark.get("ttl")
    if lifetime is not None and lifetime not in policy.lifetimes:
        raise wrong_value(f"{where}.ttl", lifetime, *policy.lifetimes)
    inherited = (policy.default_lifetime or "") if name == "cache_control" else ""
    prompt.marks.append(Mark(len(prompt.chain.links) - 1, inherited if lifetime is None else str(lifetime), where))


def check_marks(marks: Sequence[Mark]) -> None:
    """The rules of `cache_control` marks, in prompt order. Raises Refused."""
    if len(marks) > MAX_MARKS:
        raise Refused(f"A maximum of {MAX_MARKS} blocks with cache_control may be provided. Found {len(marks)}.")
    shorter_before = False
    for mark in marks:
        if mark.lifetime == "1h" and shorter_before:
            raise Refused(
                f"{mark.path}.ttl: a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block. "
                "Note that blocks are processed in the following order: `tools`, `system`, `messages`."
            )
        shorter_before = shorter_before or mark.lifetime == "5m"


def chosen(prompt: Prompt, options: CacheOptions) -> Chosen:
    """What OpenAI looks up and writes. A breakpoint is looked up where one stands in this request: where a part is
    marked and, unless the mode is explicit, where an input message ends, for an implicit one may have stood there."""
    explicit = [mark._replace(lifetime=mark.lifetime or options.lifetime) for mark in prompt.marks]
    if not options.implicit:
        return Chosen([mark.block for mark in explicit[-MATCHED:]], explicit[-MAX_WRITES:])
    ends = (point.state.links - 1 for point in reversed(prompt.points) if point.role in _INPUT)
    latest = list(islice(ends, MATCHED))
    places = sorted({*latest, *(mark.block for mark in explicit)})[-MATCHED:]
    if not latest:
        return Chosen(places, explicit[-MAX_WRITES:])
    implicit = next((mark for mark in explicit if mark.block == latest[0]), Mark(latest[0], options.lifetime, ""))
    others = [mark for mark in explicit if mark.block != latest[0]]
    writes = sorted([*others[1 - MAX_WRITES :], implicit], key=lambda mark: mark.block)
    return Chosen(places, writes)
