"""Personas: how a simulated model talks, works and is billed. Data, read from YAML files.

A persona sets what is said, how long, how fast and how well, and the prices of the simulator's own bill. There is no
field by which it could set a usage figure: usage comes from bytes (tokenizer.py) and the cache (prefix_cache.py).
"""

import functools
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from agents.simulated.errors import SimulatorError
from agents.strict_yaml import LIMIT, FileKind, parse, read_file
from cost_model.policies import POLICIES, charged_classes
from cost_model.policy import CachePolicy

Protocol = Literal["anthropic_messages", "openai_chat", "openai_responses"]
Shape = Literal["anthropic", "openai", "deepseek"]
Probability = Annotated[float, Field(ge=0, le=1)]
Marking = Literal["cache_control", "prompt_cache_breakpoint"]
Price = Annotated[Decimal, Field(ge=0, allow_inf_nan=False)]

SMALLEST_UNIT = 16
"""Tokens: a cache that matches in smaller steps would be hashed link by link for nothing."""

EFFORTS: Mapping[str, float] = {
    "none": 0.0,
    "minimal": 0.25,
    "low": 0.5,
    "medium": 1.0,
    "high": 1.5,
    "xhigh": 2.0,
    "max": 3.0,
}
"""The words for effort, and how many times the usual length is thought then."""

_SHIPPED = Path(__file__).parent / "personas"

_PERSONAS = FileKind(
    SimulatorError,
    too_long=f"longer than {LIMIT:,} bytes; a persona is a short YAML file, see docs/simulated.md",
    too_deep="nested too deep; expected a mapping of a persona's fields, see docs/simulated.md",
    malformed="cannot be read as YAML: {}",
)


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Pace(_Part):
    """Seconds from the request's start to the first token, output tokens a second, seconds that one command takes."""

    first_token_s: float = Field(ge=0)
    tokens_per_s: float = Field(gt=0)
    tool_s: float = Field(ge=0)


class Words(_Part):
    """Mean length in words of what is said: beside each command, in a brief to a worker, in a report."""

    turn: int = Field(ge=0, le=2000)
    brief: int = Field(ge=1, le=4000)
    report: int = Field(ge=1, le=4000)


class Doing(_Part):
    """A visit that does the work: turns in all, of which so many explore and so many write the script in pieces.

    What is left after running it, cleaning up and submitting goes into looking at the result.
    """

    turns: int = Field(ge=8, le=200)
    explore: int = Field(ge=2, le=100)
    pieces: int = Field(ge=1, le=50)

    @model_validator(mode="after")
    def _turns_suffice(self) -> "Doing":
        if self.turns < self.needed:
            raise ValueError(f"turns must be at least explore + pieces + 4 = {self.needed}")
        return self

    def without_exploring(self) -> "Doing":
        """The rest of such a visit, of one who knows the place already."""
        return self.model_copy(update={"turns": self.turns - self.explore, "explore": 0})

    @property
    def needed(self) -> int:
        """Turns that leave room to run the script, look once, clean up and submit."""
        return self.explore + self.pieces + 4


class Planning(_Part):
    """A planner's turns before its first brief, and before each verdict on a report."""

    explore: int = Field(ge=2, le=100)
    check: int = Field(ge=1, le=50)


class Reviewing(_Part):
    """How a reviewer errs: the probability that it rejects wrong work, and that it rejects right work."""

    recall: Probability
    false_reject: Probability


class Thinking(_Part):
    """Mean tokens that are thought before an answer; the chance that half of it is redacted (Anthropic); whether a
    chat's tool loop without its reasoning_content is refused (the other protocols always demand theirs back)."""

    tokens: int = Field(default=0, ge=0, le=8000)
    redacted: Probability = 0.0
    demanded: bool = True


