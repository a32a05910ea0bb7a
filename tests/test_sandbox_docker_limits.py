"""A storage limit that the engine cannot hold is watched: who passes it is ended, and that is no fault of ours."""

import asyncio
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.runner import run_experiment
from harbor_tasks.errors import SandboxMissing, StorageExceeded
from harbor_tasks.sandbox import Sandbox
from harbor_tasks.sandbox.docker.backend import Docker
from harbor_tasks.sandbox.docker.settings import settings
from harbor_tasks.sandbox.docker.watcher import SELDOM_S, SHARE, SOON_S, WATCHED, pause_s
from harbor_tasks.sandbox.lasting import LastingShell
from harbor_tasks.verifier import verify
from tests.docker_engine import containers, docker, docker_task, engine
from tests.experiment_files import scalar, small
from tests.task_directory import write_task

TOML = '[environment]\nnetwork_mode = "no-network"\nstorage_mb = 50\n'
PASSED = r"^storage limit: the task's files passed 50 MB \(environment\.storage_mb\)$"
LONGEST_S = 60.0


def _watched(sandbox: Sandbox) -> None:
    if WATCHED not in sandbox.notes:
        pytest.skip("this engine holds a container's layer to a size itself")


async def _until_ended(shell: LastingShell, command: str) -> None:
    """Until the sandbox breaks: raises what it says."""
    # A command's output takes room until it has ended.
    await shell.run(command, timeout_s=LONGEST_S)
    before = time.monotonic()
    while time.monotonic() - before < LONGEST_S:
        await shell.run("sleep .2", timeout_s=20)


WRITES = {
    "a file": "head -c 80000000 /dev/zero >/app/big",
    "many files": "mkdir /tmp/many; for i in {1..80}; do head -c 1000000 /dev/zero >/tmp/many/$i; done",
    "output": "head -c 80000000 /dev/zero & sleep 300",
    "folders too deep to be walked": (
        "python3 -c \"\nimport os\nfor _ in range(60):\n    os.mkdir('d' * 200); os.chdir('d' * 200)\n"
        "open('big', 'wb').write(bytes(80_000_000))\""
    ),
}


@pytest.mark.parametrize("what", WRITES)
async def test_who_writes_more_than_the_limit_is_ended_in_words(what: str, tmp_path: Path) -> None:
    found = await engine()
    before = await containers(found)
    with pytest.raises(StorageExceeded, match=PASSED):  # noqa: PT012 (what leaves the sandbox's context counts)
        async with (await docker()).start(docker_task(tmp_path, toml=TOML)) as sandbox:
            _watched(sandbox)
            await _until_ended(LastingShell(sandbox), WRITES[what])
    assert await containers(found) <= before


async def test_all_that_waits_for_it_and_all_that_comes_later_is_told(tmp_path: Path) -> None:
    task = docker_task(tmp_path, toml=TOML)
    with pytest.raises(StorageExceeded, match=PASSED):  # noqa: PT012 (the same)
        async with (await docker()).start(task) as sandbox:
            _watched(sandbox)
            with pytest.raises(StorageExceeded, match=PASSED):
                await _until_ended(LastingShell(sandbox), WRITES["a file"])
            with pytest.raises(StorageExceeded, match=PASSED):
                await sandbox.read("/app/big")
            verdict = await verify(task, sandbox)
            assert verdict.reward is None
            assert verdict.unscored_reason is not None
            assert "storage limit: the task's files passed 50 MB" in verdict.unscored_reason
            await sandbox.exec("true", timeout_s=10)


async def test_a_file_of_holes_takes_no_room(tmp_path: Path) -> None:
    async with (await docker()).start(docker_task(tmp_path, toml=TOML)) as sandbox:
        _watched(sandbox)
        await sandbox.exec("truncate -s 3G /app/holes", timeout_s=10)
        await asyncio.sleep(3 * SOON_S)
        said = await sandbox.exec("stat -c %s /app/holes", timeout_s=10)
        if said.exit_code != 0:
            pytest.skip("the engine's folders cannot be read here")
    assert said.text == f"{3 << 30}\n"


async def test_the_trial_beside_goes_on(tmp_path: Path) -> None:
    backend = await docker()
    async with backend.start(docker_task(tmp_path / "a", toml=TOML)) as beside:
        _watched(beside)
        with pytest.raises(StorageExceeded):
            async with backend.start(docker_task(tmp_path / "b", toml=TOML)) as sandbox:
                await _until_ended(LastingShell(sandbox), WRITES["a file"])
        assert (await beside.exec("head -c 20000000 /dev/zero >/app/f; echo on", timeout_s=20)).text == "on\n"


@given(st.floats(-1e6, 1e6), st.floats(0, 1e4))
def test_looking_takes_a_small_share_of_the_time_and_is_never_put_off_for_long(room_mb: float, took_s: float) -> None:
    pause = pause_s(room_mb, took_s)
    assert SOON_S <= pause <= SELDOM_S
    assert pause >= min(took_s * SHARE, SELDOM_S)


async def test_a_runtime_that_was_asked_for_stands_with_the_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = await engine()
    default = found.info["DefaultRuntime"]
    monkeypatch.setenv("FULLCHAIN_DOCKER_RUNTIME", default)
    task = docker_task(tmp_path)
    async with (await docker()).start(task) as sandbox:
        assert f"runtime {default}" in sandbox.notes
    with pytest.raises(SandboxMissing, match=r"FULLCHAIN_DOCKER_RUNTIME: this engine has no runtime 'runsc', only .*"):
        settings(task, found, runtime="runsc")
    monkeypatch.delenv("FULLCHAIN_DOCKER_RUNTIME")
    async with Docker().start(task) as sandbox:
        assert sandbox.notes == ()


DRIVERS = {
    "overlay2 on xfs": ("overlay2", "xfs", {"size": "50M"}),
    "zfs": ("zfs", "zfs", {"size": "50M"}),
    "overlay2 on ext4": ("overlay2", "extfs", None),
    "btrfs, which counts the image too": ("btrfs", "btrfs", None),
}


@pytest.mark.parametrize("what", DRIVERS)
async def test_a_quota_is_asked_for_where_the_driver_has_one_and_else_the_limit_is_watched(
    what: str, tmp_path: Path
) -> None:
    driver, below, quota = DRIVERS[what]
    found = await engine()
    found.info = {**found.info, "Driver": driver, "DriverStatus": [["Backing Filesystem", below]]}
    chosen = settings(docker_task(tmp_path, toml=TOML), found)
    assert (chosen.host.get("storage_opt"), WATCHED in chosen.notes) == (quota, quota is None)


async def test_a_run_books_it_as_the_agents_end_and_tries_it_no_second_time(tmp_path: Path) -> None:
    await engine()
    solve = "head -c 80000000 /dev/zero >/app/big; for _ in {1..300}; do sleep .2; done\n"
    write_task(tmp_path / "greedy", TOML, solve=solve)
    spec = small(tmp_path, tasks="greedy", repeats=4, more="sandbox: docker\n")
    database = tmp_path / "x.duckdb"
    first = await run_experiment(spec, database)
    if "storage limit watched, not enforced" not in str(scalar(database, "SELECT notes FROM attempts")):
        pytest.skip("this engine holds a container's layer to a size itself")
    stopped = [ended for ended in first.ended.values() if ended.ended_by == "storage_limit"]
    assert stopped, "the greedy script was never played"
    assert {(ended.outcome, ended.error) for ended in stopped} == {("unscored", None)}
    assert all("passed 50 MB" in (ended.unscored_reason or "") for ended in stopped)
    assert (await run_experiment(spec, database)).ended == {}
