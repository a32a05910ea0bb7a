"""Copies of a running container: an image of its layer, taken without pausing it, removed when nobody needs it."""

import asyncio
import contextlib
import posixpath
import secrets
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from typing import IO, TYPE_CHECKING, Any

from harbor_tasks.errors import SandboxBroken
from harbor_tasks.sandbox import Sandbox
from harbor_tasks.sandbox.copied_files import CopiedFiles, Layout
from harbor_tasks.sandbox.docker.container import DockerMachine
from harbor_tasks.sandbox.docker.engine import Engine
from harbor_tasks.sandbox.docker.images import Image
from harbor_tasks.sandbox.docker.scripts import OUTPUTS
from harbor_tasks.sandbox.docker.settings import COPIES, LABEL, SHELLS
from harbor_tasks.sandbox.machine import to_its_end

if TYPE_CHECKING:
    from docker import APIClient

MOST_PATHS = 50_000
"""Changed paths, beyond which a state is not kept."""
_MADE_BY_THE_ENGINE = (
    "dev",
    "proc",
    "sys",
    ".dockerenv",
    "etc/hosts",
    "etc/hostname",
    "etc/resolv.conf",
    "sbin/docker-init",
    "usr/sbin/docker-init",
)
_OURS = (SHELLS.strip("/"), OUTPUTS.strip("/"))
_SYSTEM = ("", "bin", "boot", "etc", "lib", "lib64", "run", "sbin", "usr", "var")
_DELETED = 2


@asynccontextmanager
async def committed(engine: Engine, machine: DockerMachine) -> AsyncIterator[tuple[Image, Layout, tuple[str, ...]]]:
    """An image of the container as it is, what differs from its own image, and which paths that are. Raises
    SandboxBroken where the container writes into volumes, which no image holds."""
    state: dict[str, Any] = await engine.call(lambda api: api.inspect_container(machine.container))
    volumes = [str(mount.get("Destination")) for mount in state.get("Mounts") or () if mount.get("Type") == "volume"]
    if volumes:
        raise SandboxBroken(f"the image has volumes ({', '.join(volumes)[:200]}), which a copy would leave out")
    token = secrets.token_hex(8)
    # Side by side: each walks the whole layer, and whoever is copied waits for both.
    making = asyncio.gather(
        engine.call(lambda api: _commit(api, machine.container, token)),
        engine.call(lambda api: _changes(api, machine.container)),
        return_exceptions=True,
    )
    try:
        made, changes = await asyncio.shield(making)
        for each in (made, changes):
            if isinstance(each, BaseException):
                raise each
    except BaseException:
        await to_its_end(_undo(engine, token, making))
        raise
    try:
        layout, paths = _layout(changes, machine.workdir)
        yield replace(machine.image, id=made), layout, paths
    finally:
        await to_its_end(_remove(engine, token))


class ImageCopy:
    """A `Copy`. `open_one` starts a sandbox of the image; `stream` is an empty file that lives as long as the copy."""

    def __init__(
        self,
        open_one: Callable[[], AbstractAsyncContextManager[DockerMachine]],
        layout: Layout,
        paths: tuple[str, ...],
        stream: IO[bytes],
    ) -> None:
        self._open_one, self._layout, self._paths, self._stream = open_one, layout, paths, stream

    def start(self) -> AbstractAsyncContextManager[Sandbox]:
        return self._open_one()

    async def files(self, started: Sandbox) -> tuple[CopiedFiles, Layout]:
        if len(self._paths) > MOST_PATHS:
            raise SandboxBroken(f"more than {MOST_PATHS:,} paths have changed")
        if not isinstance(started, DockerMachine):
            raise SandboxBroken(f"a sandbox of {started.backend} is none of this copy")
        await started.copy_paths(self._layout.emptied, self._paths, self._stream)
        return await asyncio.to_thread(CopiedFiles.read, self._stream), self._layout


def _commit(api: "APIClient", container: str, token: str) -> str:
    label = f"LABEL {LABEL}.trial={token}"
    made = api.commit(container, repository=COPIES, tag=token, pause=False, changes=[label])
    return str(made["Id"])


def _changes(api: "APIClient", container: str) -> list[dict[str, Any]]:
    return list(api.diff(container) or ())


def _layout(changes: Iterable[dict[str, Any]], workdir: str) -> tuple[Layout, tuple[str, ...]]:
    """The working directory goes whole, unless the system is in it; beside it what differs from the image."""
    whole = posixpath.normpath(workdir).strip("/")
    emptied = () if whole in _SYSTEM else (whole,)
    removed: list[str] = []
    paths: list[str] = []
    for change in changes:
        path = str(change["Path"]).strip("/")
        skipped = (*_MADE_BY_THE_ENGINE, *_OURS, *emptied)
        if not path or any(path == each or path.startswith(f"{each}/") for each in skipped):
            continue
        (removed if change["Kind"] == _DELETED else paths).append(path)
    return Layout(DockerMachine.backend, emptied, tuple(sorted(removed))), tuple(sorted(paths))


async def _undo(engine: Engine, token: str, making: "asyncio.Future[Any]") -> None:
    """A thread cannot be cancelled: what it makes is removed once it is made."""
    await making
    await _remove(engine, token)


async def _remove(engine: Engine, token: str) -> None:
    """What cannot be removed is a leftover, which its label tells."""
    from docker.errors import NotFound

    def remove(api: "APIClient") -> None:
        with contextlib.suppress(NotFound):
            api.remove_image(f"{COPIES}:{token}", force=True)

    with contextlib.suppress(SandboxBroken):
        await engine.call(remove)
