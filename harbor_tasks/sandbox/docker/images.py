"""A task's image in the engine: taken by its name, or built from environment/ and kept under what it was built from."""

import asyncio
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harbor_tasks.digest import tree_digest
from harbor_tasks.dockerfile import read
from harbor_tasks.errors import SandboxBroken, TaskRefused
from harbor_tasks.format import Task
from harbor_tasks.sandbox.docker import buildx
from harbor_tasks.sandbox.docker.engine import Engine
from harbor_tasks.sandbox.docker.steps import NeedsBuildKit, Steps, bases, readable

if TYPE_CHECKING:
    from docker import APIClient

REPOSITORY = "fullchain-task"
_LAYOUT = "1"
"""Part of an image's name: raise it when what is built from the same files changes."""


@dataclass(frozen=True, slots=True)
class Image:
    """`env`, `workdir` and `user` are the image's own; empty where it sets none. `architecture` as Docker names it."""

    id: str
    name: str
    env: Mapping[str, str]
    workdir: str
    user: str
    architecture: str


class Images:
    """Those of one engine. What two trials need at once is made once."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._locks: dict[str, asyncio.Lock] = {}
        self._found: dict[str, Image] = {}
        self._buildx: bool | None = None

    async def take(self, task: Task) -> Image:
        """Raises TaskRefused, naming the Dockerfile's line where it can, when the image can be neither found, fetched
        nor built within build_timeout_sec."""
        key = f"{task.digest} {self._engine.platform}"
        async with self._locks.setdefault(key, asyncio.Lock()):
            if key not in self._found:
                self._found[key] = await self._take(task)
            return self._found[key]

    async def reach(self, task: Task) -> None:
        """Raises TaskRefused for an image, the task's own or one it is built from, that is neither in the engine nor in
        a registry that answers."""
        names: list[str] = []
        if task.config.environment.docker_image is not None:
            names = [task.config.environment.docker_image]
        elif task.dockerfile is not None:
            if await self._there(await asyncio.to_thread(self._name, task.dockerfile.parent)):
                return
            text = await asyncio.to_thread(read, task.dockerfile)
            try:
                names = bases(readable(text))
            except NeedsBuildKit:
                # What it begins from is told by its build, which is tried where it can be.
                if not await self._has_buildx():
                    raise
        for name in names:
            if await self._there(name) is None and (why := await self._engine.has_registry(name)) is not None:
                raise TaskRefused(f"task {task.name}: {name} is not in the engine and cannot be fetched: {why}")

    async def _take(self, task: Task) -> Image:
        environment = task.config.environment
        timeout_s = environment.build_timeout_sec
        if environment.docker_image is not None:
            name = environment.docker_image
            try:
                return await self._there(name) or await self._pull(name, timeout_s)
            except TaskRefused:
                if task.dockerfile is None:
                    raise
        assert task.dockerfile is not None  # noqa: S101 (the format asks for one of the two)
        name = await asyncio.to_thread(self._name, task.dockerfile.parent)
        return await self._there(name) or await self._build(task.dockerfile, name, task.name, timeout_s)

    def _name(self, context: Path) -> str:
        parts = f"{_LAYOUT} {self._engine.platform} {tree_digest(context)}"
        return f"{REPOSITORY}:{hashlib.sha256(parts.encode()).hexdigest()[:40]}"

    async def _there(self, name: str) -> Image | None:
        from docker.errors import ImageNotFound

        def inspect(api: "APIClient") -> dict[str, Any] | None:
            try:
                found: dict[str, Any] = api.inspect_image(name)
            except ImageNotFound:
                return None
            return found

        found = await self._engine.call(inspect)
        if found is None:
            return None
        config = found.get("Config") or {}
        pairs = (text.partition("=") for text in config.get("Env") or ())
        return Image(
            found["Id"],
            name,
            {key: value for key, _, value in pairs},
            config.get("WorkingDir") or "",
            config.get("User") or "",
            str(found.get("Architecture", "")),
        )

    async def _pull(self, name: str, timeout_s: float) -> Image:
        errors: list[str] = []

        def pull(api: "APIClient") -> Iterator[dict[str, Any]]:
            # Without a tag the engine would fetch all of them.
            tag = None if "@" in name or ":" in name.rpartition("/")[2] else "latest"
            messages: Iterator[dict[str, Any]] = api.pull(name, tag=tag, stream=True, decode=True)
            return messages

        def heard(message: dict[str, Any]) -> None:
            if "error" in message:
                errors.append(" ".join(str(message["error"]).split()))

        where = f"task.toml environment.docker_image: {name}"
        try:
            await self._engine.follow(pull, heard, timeout_s=timeout_s)
        except TimeoutError:
            raise TaskRefused(f"{where} was not fetched within build_timeout_sec = {timeout_s:g}") from None
        except SandboxBroken as error:
            errors.append(str(error))
        found = None if errors else await self._there(name)
        if found is None:
            said = errors[0][:300] if errors else "it is not there after it was fetched"
            raise TaskRefused(f"{where} is not in the engine and cannot be fetched: {said}")
        return found

    async def _build(self, dockerfile: Path, name: str, task: str, timeout_s: float) -> Image:
        try:
            instructions = readable(await asyncio.to_thread(read, dockerfile))
        except NeedsBuildKit:
            if not await self._has_buildx():
                raise
            await buildx.build(self._engine, dockerfile, name, timeout_s)
            return await self._built(name, task)
        steps = Steps(instructions)

        def build(api: "APIClient") -> Iterator[dict[str, Any]]:
            # No labels: the engine would add a step that the Dockerfile has not.
            messages: Iterator[dict[str, Any]] = api.build(
                path=str(dockerfile.parent),
                tag=name,
                rm=True,
                forcerm=True,
                decode=True,
                dockerfile="Dockerfile",
                # It may hold a password, and a Dockerfile is not ours.
                use_config_proxy=False,
            )
            return messages

        try:
            await self._engine.follow(build, steps.heard, timeout_s=timeout_s)
        except TimeoutError:
            stopped = f"the build took longer than build_timeout_sec = {timeout_s:g}"
            raise steps.refusal(stopped) or TaskRefused(stopped) from None
        except SandboxBroken as error:
            raise steps.refusal() or TaskRefused(f"the image cannot be built: {error}") from error
        if (refusal := steps.refusal()) is not None:
            if "exec format error" in str(refusal) and (base := await self._foreign(bases(instructions))):
                raise TaskRefused(f"{refusal}: {base}")
            raise refusal
        return await self._built(name, task)

    async def _built(self, name: str, task: str) -> Image:
        found = await self._there(name)
        if found is None:
            raise TaskRefused(f"the image of task {task} is not there after its build")
        return found

    async def _has_buildx(self) -> bool:
        if self._buildx is None:
            self._buildx = await buildx.has_buildx(self._engine)
        return self._buildx

    async def _foreign(self, names: list[str]) -> str | None:
        """The first of these images that the engine's machine can only emulate, if it can; in words."""
        for name in names:
            image = await self._there(name)
            if image is not None and image.architecture not in ("", self._engine.architecture):
                return f"{name} is for {image.architecture} and the engine runs {self._engine.architecture}"
        return None
