"""Whole runs, ended in order, by Ctrl-C and by kill -9: what stays in the engine."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from experiments.experiment import Experiment
from experiments.runner import run_experiment
from harbor_tasks.format import bundled_tasks, load_tasks
from harbor_tasks.sandbox.docker.engine import Engine
from harbor_tasks.sandbox.docker.leftovers import remove, things
from tests.docker_engine import engine, on_base
from tests.docker_leftovers import ROOT, Made, another, volumes
from tests.experiment_files import SOLO, small, write_spec
from tests.test_run_interrupted import PATIENCE_S, assert_gone, family, wait_for_calls

pytestmark = pytest.mark.xdist_group("docker-leftovers")

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
