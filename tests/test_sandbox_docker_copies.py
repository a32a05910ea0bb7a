"""A running container is copied: an image that is verified like the original, and that nobody leaves behind."""

import asyncio
import secrets
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from harbor_tasks.errors import SandboxBroken, StateUnfit
from harbor_tasks.format import Task
from harbor_tasks.kept_state import verify_state
from harbor_tasks.sandbox import Sandbox, state_archive
from harbor_tasks.sandbox.copied_files import Layout
from harbor_tasks.sandbox.docker.engine import Engine
from harbor_tasks.sandbox.docker.leftovers import counted, reap, things
from harbor_tasks.sandbox.docker.owners import this_process
from harbor_tasks.sandbox.docker.settings import COPIES
from harbor_tasks.verifier import verify
from tests.docker_engine import BASE, containers, docker, docker_task, engine
from tests.docker_leftovers import dead

pytestmark = pytest.mark.xdist_group("docker-leftovers")

TEST = """#!/bin/bash
ok=1
[ "$(cat /app/work)" = done ] || ok=0
[ "$(cat /opt/tool)" = mine ] || ok=0
[ ! -e /srv/shipped ] || ok=0
[ "$(stat -c '%U %a' /app/closed)" = 'games 500' ] || ok=0
echo $ok >/logs/verifier/reward.txt
"""
DOCKERFILE = "WORKDIR /app\nRUN echo shipped >/srv/shipped && echo todo >/app/work\n"
WORK = (
    "echo done >/app/work; echo mine >/opt/tool; rm /srv/shipped; mkdir /app/closed; echo x >/app/closed/x; "
    "chmod 500 /app/closed; chown -R games /app/closed; ln -s /etc/shadow /app/link"
)


async def said(sandbox: Sandbox, command: str) -> str:
    return (await sandbox.exec(command, timeout_s=60)).text


def working(folder: Path) -> Task:
    task = docker_task(folder, DOCKERFILE)
    (task.path / "tests" / "test.sh").write_text(TEST)
    return task


async def images(found: Engine, **filters: str) -> set[str]:
    listed = await found.call(lambda api: api.images(COPIES, filters=filters))
    return {name for each in listed for name in each.get("RepoTags") or ()}


async def own_images(found: Engine) -> set[str]:
    """Others' come and go: whoever reviews in this engine makes copies."""
    return await images(found, label=f"fullchain.owner={this_process()}")


async def test_the_copy_is_verified_like_the_original_and_nothing_of_it_is_left(tmp_path: Path) -> None:
    backend, found, task = await docker(), await engine(), working(tmp_path)
    before = await containers(found), await own_images(found)
    archive = tmp_path / "state.tar.gz"
    async with backend.start(task) as original:
        await said(original, WORK)
        shell = await original.shell()
        await shell.run("sleep 300 & export seen=yes", timeout_s=10)
        # The engine reads what was written, and directories tell when they were read last, as for any diff.
        look = "find /app /opt -printf '%p %m %U %T@ %C@\\n' | sort; ls /tests"
        stood = await said(original, look)
        async with backend.copied(task, original) as copy:
            assert await said(original, look) == stood
            await said(original, "echo undone >/app/work")
            (mine,) = await own_images(found) - before[1]
            standing = {thing.id: (thing.kind, thing.standing) for thing in await things(found)}
            assert standing[mine] == ("image", "in use")
            async with copy.start() as twin:
                assert await said(twin, "pgrep -c sleep || cat /app/work") != "1\n"
                files, layout = await copy.files(twin)
                with archive.open("wb") as target:
                    name = state_archive.pack(files, layout, target)
                assert (await verify(task, twin)).reward == 1.0
        assert await own_images(found) == before[1]
        assert (await shell.run("echo $seen; ls /tests", timeout_s=10)).text == "yes\n"
        await shell.close()
        assert (await verify(task, original)).reward == 0.0
    assert (await containers(found), await own_images(found)) == before
    assert layout.removed == ("srv/shipped",)
    assert {entry.path for entry in files.entries} >= {"app/closed/x", "app/link", "opt/tool"}
    assert (await verify_state(task, archive, backend)).reward == 1.0
    named = archive.rename(tmp_path / f"{name}.tar.gz")
    assert (await verify_state(task, named, backend)).reward == 1.0
    with pytest.raises(StateUnfit, match="taken in bubblewrap"):
        async with backend.restored(task, files, Layout("bubblewrap", ())):
            pass


async def test_a_copy_that_is_cancelled_while_it_is_made_leaves_no_image(tmp_path: Path) -> None:
    backend, found, task = await docker(), await engine(), working(tmp_path)
    before = await own_images(found)

    async def take(original: Sandbox) -> None:
        async with backend.copied(task, original):
            pass

    async with backend.start(task) as original:
        for wait_s in (0.0, 0.05, 0.3):
            taking = asyncio.create_task(take(original))
            await asyncio.sleep(wait_s)
            taking.cancel()
            await asyncio.gather(taking, return_exceptions=True)
            assert await own_images(found) == before
        assert await said(original, "echo lives") == "lives\n"


async def test_an_image_with_volumes_is_not_copied_since_they_would_be_left_out(tmp_path: Path) -> None:
    backend, task = await docker(), docker_task(tmp_path, "VOLUME /data\n")
    async with backend.start(task) as original:
        with pytest.raises(SandboxBroken, match=r"has volumes \(/data\)"):
            async with backend.copied(task, original):
                pass


async def test_copies_that_a_killed_run_has_left_are_reaped_and_those_of_a_living_one_are_not() -> None:
    found = await engine()
    made = []
    for owner in (dead(), this_process()):
        for label in (None, "0" * 16):
            token = secrets.token_hex(8)
            labels = {"fullchain": "0", "fullchain.trial": label or token, "fullchain.owner": str(owner)}
            made.append(f"{COPIES}:{token}")
            await found.call(partial(_tagged, token=token, labels=labels))
    try:
        standing = {thing.id: thing.standing for thing in await things(found)}
        assert [standing.get(each) for each in made] == ["leftover", None, "in use", None]
        removed = await reap(found)
        assert made[0] in {thing.id for thing in removed.things}
        assert "1 image" in counted([thing for thing in removed.things if thing.id == made[0]])
        assert await images(found) >= set(made[1:])
        assert made[0] not in await images(found)
    finally:
        for each in await images(found) & set(made):
            await found.call(partial(_untagged, name=each))


def _tagged(api: Any, *, token: str, labels: dict[str, str]) -> None:
    """An image as a copy's is, of a container that never ran. One whose name and label differ is nobody's."""
    made = api.create_container(BASE, ["true"], labels=labels)
    try:
        api.commit(made["Id"], repository=COPIES, tag=token)
    finally:
        api.remove_container(made["Id"], force=True)


def _untagged(api: Any, *, name: str) -> None:
    api.remove_image(name, force=True)
