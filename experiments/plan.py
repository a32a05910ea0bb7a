"""What a run would do: every trial of an experiment, in the order in which it is started, each with a stable identity.

A trial's id depends on the experiment's name, arm, task and repeat alone, so that added repeats, tasks or arms leave
stored trials what they are. Its hash covers all that decides what happens in it, and nothing that does not (repeats,
concurrency, sandbox): `changes` names the fields in which a stored plan differs from this one.

The hashed parts are kept as JSON-able mappings, one for the experiment's settings, one an arm and one a task.
"""

import hashlib
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from experiments.spec import Spec

Parts = Mapping[str, object]
Thing = TypeVar("Thing")


@dataclass(frozen=True, slots=True)
class PlannedArm:
    """`roles` maps a role to its model's registry name. `parts` is what the hash covers, the limits included."""

    name: str
    topology: str
    roles: Mapping[str, str]
    parts: Parts


@dataclass(frozen=True, slots=True)
class PlannedTask:
    name: str
    digest: str
    category: str | None
    parts: Parts


@dataclass(frozen=True, slots=True)
class PlannedTrial:
    """`repeat` counts from 0, `position` is the place in the order of starting, `nonce` 16 hex digits."""

    id: str
    arm: str
    task: str
    repeat: int
    nonce: str
    hash: str
    position: int


@dataclass(frozen=True, slots=True)
class Plan:
    """`trials` in the order in which they are started. `prices_at` None prices each call at its own time."""

    experiment: str
    description: str
    simulated: bool
    seed: int
    repeats: int
    pass_threshold: float
    virtual_epoch: datetime | None
    prices_at: datetime | None
    arms: tuple[PlannedArm, ...]
    tasks: tuple[PlannedTask, ...]
    trials: tuple[PlannedTrial, ...]


def plan(
    spec: Spec, *, experiment: str, simulated: bool, arms: Sequence[PlannedArm],
    tasks: Sequence[PlannedTask],
) -> Plan:  # fmt: skip
    """Interleaves arms in seeded random blocks: each (repeat, task) runs every arm once, in an order of its own.

    So no arm is run before another by habit, and when a run is stopped the arms have done nearly the same work.
    """
    blocks = [(repeat, task) for repeat in range(spec.repeats) for task in _shuffled(tasks, spec.seed, repeat)]
    trials: list[PlannedTrial] = []
    for repeat, task in blocks:
        for arm in _shuffled(arms, spec.seed, repeat, task.name):
            trials.append(
                PlannedTrial(
                    id=trial_id(experiment, arm.name, task.name, repeat),
                    arm=arm.name,
                    task=task.name,
                    repeat=repeat,
                    nonce=nonce(spec.seed, arm.name, task.digest, repeat),
                    hash=_digest(arm.parts, task.parts),
                    position=len(trials),
                )
            )
    return Plan(
        experiment=experiment,
        description=spec.description,
        simulated=simulated,
        seed=spec.seed,
        repeats=spec.repeats,
        pass_threshold=float(spec.pass_threshold),
        virtual_epoch=spec.virtual_epoch if simulated else None,
        prices_at=spec.prices_at,
        arms=tuple(arms),
        tasks=tuple(tasks),
        trials=tuple(trials),
    )


def trial_id(experiment: str, arm: str, task: str, repeat: int) -> str:
    """12 hex digits: among a million trials, the chance that any two share one is 1 in 560."""
    return _digest("trial", experiment, arm, task, repeat)[:12]


def nonce(seed: int, arm: str, task_digest: str, repeat: int) -> str:
    """16 hex digits at the head of the trial's prefix: a cache scope of its own, and a simulated model's dice."""
    return _digest("nonce", seed, arm, task_digest, repeat)[:16]


def changes(stored: Parts, planned: Parts) -> list[str]:
    """The fields that differ, each as "limits.max_turns 60 -> 80"; long values as "changed"."""
    before, after = _flat(stored), _flat(planned)
    found = []
    for field in sorted(before.keys() | after.keys()):
        old, new = before.get(field, "unset"), after.get(field, "unset")
        if old != new:
            found.append(f"{field} {old} -> {new}" if len(old) + len(new) <= 60 else f"{field} changed")
    return found


def differences(plan: Plan, stored: Mapping[str, Mapping[str, Parts]], changed: Sequence[PlannedTrial]) -> str:
    """One line: in what the `changed` trials differ from what is stored under "arms" and "tasks", by name."""
    arms, tasks = {trial.arm for trial in changed}, {trial.task for trial in changed}
    sides = [("arm", stored["arms"], arm.name, arm.parts) for arm in plan.arms if arm.name in arms]
    sides += [("task", stored["tasks"], task.name, task.parts) for task in plan.tasks if task.name in tasks]
    found: dict[tuple[str, str], list[str]] = {}
    for kind, known, name, parts in sides:
        for change in changes(known.get(name, {}), parts):
            found.setdefault((kind, change), []).append(name)
    # A limit or the seed differs in every arm alike: it is named once.
    lines = [
        f"{kind} {names[0]}: {change}" if len(names) == 1 else f"{len(names)} {kind}s: {change}"
        for (kind, change), names in found.items()
    ]
    return "; ".join(lines[:5]) + (f" (and {len(lines) - 5} more)" if len(lines) > 5 else "")


def _shuffled(things: Sequence[Thing], *seed: object) -> list[Thing]:
    order = list(things)
    random.Random(_digest("order", *seed)).shuffle(order)  # noqa: S311  (an order, not a secret)
    return order


def _digest(*parts: object) -> str:
    """sha256 over the parts as JSON: unlike joined text, no two different lists of parts read the same."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _flat(value: object, at: str = "") -> dict[str, str]:
    if isinstance(value, Mapping):
        below: dict[str, str] = {}
        for key, inner in value.items():
            below |= _flat(inner, f"{at}.{key}" if at else str(key))
        return below
    return {at: value if isinstance(value, str) else json.dumps(value, sort_keys=True)}
