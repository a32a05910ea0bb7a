"""Hires the roles of a topology: a model, a client, a lane and tools for each."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from importlib.resources import files

from agents.actions import told
from agents.bench import RoleBench
from agents.caller import Caller
from agents.clients import ClientOptions, connect
from agents.command_policy import CommandPolicy
from agents.context import Context, ContextPolicy
from agents.errors import RegistryError
from agents.handover import RoleDesign
from agents.keep_alive import KeepAlive
from agents.lane import Lane
from agents.limits import Limits
from agents.registry import ModelEntry, key_of
from agents.role import Role
from agents.seat import Seat
from agents.tools import Tool, handover_tool
from agents.tools.shelf import SHELF
from cost_model.policies import POLICIES

__all__ = ["Limits", "Role", "RoleModel", "Seat", "hire", "load_prompt"]


@dataclass(frozen=True, slots=True)
class RoleModel:
    """Who plays a role, and what is asked of it; None leaves a choice to the provider or the topology, sends no pings,
    lowers no limit of the seat, and forgets nothing.

    `lifetime` is a cache lifetime of the model's policy ("5m", "1h", "30m", ...), `effort` one of the entry's words.
    `prompt` is a text, `tools` are names of `agents.tools.shelf`, `command_policy` says which commands may run.
    `max_usd` and `max_tokens` are for the seat's guard to hold.
    """

    entry: ModelEntry
    lifetime: str | None = None
    effort: str | None = None
    temperature: float | None = None
    keep_alive: KeepAlive | None = None
    prompt: str | None = None
    tools: tuple[str, ...] | None = None
    max_turns: int | None = None
    max_output_tokens: int | None = None
    command_policy: CommandPolicy | None = None
    max_usd: Decimal | None = None
    max_tokens: int | None = None
    context: ContextPolicy | None = None


def load_prompt(name: str) -> str:
    """The text of agents/prompts/<name>.md. Raises FileNotFoundError when there is none."""
    return files("agents").joinpath("prompts", f"{name}.md").read_text(encoding="utf-8").strip()


def hire(
    designs: Sequence[RoleDesign],
    models: Mapping[str, RoleModel],
    seat: Seat,
    *,
    prompt_of: Callable[[str], str] = load_prompt,
) -> dict[str, Role]:
    """The roles by name, each at the head of its own lane, and recorded so.

    Raises RegistryError when a role has no model, a key is missing or the model's cache knows no such lifetime.
    """
    return {design.name: _hire_one(design, models, seat, prompt_of) for design in designs}


def _hire_one(design: RoleDesign, models: Mapping[str, RoleModel], seat: Seat, prompt_of: Callable[[str], str]) -> Role:
    if design.name not in models:
        raise RegistryError(
            f"role {design.name}: no model was given; there are models for {', '.join(models) or 'none'}"
        )
    model = models[design.name]
    entry, lifetime = model.entry, model.lifetime
    known = POLICIES[entry.cache].lifetimes
    if lifetime is not None and lifetime not in known:
        raise RegistryError(
            f"role {design.name}: {entry.name} has no cache lifetime {lifetime!r}; it has {', '.join(known) or 'none'}"
        )
    prompt = prompt_of(design.prompt) if model.prompt is None else model.prompt
    seat = replace(seat, limits=_limits(seat.limits, model))
    max_output_tokens = seat.limits.max_output_tokens
    names = design.tools if model.tools is None else model.tools
    tools: tuple[Tool, ...] = (*(SHELF[name].tool for name in names), *map(handover_tool, design.handovers))
    options = ClientOptions(
        max_output_tokens=max_output_tokens,
        cache_key=f"{seat.nonce}-{design.name}",
        lifetime=lifetime,
        effort=model.effort,
        temperature=model.temperature,
    )
    client = connect(entry, key=key_of(entry), options=options, http=seat.http)

    def open_lane(number: int) -> Lane:
        return client.open_lane(f"{design.name}-{number}", prompt, tools, seat.nonce)

    lane = open_lane(0)
    rendered = prompt if entry.actions == "tools" else f"{prompt}\n\n{told(entry.actions, tools)}"
    seat.record.role(design.name, lane.name, entry.name, rendered, client.tool_schemas(tools))
    caller = Caller(design.name, entry, lifetime, max_output_tokens, client, seat)
    bench = RoleBench(seat, model.command_policy)
    role = Role(design.name, caller, bench, open_lane, lane, tools, design.handovers, seat, design.one_answer)
    if model.context is not None:
        role.context = Context(model.context, client, load_prompt("compaction"))
    role.begin_lane(lane)
    if model.keep_alive is not None:
        caller.keep_alive(model.keep_alive)
    return role


def _limits(limits: Limits, model: RoleModel) -> Limits:
    answers = (limits.max_output_tokens, model.entry.limits.max_output_tokens, model.max_output_tokens)
    turns = (limits.max_turns, model.max_turns)
    return replace(
        limits,
        max_output_tokens=min(most for most in answers if most is not None),
        max_turns=min(most for most in turns if most is not None),
    )
