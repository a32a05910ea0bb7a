"""What runs have left in an engine: found by label, and removed when the process that made it lives no more.

A label is hostile data: an image may carry one, and every container of it then does. A container is ours only when its
name, which no image can give it, agrees with its label too.
"""

import asyncio
import re
import socket
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from harbor_tasks.errors import SandboxBroken
from harbor_tasks.sandbox.docker.engine import Engine
from harbor_tasks.sandbox.docker.owners import Owner, read
from harbor_tasks.sandbox.docker.settings import COPIES, LABEL

if TYPE_CHECKING:
    from docker import APIClient

Kind = Literal["container", "network", "volume", "image"]
Standing = Literal["in use", "leftover", "elsewhere"]
"""`elsewhere`: of another machine, or of nobody that could be read from its label."""

KINDS: tuple[Kind, ...] = ("container", "network", "volume", "image")
"""In the order in which they can go: a network, a volume, an image is held by a container."""

_OWNER = f"{LABEL}.owner"
_NAME = re.compile(r"fullchain-([0-9a-f]{16})")
_COPY = re.compile(rf"{COPIES}:[0-9a-f]{{16}}")
_STOPPED = ("exited", "dead")
_AT_ONCE = 8
_ROUNDS = 5
"""What an engine was still making when its process was killed appears while the rest is removed."""


@dataclass(frozen=True, slots=True)
class Thing:
    """Something of ours in the engine. `owner` None: its label says nothing that we would have written."""

    kind: Kind
    id: str
    name: str
    task: str
    owner: Owner | None
    standing: Standing


@dataclass(frozen=True, slots=True)
class Removed:
    """`failed` says, a line each, what could not be removed and why."""

    things: tuple[Thing, ...]
    failed: tuple[str, ...]


def counted(chosen: Iterable[Thing]) -> str:
    """1 container, 0 networks, 2 volumes; images, of copied states, where there are any."""
    kinds = [thing.kind for thing in chosen]
    numbers = [(kind, kinds.count(kind)) for kind in KINDS if kind != "image" or kind in kinds]
    return ", ".join(f"{number} {kind}{'' if number == 1 else 's'}" for kind, number in numbers)


async def things(engine: Engine) -> list[Thing]:
    """All that is labelled as ours in this engine, containers first. Raises SandboxBroken."""
    # Where the engine runs on this very machine, a container that outlived a boot is stopped and nobody's.
    local = engine.place.url.startswith("unix://") and engine.info.get("Name") == socket.gethostname()
    return await engine.call(partial(_list, local=local))


async def remove(engine: Engine, chosen: Sequence[Thing]) -> Removed:
    """Containers go with their anonymous volumes. What somebody else removes meanwhile is not counted."""
    gone: list[Thing] = []
    failed: list[str] = []
    room = asyncio.Semaphore(_AT_ONCE)

    async def one(thing: Thing) -> None:
        async with room:
            try:
                if await engine.call(partial(_remove, thing)):
                    gone.append(thing)
            except SandboxBroken as error:
                failed.append(f"{thing.kind} {thing.name}: {error}")

    for kind in KINDS:
        async with asyncio.TaskGroup() as group:
            for thing in chosen:
                if thing.kind == kind:
                    group.create_task(one(thing))
    return Removed(tuple(gone), tuple(failed))


async def reap(engine: Engine, *, all_hosts: bool = False) -> Removed:
    """Removes every leftover; `all_hosts`: also what is of other machines, whether it is in use or not. Nothing of a
    process that lives here is touched. Raises SandboxBroken when the engine cannot be asked."""
    gone: list[Thing] = []
    failed: list[str] = []
    tried: set[str] = set()
    wanted = ("leftover", "elsewhere") if all_hosts else ("leftover",)
    for _ in range(_ROUNDS):
        found = [thing for thing in await things(engine) if thing.standing in wanted and thing.id not in tried]
        if not found:
            break
        tried.update(thing.id for thing in found)
        removed = await remove(engine, found)
        gone += removed.things
        failed += removed.failed
    return Removed(tuple(gone), tuple(failed))


def _list(api: "APIClient", *, local: bool) -> list[Thing]:
    filters = {"label": _OWNER}
    found: list[Thing] = []
    for each in api.containers(all=True, filters=filters):
        labels = each.get("Labels") or {}
        name = f"fullchain-{labels.get(f'{LABEL}.trial')}"
        if _NAME.fullmatch(name) and f"/{name}" in (each.get("Names") or ()):
            stopped = each.get("State") in _STOPPED
            found.append(_thing("container", each["Id"], name, labels, after_boot=local and stopped))
    for each in api.networks(filters=filters):
        found.append(_thing("network", each["Id"], each["Name"], each.get("Labels") or {}, after_boot=local))
    for each in api.volumes(filters=filters).get("Volumes") or ():
        found.append(_thing("volume", each["Name"], each["Name"], each.get("Labels") or {}, after_boot=local))
    for each in api.images(filters=filters):
        labels = each.get("Labels") or {}
        name = f"{COPIES}:{labels.get(f'{LABEL}.trial')}"
        # As with containers: the label of an image that somebody made of ours says as much, its name does not.
        if _COPY.fullmatch(name) and name in (each.get("RepoTags") or ()):
            found.append(_thing("image", name, name, labels, after_boot=local))
    return found


def _thing(kind: Kind, identity: str, name: str, labels: Mapping[str, Any], *, after_boot: bool) -> Thing:
    """`after_boot`: what a machine of this name made before this one's last start can only be this one's."""
    owner = read(labels.get(_OWNER))
    standing: Standing = "elsewhere"
    if owner is not None:
        life = owner.life()
        if life == "lives":
            standing = "in use"
        elif life == "gone" or (life == "rebooted" and after_boot):
            standing = "leftover"
    return Thing(kind, identity, name, str(labels.get(f"{LABEL}.task", "")), owner, standing)


def _remove(thing: Thing, api: "APIClient") -> bool:
    """False when it was gone already, or somebody else is removing it. Blocks."""
    from docker.errors import APIError

    try:
        if thing.kind == "container":
            api.remove_container(thing.id, force=True, v=True)
        elif thing.kind == "network":
            api.remove_network(thing.id)
        elif thing.kind == "image":
            api.remove_image(thing.id, force=True)
        else:
            api.remove_volume(thing.id)
    except APIError as error:
        if error.status_code == 404 or (error.status_code == 409 and "already in progress" in str(error.explanation)):
            return False
        raise
    return True
