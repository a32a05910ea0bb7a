"""What runs leave in the engine: nothing; after a kill, what the next run and `sandboxes reap` find and remove."""

import asyncio
import os
import re
import secrets
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from experiments.cli import main
from harbor_tasks.sandbox.docker.leftovers import Kind, Thing, reap, remove, things
from harbor_tasks.sandbox.docker.owners import this_process
from tests.docker_engine import docker, docker_task, engine
from tests.docker_leftovers import Made, another, dead, volumes
from tests.test_run_interrupted import PATIENCE_S

pytestmark = pytest.mark.xdist_group("docker-leftovers")


@pytest.fixture
async def made() -> AsyncIterator[Made]:
    mine = Made(await engine())
    try:
        yield mine
    finally:
        there = await mine.exist()
        kinds: list[tuple[Kind, list[str]]] = [
            ("container", mine.containers),
            ("network", mine.networks),
            ("volume", mine.volumes),
        ]
        left = [Thing(kind, each, each, "", None, "leftover") for kind, made in kinds for each in made if each in there]
        await remove(mine.engine, left)


async def test_what_a_dead_process_left_is_removed_and_nothing_of_a_living_one(made: Made) -> None:
    gone = dead()
    with another() as (_, lives):
        left = {await made.container(gone), await made.volume(gone)}
        used = {await made.container(lives), await made.container(this_process()), await made.volume(lives)}
        held = await made.anonymous(next(iter(left & set(made.containers))))
        assert len(held) == 1
        standing = {thing.id: thing.standing for thing in await things(made.engine)}
        assert {standing[each] for each in left} == {"leftover"}
        assert {standing[each] for each in used} == {"in use"}
        removed = await reap(made.engine)
        assert removed.failed == ()
        assert used & {thing.id for thing in removed.things} == set()
        assert await made.exist() == used
        assert held & await volumes(made.engine) == set()


async def test_a_network_of_a_dead_process_is_removed(made: Made) -> None:
    await made.network(dead())
    lives = await made.network(this_process())
    await reap(made.engine)
    assert await made.exist() == {lives}


async def test_what_another_machine_holds_and_what_nobody_can_read_is_left_alone(made: Made) -> None:
    me = this_process()
    owners = [
        replace(dead(), host="another", boot="0" * 36),
        replace(me, space="1"),
        "vm 1",
        "",
        "1 2 3 4 5 6",
        f"{me}\n",
    ]
    foreign = {await made.container(owner) for owner in owners}
    # Of a machine of this name, before its last start, and running: a namesake's, for here nothing outlives a boot.
    foreign.add(await made.container(replace(me, boot="0" * 36)))
    await reap(made.engine)
    assert await made.exist() == foreign
    found = [thing for thing in await things(made.engine) if thing.id in foreign]
    assert {thing.standing for thing in found} == {"elsewhere"}
    assert len((await remove(made.engine, found)).things) == len(foreign)
    assert await made.exist() == set()


async def test_a_container_that_outlived_a_boot_of_this_machine_is_a_leftover(made: Made) -> None:
    left = await made.container(replace(this_process(), boot="0" * 36))
    await made.engine.call(lambda api: api.kill(left))
    await made.engine.call(lambda api: api.wait(left, timeout=PATIENCE_S))
    (found,) = [thing for thing in await things(made.engine) if thing.id == left]
    name = made.engine.info["Name"]
    assert found.standing == ("leftover" if name == this_process().host else "elsewhere")


async def test_labels_of_an_image_make_no_container_of_it_ours(made: Made, tmp_path: Path) -> None:
    gone = dead()
    token = secrets.token_hex(8)
    lines = f'LABEL fullchain=0 fullchain.trial={token} fullchain.owner="{gone}"\n'
    image = await (await docker()).image(docker_task(tmp_path, lines))
    users = {
        await made.container(None, name=f"somebodys-{secrets.token_hex(4)}", image=image.id, labels=False),
        await made.container(None, name=f"fullchain-{secrets.token_hex(8)}", image=image.id, labels=False),
    }
    assert users & {thing.id for thing in await things(made.engine)} == set()
    await reap(made.engine)
    assert await made.exist() == users


TIMES = 10
"""Any run that begins at the same time removes the same leftovers: who was first is not ours to say."""


async def test_a_run_begins_by_removing_leftovers_and_says_so(made: Made, tmp_path: Path) -> None:
    backend = await docker()
    for _ in range(TIMES):
        await made.container(dead())
        told: list[str] = []
        async with backend.ahead([], 1, told.append), asyncio.timeout(PATIENCE_S):
            # Another run that is removing it has not come to the end yet.
            while await made.exist():  # noqa: ASYNC110 (no event)
                await asyncio.sleep(0.05)
        if told:
            break
    assert len(told) == 1
    assert told[0].startswith("removed what runs that were killed had left in Docker: ")


async def test_a_run_that_finds_no_leftovers_says_nothing(made: Made) -> None:
    backend = await docker()
    for _ in range(TIMES):
        told: list[str] = []
        async with backend.ahead([], 1, told.append):
            pass
        if not told:
            break
    assert told == []


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as end:
        main(list(arguments))
    printed = capsys.readouterr()
    assert isinstance(end.value.code, int)
    return end.value.code, printed.out, printed.err


def test_the_commands_list_and_reap_say_what_there_is_and_what_went(capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(TIMES):
        mine = asyncio.run(_made_one())
        code, out, _error = said(capsys, "sandboxes", "list")
        assert code == 0
        listed = [line for line in out.splitlines() if mine in line]
        code, out, error = said(capsys, "sandboxes", "reap")
        assert (code, error) == (0, "")
        if listed and out.startswith("removed "):
            break
    assert "left by a process that has ended" in listed[0]
    assert re.match(r"removed \d+ containers?, 0 networks, 0 volumes\n", out)
    for _ in range(TIMES):
        code, out, error = said(capsys, "sandboxes", "reap")
        if out.startswith("nothing to reap\n"):
            break
    assert (code, error) == (0, "")
    assert out.startswith("nothing to reap\n")


async def _made_one() -> str:
    mine = Made(await engine())
    made = await mine.container(dead())
    name: str = (await mine.engine.call(lambda api: api.inspect_container(made)))["Name"]
    return name.removeprefix("/")


def test_what_other_machines_hold_is_asked_about_and_without_a_terminal_nothing_goes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def foreign() -> str:
        mine = Made(await engine())
        return await mine.container(replace(this_process(), host="another-host", boot="0" * 36))

    async def removed(mine: str) -> bool:
        found = [thing for thing in await things(await engine()) if thing.id == mine]
        return bool((await remove(await engine(), found)).things)

    mine = asyncio.run(foreign())
    monkeypatch.setattr("sys.stdin", open(os.devnull))  # noqa: SIM115 (closed with the test)
    try:
        code, _, error = said(capsys, "sandboxes", "reap", "--all-hosts")
        assert code == 2
        # Other tests have their other machines.
        assert re.search(r"of other machines: [^\n]*another-host", error)
        assert "add --yes" in error
        code, out, _ = said(capsys, "sandboxes", "reap")
        assert code == 0
        assert "of other machines (--all-hosts removes them too)" in out
    finally:
        sys.stdin.close()
        assert asyncio.run(removed(mine))


def test_without_an_engine_one_line_says_what_to_install(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nobody.sock")
    for command in ("list", "reap"):
        code, out, error = said(capsys, "sandboxes", command)
        assert (code, out) == (2, "")
        assert "nobody listens there" in error
        assert error.count("\n") == 1