class Persona(_Part):
    """One simulated model. `model` is its id on the wire; one of openai_responses answers at chat completions too.

    `skill` is the probability that a first visit plays the task's right solution, `rework_skill` that a later one does;
    `rework_rates[k]` is the probability that the planner's check k asks for rework (after the last it approves).
    `refuses` names parameters of the protocol that this model answers with a 400; `efforts` are the words for effort
    that it takes (None: all). `parallel_calls` is the probability that a look comes with a second one in the same
    answer, `evicts` that a request finds all that was cached of its conversation forgotten before its time. `review` is
    how it errs as a reviewer (None: by its skill, see `reviewing`).
    """

    model: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")
    protocol: Protocol
    shape: Shape
    cache: str
    usd_per_mtok: Mapping[str, Price]
    context_tokens: int = Field(ge=1000)
    max_output_tokens: int = Field(ge=16)
    refuses: tuple[str, ...] = ()
    efforts: tuple[str, ...] | None = None
    thinking: Thinking = Thinking()
    parallel_calls: Probability = 0.0
    evicts: Probability = 0.0
    skill: Probability
    rework_skill: Probability
    rework_rates: tuple[Probability, ...] = Field(max_length=20)
    pace: Pace
    words: Words
    solo: Doing
    worker: Doing
    planner: Planning
    review: Reviewing | None = None

    @model_validator(mode="after")
    def _hangs_together(self) -> "Persona":
        if (self.protocol == "anthropic_messages") != (self.shape == "anthropic"):
            raise ValueError("shape anthropic belongs to protocol anthropic_messages, the others to openai_*")
        if self.protocol == "openai_responses" and self.shape != "openai":
            raise ValueError("protocol openai_responses tells usage in shape openai alone")
        if self.cache not in POLICIES:
            raise ValueError(f"cache must be one of {', '.join(sorted(POLICIES))}, not {self.cache!r}")
        policy = self.policy
        if not self._can_ask_for(policy):
            raise ValueError(f"cache {self.cache} matches by {policy.matching}, which {self.protocol} cannot ask for")
        if unknown := sorted(set(self.efforts or ()) - set(EFFORTS)):
            raise ValueError(f"efforts names {', '.join(unknown)}; known: {', '.join(EFFORTS)}")
        if policy.matching == "prefix" and policy.multiple < SMALLEST_UNIT:
            raise ValueError(f"cache {self.cache} matches in steps under {SMALLEST_UNIT} tokens: not simulated")
        if unknown := sorted(set(self.usd_per_mtok) - set(charged_classes(policy))):
            raise ValueError(f"usd_per_mtok names {', '.join(unknown)}, which cache {self.cache} never bills")
        for needed in charged_classes(policy):
            if needed not in self.usd_per_mtok:
                raise ValueError(f"usd_per_mtok has no price for {needed}, which cache {self.cache} can bill")
        return self

    def _can_ask_for(self, policy: CachePolicy) -> bool:
        if policy.matching != "breakpoints":
            return policy.matching == "none" or self.protocol != "anthropic_messages"
        if self.protocol == "anthropic_messages":
            return policy.lifetimes.keys() <= {"5m", "1h"}
        return self.protocol == "openai_chat" or "30m" in policy.lifetimes

    @property
    def policy(self) -> CachePolicy:
        return POLICIES[self.cache]

    @property
    def marking(self) -> Marking | None:
        """What a request marks the end of a cached prefix with; None where nothing is marked."""
        if self.policy.matching != "breakpoints":
            return None
        return "prompt_cache_breakpoint" if "30m" in self.policy.lifetimes else "cache_control"

    def speaks(self, protocol: Protocol) -> bool:
        return self.protocol == protocol or (self.protocol == "openai_responses" and protocol == "openai_chat")

    def takes_effort(self, word: object) -> bool:
        return isinstance(word, str) and word in EFFORTS and (self.efforts is None or word in self.efforts)

    @property
    def reviewing(self) -> Reviewing:
        """As it says itself; else who works with more skill also judges with more."""
        return self.review or Reviewing(recall=self.skill, false_reject=(1 - self.skill) / 2)

    def doing(self, role: str) -> Doing:
        """How it works in a role that does the task itself."""
        return self.worker if role == "worker" else self.solo


def load_personas(extra: Path | None = None) -> dict[str, Persona]:
    """The shipped personas and those of `extra` (a YAML file or a directory of them), by model id; the latter win.

    Raises SimulatorError naming file and field.
    """
    own: list[Path] = []
    if extra is not None:
        own = sorted(extra.glob("*.yaml")) if extra.is_dir() else [extra]
        if not own:
            raise SimulatorError(f"{extra}: no persona here; expected *.yaml files")
    return {persona.model: persona for persona in (*_shipped(), *map(_load, own))}


@functools.cache
def _shipped() -> tuple[Persona, ...]:
    return tuple(map(_load, sorted(_SHIPPED.rglob("*.yaml"))))


def _load(path: Path) -> Persona:
    _, data = parse(str(path), read_file(path, _PERSONAS), _PERSONAS)
    if not isinstance(data, dict):
        raise SimulatorError(f"{path}: expected a mapping of a persona's fields, see docs/simulated.md")
    try:
        return Persona.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"]) or "persona"
        reason = (
            "is no field of a persona (usage is computed from bytes, never set)"
            if first["type"] == "extra_forbidden"
            else first["msg"].removeprefix("Value error, ")
        )
        raise SimulatorError(f"{path}: {field}: {reason}; mend it as docs/simulated.md describes") from None
