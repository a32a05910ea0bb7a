"""What runs leave in the engine: nothing; after a kill, what the next run and `sandboxes reap` find and remove."""

import asyncio
import os
import re
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.cli import main
from experiments.experiment import Experiment
from experiments.runner import run_experiment
from harbor_tasks.errors import SandboxBroken
from harbor_tasks.format import bundled_tasks, load_tasks
from harbor_tasks.sandbox.docker.engine import Engine
from harbor_tasks.sandbox.docker.leftovers import Kind, Thing, reap, remove, things
from harbor_tasks.sandbox.docker.owners import UNKNOWN, Owner, read, this_process
from tests.docker_engine import BASE, docker, docker_task, engine, on_base
from tests.experiment_files import SOLO, small, write_spec
from tests.test_run_interrupted import PATIENCE_S, assert_gone, family, wait_for_calls

pytestmark = pytest.mark.xdist_group("docker-leftovers")
ROOT = Path(__file__).parent.parent

PARTS = st.sampled_from(["vm", "a.b-c_9", "1", "4194304", "0", "-", "", "x" * 254, "4026531836", " ", "\n", "é"])


@given(st.one_of(st.text(), st.lists(PARTS, max_size=6).map(" ".join), st.none(), st.integers()))
def test_a_label_is_read_back_as_it_was_written_or_not_at_all(label: object) -> None:
    owner = read(label)
    assert owner is None or str(owner) == label


def test_a_process_is_known_by_its_start_its_boot_and_its_namespace() -> None:
    me = this_process()
    assert read(str(me)) == me
    assert me.life() == "lives"
    if me.born == UNKNOWN:
        pytest.skip("this system does not tell when a process was started")
    assert replace(me, born="1").life() == "gone"
    assert replace(me, boot="0" * 36).life() == "rebooted"
    assert replace(me, boot="0" * 36, host="another").life() == "elsewhere"
    assert replace(me, space="1").life() == "elsewhere"
    assert replace(me, boot=UNKNOWN).life() == "elsewhere"


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


def test_a_process_lives_until_it_ends_even_where_nobody_has_heard_of_its_end() -> None:
    with another() as (process, owner):
        assert owner.pid == process.pid
        assert owner.life() == "lives"
        process.kill()
        deadline = time.monotonic() + PATIENCE_S
        # Nobody waits for it yet: its number is still taken.
        while owner.life() != "gone":
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert process.wait() == -signal.SIGKILL
        assert owner.life() == "gone"


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


def dead() -> Owner:
    with another() as (process, owner):
        process.kill()
    return owner


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


TRIALS, CONCURRENCY = 60, 8
DOCKER = f"sandbox: docker\nconcurrency: {CONCURRENCY}\n"


def shelf(folder: Path) -> str:
    """The bundled tasks, built without a network, each with a volume of its own; as a spec names them."""
    tasks, _ = load_tasks(bundled_tasks())
    for task in tasks:
        copy = on_base(task, folder).path
        with (copy / "environment" / "Dockerfile").open("a") as lines:
            lines.write("VOLUME /var/scratch\n")
    return ", ".join(task.name for task in tasks)


