"""Who plays a role: what a spec says of it, found and checked."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from agents.command_policy import CommandPattern, CommandPolicy
from agents.crew import RoleModel
from agents.keep_alive import KeepAlive
from agents.tools.shelf import SHELF
from cost_model.break_even import PING_AHEAD
from cost_model.policies import POLICIES
from experiments.forgetting import context_policy
from experiments.spec import CommandPolicySpec, RoleSpec, SpecFile
from experiments.spec_mistakes import Place, near

if TYPE_CHECKING:
    from agents.registry import ModelEntry

MOST_PROMPT_BYTES = 256 << 10


def role_model(file: SpecFile, at: Place, wanted: RoleSpec, known: Mapping[str, "ModelEntry"]) -> RoleModel:
    """What the spec says at `at` of who plays a role, checked against the `known` models. Raises SpecError."""
    entry = known.get(wanted.model)
    if entry is None:
        raise file.error(
            at, f"unknown model {wanted.model!r}; {near(wanted.model, sorted(known))} (all: `fullchain models list`)"
        )
    lifetimes = POLICIES[entry.cache].lifetimes
    if wanted.lifetime is not None and wanted.lifetime not in lifetimes:
        raise file.error(
            (*at, "lifetime"),
            f"the cache of model {entry.name!r} ({entry.cache}) has no lifetime {wanted.lifetime!r}; "
            f"it has: {', '.join(lifetimes) or 'none'}",
        )
    if wanted.effort is not None and wanted.effort not in entry.efforts:
        raise file.error(
            (*at, "effort"),
            f"model {entry.name!r} takes no effort {wanted.effort!r}; it takes: "
            f"{', '.join(entry.efforts) or 'none, so leave it out'}",
        )
    if wanted.temperature is not None and not entry.temperature:
        raise file.error((*at, "temperature"), f"model {entry.name!r} takes no temperature; leave it out")
    for index, name in enumerate(wanted.tools or ()):
        if name not in SHELF:
            raise file.error((*at, "tools", index), f"unknown tool {name!r}; {near(name, list(SHELF))}")
    return RoleModel(
        entry,
        wanted.lifetime,
        wanted.effort,
        wanted.temperature,
        _keep_alive(file, (*at, "keep_alive"), wanted, entry),
        None if wanted.prompt is None else _prompt(file, (*at, "prompt"), wanted.prompt),
        None if wanted.tools is None else tuple(dict.fromkeys(wanted.tools)),
        wanted.max_turns,
        wanted.max_output_tokens,
        None if wanted.command_policy is None else _policy(file, (*at, "command_policy"), wanted.command_policy),
        wanted.max_usd,
        wanted.max_tokens,
        context_policy(file, (*at, "context"), wanted.context, entry),
    )


def _policy(file: SpecFile, at: Place, wanted: CommandPolicySpec) -> CommandPolicy:
    if not (wanted.deny or wanted.allow or wanted.read_only):
        raise file.error(at, "has no rule; expected deny, allow or read_only: true, or leave it out")
    deny = _patterns(file, (*at, "deny"), wanted.deny)
    return CommandPolicy(
        deny, None if wanted.allow is None else _patterns(file, (*at, "allow"), wanted.allow), wanted.read_only
    )


def _patterns(file: SpecFile, at: Place, texts: Sequence[str]) -> tuple[CommandPattern, ...]:
    found = []
    for index, text in enumerate(texts):
        try:
            found.append(CommandPattern(text))
        except ValueError as error:
            raise file.error((*at, index), f"{text!r} is no pattern ({error}); expected such as 'rm -rf *'") from None
    return tuple(found)


def _prompt(file: SpecFile, at: Place, name: str) -> str:
    path = file.folder / name
    try:
        with path.open("rb") as opened:
            content = opened.read(MOST_PROMPT_BYTES + 1)
        text = content.decode("utf-8").strip()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise file.error(
            at, f"{path} cannot be read ({reason}); expected a Markdown file, relative to the spec"
        ) from None
    if not text or len(content) > MOST_PROMPT_BYTES:
        wrong = f"is longer than {MOST_PROMPT_BYTES >> 10} KiB" if text else "is empty"
        raise file.error(at, f"{path} {wrong}; expected what the role is told, in Markdown")
    return text


def _keep_alive(file: SpecFile, at: Place, wanted: RoleSpec, entry: "ModelEntry") -> KeepAlive | None:
    policy, asked = POLICIES[entry.cache], wanted.keep_alive
    if asked is None:
        return None
    if policy.matching == "none":
        raise file.error(at, f"model {entry.name!r} has no cache that pings could keep alive; leave it out")
    lifetime = policy.lifetime(wanted.lifetime)
    if lifetime is not None and asked.every_s >= lifetime.total_seconds():
        raise file.error(
            (*at, "every_s"),
            f"pings every {asked.every_s:g} s come too late for entries that live {lifetime.total_seconds():g} s; "
            f"expected fewer seconds than that, such as {lifetime.total_seconds() - PING_AHEAD.total_seconds():g}",
        )
    thinking = entry.extra_body.get("thinking")
    if isinstance(thinking, dict) and "budget_tokens" in thinking:
        raise file.error(
            at,
            f"the entry of model {entry.name!r} sets thinking.budget_tokens, so that each ping would think; leave "
            "keep_alive out, or give the model another way to think",
        )
    return KeepAlive(asked.every_s, asked.most)
