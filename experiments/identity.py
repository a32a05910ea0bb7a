"""What decides a trial's identity on the side of its arm: any change here makes a stored trial another one."""

import hashlib
import importlib
import inspect
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel

from agents.context import ContextPolicy
from agents.crew import RoleModel, load_prompt
from experiments.plan import Parts
from experiments.spec import LimitsSpec, Spec

if TYPE_CHECKING:
    from topologies import Topology

_CHOICES = ("efforts", "temperature")
"""Fields of an entry that only say what a role may choose: what it chose decides."""

_NEWER = ("caching", "cache_key", "reasoning", "actions", "extra_body", "headers")
"""Fields that entries did not always have."""


_NEWER_LIMITS = ("max_usd", "max_tokens", "loop_after", "tell_time")
"""Limits that experiments did not always have."""


def arm_parts(
    spec: Spec, topology: "Topology", roles: Mapping[str, RoleModel], parameters: BaseModel, *, simulated: bool
) -> Parts:
    """All that decides what happens in the arm's trials, the task aside, as it is hashed and stored."""
    parts: dict[str, object] = {
        "topology": topology.name,
        "topology_code": _source_digest(topology) if topology.home is None else dict(topology.home.code),
        "roles": {role: _role_parts(model) for role, model in roles.items()},
        "prompts": {
            role.prompt: _digest(topology.prompt(role.prompt).encode()) for role in topology.roles_for(parameters)
        },
        "parameters": parameters.model_dump(mode="json"),
        "limits": _limits_parts(spec.limits),
        "pass_threshold": str(spec.pass_threshold.normalize()),
        "seed": spec.seed,
        "prices_at": spec.prices_at.astimezone(UTC).isoformat() if spec.prices_at else None,
    }
    if spec.shadow_verify:
        # Newer than stored plans: it stands in those that ask for it.
        parts["shadow_verify"] = True
    if simulated:
        parts |= {
            "virtual_epoch": spec.virtual_epoch.astimezone(UTC).isoformat(),
            "personas": _persona_digests({model.entry.model for model in roles.values()}),
        }
    return parts


def _role_parts(model: RoleModel) -> dict[str, object]:
    """What is newer than stored plans stands in it only where it was set: else each of them would have changed."""
    entry = model.entry.model_dump(mode="json", exclude=set(_CHOICES))
    given = model.entry.model_dump(exclude_defaults=True)
    parts: dict[str, object] = {
        "lifetime": model.lifetime,
        "entry": {name: value for name, value in entry.items() if name in given or name not in _NEWER},
    }
    pings = None if model.keep_alive is None else asdict(model.keep_alive)
    chosen = {
        "effort": model.effort,
        "temperature": model.temperature,
        "keep_alive": pings,
        "prompt": None if model.prompt is None else _digest(model.prompt.encode()),
        "tools": None if model.tools is None else list(model.tools),
        "max_turns": model.max_turns,
        "max_output_tokens": model.max_output_tokens,
        "command_policy": None if model.command_policy is None else model.command_policy.parts(),
        "max_usd": _dollars(model.max_usd),
        "max_tokens": model.max_tokens,
        "context": None if model.context is None else _context(model.context),
    }
    return parts | {name: value for name, value in chosen.items() if value is not None}


def _limits_parts(limits: LimitsSpec) -> dict[str, object]:
    """Newer ones only where they are not what they always were."""
    given = limits.model_dump(exclude_defaults=True)
    whole = limits.model_dump(mode="json") | {"max_usd": _dollars(limits.max_usd)}
    return {name: value for name, value in whole.items() if name in given or name not in _NEWER_LIMITS}


def _dollars(usd: Decimal | None) -> str | None:
    """One text for 0.5 and 0.50."""
    return None if usd is None else str(usd.normalize())


def _context(context: ContextPolicy) -> dict[str, object]:
    """Only what its policy goes by."""
    parts = asdict(context)
    if context.policy != "truncate":
        del parts["keep_bytes"]
    if context.policy == "compact":
        del parts["at_least_bytes"]
    return parts | ({"prompt": _digest(load_prompt("compaction").encode())} if context.policy == "compact" else {})


def _source_digest(topology: "Topology") -> str:
    module = importlib.import_module(topology.build.__module__)
    return _digest(inspect.getsource(module).encode())


def _persona_digests(models: set[str]) -> dict[str, str]:
    """Of the personas that were there from the first, and of those beside them that the arm uses."""
    import agents.simulated

    folder = Path(agents.simulated.__file__ or "").parent / "personas"
    further = [path for path in folder.glob("*/*.yaml") if path.stem in models]
    paths = sorted([*folder.glob("*.yaml"), *further])
    return {path.stem: _digest(path.read_bytes()) for path in paths}


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]