def spec_of(folder: Path) -> Experiment:
    names = shelf(folder)
    return small(folder, SOLO, tasks=names, repeats=TRIALS // len(names.split(", ")), more=DOCKER)


class Seen:
    """What a process's trials held in the engine while they ran: their containers, and volumes without a name."""

    def __init__(self, found: Engine) -> None:
        self.engine = found
        self.containers: set[str] = set()
        self.volumes: set[str] = set()
        self.most = 0

    async def look(self, pid: int) -> set[str]:
        mine = {thing.id for thing in await things(self.engine) if thing.owner is not None and thing.owner.pid == pid}
        listed = await self.engine.call(lambda api: api.containers(all=True, filters={"label": "fullchain.owner"}))
        for each in listed:
            if each["Id"] in mine:
                self.volumes |= {mount["Name"] for mount in each["Mounts"] if mount["Type"] == "volume"}
        self.containers |= mine
        self.most = max(self.most, len(mine))
        return mine

    async def follow(self, pid: int) -> None:
        while True:
            await self.look(pid)
            await asyncio.sleep(0.2)

    async def left(self, pid: int) -> tuple[set[str], set[str], set[str]]:
        """Containers, networks and volumes of ours, by label or by having been seen on them."""
        mine = await self.look(pid)
        labelled = {thing.id for thing in await things(self.engine) if thing.kind == "network" and thing.id in mine}
        return mine, labelled, self.volumes & await volumes(self.engine)


NOTHING: tuple[set[str], set[str], set[str]] = (set(), set(), set())


@pytest.mark.slow
@pytest.mark.timeout(1200)
async def test_sixty_trials_at_eight_at_a_time_leave_no_container_network_or_volume(tmp_path: Path) -> None:
    seen = Seen(await engine())
    following = asyncio.create_task(seen.follow(os.getpid()))
    began = time.monotonic()
    report = await run_experiment(spec_of(tmp_path), tmp_path / "x.duckdb")
    took = time.monotonic() - began
    assert await seen.left(os.getpid()) == NOTHING
    following.cancel()
    assert (report.planned, report.left, report.broken, report.skipped) == (TRIALS, 0, 0, {})
    assert {ended.ended_by for ended in report.ended.values()} == {"submitted"}
    assert report.bill is not None
    assert report.bill.equal
    # Those that ran, and as many again that stood ready.
    assert CONCURRENCY < seen.most <= 2 * CONCURRENCY + 2
    assert len(seen.volumes) > TRIALS // 2
    print(  # noqa: T201  (a proof prints its figures)
        f"\n{TRIALS} trials in {took:.0f} s, at most {seen.most} containers at a time, {len(seen.volumes)} volumes seen"
    )


@contextmanager
def started(folder: Path, database: Path) -> Iterator["subprocess.Popen[str]"]:
    names = shelf(folder)
    spec = write_spec(folder, SOLO, tasks=names, repeats=TRIALS // len(names.split(", ")), more=DOCKER)
    command = [sys.executable, "-m", "experiments.cli", "run", str(spec), "--db", str(database)]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as run:
        try:
            yield run
        finally:
            run.kill()


async def at_work(run: "subprocess.Popen[str]", database: Path, seen: Seen) -> None:
    """Returns when trials have made calls and more containers stand than trials can run."""
    await asyncio.to_thread(wait_for_calls, run, database, 20)
    async with asyncio.timeout(PATIENCE_S):
        while len(await seen.look(run.pid)) <= CONCURRENCY // 2 or not seen.volumes:
            assert run.poll() is None, run.communicate()


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_a_run_ended_by_ctrl_c_leaves_no_container_network_or_volume(tmp_path: Path) -> None:
    seen, database = Seen(await engine()), tmp_path / "x.duckdb"
    with started(tmp_path, database) as run:
        await at_work(run, database, seen)
        processes = family(run.pid)
        os.killpg(run.pid, signal.SIGINT)
        out, error = await asyncio.to_thread(run.communicate, timeout=PATIENCE_S)
    assert run.returncode == 130, error
    assert "Traceback" not in out + error
    assert_gone(processes)
    assert await seen.left(run.pid) == NOTHING


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_a_run_ended_by_kill_9_leaves_what_reap_removes(tmp_path: Path) -> None:
    seen, database = Seen(await engine()), tmp_path / "x.duckdb"
    with another() as (_, lives):
        other = Made(seen.engine)
        in_use = await other.container(lives)
        with started(tmp_path, database) as run:
            await at_work(run, database, seen)
            processes = family(run.pid)
            run.kill()
            await asyncio.to_thread(run.communicate, timeout=PATIENCE_S)
        assert_gone(processes)
        assert (await seen.left(run.pid))[0]
        # What the engine was still making may appear a moment after it was asked.
        await asyncio.sleep(2)
        reaping = [sys.executable, "-m", "experiments.cli", "sandboxes", "reap"]
        reaped = await asyncio.to_thread(
            subprocess.run, reaping, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S
        )
        assert (reaped.returncode, reaped.stderr) == (0, "")
        assert reaped.stdout.startswith("removed ")
        assert await seen.left(run.pid) == NOTHING
        assert await other.exist() == {in_use}
        await remove(seen.engine, [thing for thing in await things(seen.engine) if thing.id == in_use])
