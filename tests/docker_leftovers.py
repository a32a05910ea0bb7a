"""Processes that live or are dead, and what they left in the engine."""

import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from harbor_tasks.errors import SandboxBroken
from harbor_tasks.sandbox.docker.engine import Engine
from harbor_tasks.sandbox.docker.owners import Owner, read
from tests.docker_engine import BASE

ROOT = Path(__file__).parent.parent


@contextmanager
def another(program: str = "import time; time.sleep(600)") -> Iterator[tuple["subprocess.Popen[bytes]", Owner]]:
    """A process that lives, and what it would write on its containers."""
    says = "from harbor_tasks.sandbox.docker.owners import this_process; print(this_process(), flush=True); "
    with subprocess.Popen([sys.executable, "-c", says + program], cwd=ROOT, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            owner = read(process.stdout.readline().decode().strip())
            assert owner is not None
            yield process, owner
        finally:
            process.kill()


def dead() -> Owner:
    with another() as (process, owner):
        process.kill()
    return owner


class Made:
    """Things in the engine with labels of our choice."""

    def __init__(self, found: Engine) -> None:
        self.engine = found
        self.containers: list[str] = []
        self.networks: list[str] = []
        self.volumes: list[str] = []

    async def container(self, owner: object, *, name: str | None = None, image: str = BASE, labels: bool = True) -> str:
        token = secrets.token_hex(8)
        says = {"fullchain": "0", "fullchain.trial": token, "fullchain.owner": str(owner)} if labels else {}
        made: str = (
            await self.engine.call(
                lambda api: api.create_container(
                    image,
                    ["sleep", "600"],
                    name=name or f"fullchain-{token}",
                    labels=says,
                    volumes=["/data"],
                    host_config=api.create_host_config(network_mode="none"),
                )
            )
        )["Id"]
        self.containers.append(made)
        await self.engine.call(lambda api: api.start(made))
        return made

    async def network(self, owner: object) -> str:
        name = f"fullchain-{secrets.token_hex(8)}"
        says = {"fullchain": "0", "fullchain.owner": str(owner)}
        try:
            made = await self.engine.call(lambda api: api.create_network(name, labels=says, internal=True))
        except SandboxBroken as error:
            pytest.skip(f"this engine makes no networks: {error}")
        self.networks.append(made["Id"])
        return str(made["Id"])

    async def volume(self, owner: object) -> str:
        name = f"fullchain-{secrets.token_hex(8)}"
        says = {"fullchain": "0", "fullchain.owner": str(owner)}
        await self.engine.call(lambda api: api.create_volume(name, labels=says))
        self.volumes.append(name)
        return name

    async def anonymous(self, container: str) -> set[str]:
        state = await self.engine.call(lambda api: api.inspect_container(container))
        return {each["Name"] for each in state["Mounts"] if each["Type"] == "volume"}

    async def exist(self) -> set[str]:
        """Of those that were made."""
        containers = await self.engine.call(lambda api: api.containers(all=True))
        networks = await self.engine.call(lambda api: api.networks())
        there = {each["Id"] for each in (*containers, *networks)} | await volumes(self.engine)
        return there & {*self.containers, *self.networks, *self.volumes}


async def volumes(found: Engine) -> set[str]:
    return {each["Name"] for each in (await found.call(lambda api: api.volumes())).get("Volumes") or ()}
