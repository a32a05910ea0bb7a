"""The Docker engine that the sandbox tests use, and tasks of an image that is in it."""

import os
import re
import shutil
from pathlib import Path
from typing import NoReturn

import pytest

from harbor_tasks.errors import SandboxMissing
from harbor_tasks.format import Task, load_task
from harbor_tasks.sandbox.docker.backend import Docker
from harbor_tasks.sandbox.docker.engine import Engine, find
from harbor_tasks.sandbox.docker.owners import this_process
from tests.sandbox_tasks import write_task

BASE = "debian:bookworm-slim"
"""With python3 and git in it."""

_CHECKED: dict[str, str] = {}


REQUIRED = "FULLCHAIN_TEST_ENGINE"
"""Says `required` where an engine was started for the tests: a test that cannot use it has then failed."""


async def engine() -> Engine:
    """Skips the test where none answers or the image is not there; fails it where one is required."""
    if "missing" in _CHECKED:
        _give_up(_CHECKED["missing"])
    try:
        found = await find()
    except SandboxMissing as missing:
        _CHECKED["missing"] = str(missing)
        _give_up(str(missing))
    if "there" not in _CHECKED:
        _CHECKED["there"] = "yes"
        if not (images := await found.call(lambda api: api.images(BASE))):
            _CHECKED["missing"] = f"{BASE} is not in the engine"
        elif not await _has_programs(found, images[0]["Id"]):
            _CHECKED["missing"] = f"the engine's {BASE} is without python3 or git"
        if "missing" in _CHECKED:
            _give_up(_CHECKED["missing"])
    return found


def _give_up(why: str) -> NoReturn:
    if os.environ.get(REQUIRED) == "required":
        pytest.fail(f"{REQUIRED}=required, but {why}", pytrace=False)
    pytest.skip(why)


async def docker() -> Docker:
    await engine()
    return Docker()


async def _has_programs(found: Engine, image: str) -> bool:
    words = ["sh", "-c", "command -v git && command -v python3"]
    bare = found.api.create_host_config(network_mode="none")
    made = await found.call(lambda api: api.create_container(image, words, host_config=bare))
    try:
        await found.call(lambda api: api.start(made["Id"]))
        ended = await found.call(lambda api: api.wait(made["Id"], timeout=30))
        return bool(ended["StatusCode"] == 0)
    finally:
        await found.call(lambda api: api.remove_container(made["Id"], force=True))


def docker_task(folder: Path, dockerfile: str = "", *, toml: str = "", files: dict[str, str] | None = None) -> Task:
    """A task whose Dockerfile begins with the image that is there."""
    return write_task(folder, f"FROM {BASE}\n{dockerfile}", toml=toml, files=files)


def on_base(task: Task, folder: Path) -> Task:
    """A copy of a bundled task, built without network from the image that is there."""
    copy = folder / task.name
    shutil.copytree(task.path, copy)
    path = copy / "environment" / "Dockerfile"
    lines = [line for line in path.read_text().splitlines(keepends=True) if "apt-get" not in line]
    path.write_text(re.sub(r"^FROM .*", f"FROM {BASE}", "".join(lines)))
    return load_task(copy)


async def containers(found: Engine) -> set[str]:
    """Those of this process, running or not."""
    label = f"fullchain.owner={this_process()}"
    listed = await found.call(lambda api: api.containers(all=True, filters={"label": label}))
    return {each["Id"] for each in listed}


async def inspected(found: Engine, container: str) -> dict[str, object]:
    state: dict[str, object] = await found.call(lambda api: api.inspect_container(container))
    return state
