"""Hostile agents in a container: none outlives its shell, and what it spoils is its own."""

import json
from pathlib import Path

import pytest

from experiments.runner import run_experiment
from harbor_tasks.errors import SandboxMissing, SandboxSpoiled, TaskRefused
from harbor_tasks.sandbox.backends import choose
from harbor_tasks.sandbox.docker.engine import find
from harbor_tasks.sandbox.lasting import LastingShell
from harbor_tasks.verifier import verify
from tests.docker_engine import docker, docker_task, engine
from tests.experiment_files import small
from tests.sandbox_tasks import bubblewrap
from tests.task_directory import write_task

CLOSED = '[environment]\nnetwork_mode = "no-network"\nmemory_mb = 128\n'
HOP = """
import os, time
if os.fork(): os._exit(0)
os.setsid()
end = time.time() + 60
while time.time() < end:
    if os.fork(): os._exit(0)
    if os.path.exists('/logs/verifier/reward.txt'):
        open('/logs/verifier/reward.json', 'w').write('{"reward": 1.0}')
        os._exit(0)
"""
FAILS = "#!/bin/bash\necho 0 >/logs/verifier/reward.txt\nsleep 0.3\n"


async def test_a_process_that_changes_its_number_faster_than_it_is_listed_does_not_outlive_its_shell(
    tmp_path: Path,
) -> None:
    lines = "RUN useradd -m app\nUSER app\n"
    task = docker_task(tmp_path, lines, toml=CLOSED, files={"../tests/test.sh": FAILS})
    async with (await docker()).start(task) as sandbox:
        for _ in range(3):
            shell = LastingShell(sandbox)
            await shell.run(
                f"cat >/tmp/hop.py <<'END'{HOP}END\nfor i in 1 2 3; do python3 /tmp/hop.py; done", timeout_s=20
            )
            await shell.close()
            assert (await verify(task, sandbox)).rewards == {"reward": 0.0}


async def test_memory_that_files_hold_keeps_no_work_from_being_scored(tmp_path: Path) -> None:
    task = docker_task(tmp_path, toml=CLOSED)
    full = "for to in /dev/shm /run/fullchain; do dd if=/dev/zero of=$to/x bs=1M count=64; done"
    async with (await docker()).start(task) as sandbox:
        shell = LastingShell(sandbox)
        await shell.run(full, timeout_s=20)
        await shell.close()
        assert (await sandbox.exec("echo on", timeout_s=20)).text == "on\n"
        assert (await verify(task, sandbox)).reward == 1.0


async def test_a_file_in_place_of_the_working_directory_keeps_no_work_from_being_scored(tmp_path: Path) -> None:
    task = docker_task(tmp_path, toml=CLOSED)
    async with (await docker()).start(task) as sandbox:
        await sandbox.exec("cd / && rm -rf /app && touch /app", timeout_s=20)
        assert (await verify(task, sandbox)).reward == 1.0


@pytest.mark.parametrize("command", ["rm -f /bin/bash", "rm -rf /var; touch /var"])
async def test_who_takes_the_shell_away_has_spoiled_the_sandbox(tmp_path: Path, command: str) -> None:
    async with (await docker()).start(docker_task(tmp_path, toml=CLOSED)) as sandbox:
        await sandbox.exec(command, timeout_s=20)
        with pytest.raises(SandboxSpoiled):
            await sandbox.exec("true", timeout_s=20)


async def test_a_run_books_a_spoiled_sandbox_as_the_agents_end_and_tries_it_no_second_time(tmp_path: Path) -> None:
    await engine()
    write_task(tmp_path / "spoilt", CLOSED, solve="rm -f /bin/bash\n")
    spec, database = small(tmp_path, tasks="spoilt", repeats=4, more="sandbox: docker\n"), tmp_path / "x.duckdb"
    ended = (await run_experiment(spec, database)).ended.values()
    assert "sandbox_spoiled" in {each.ended_by for each in ended}, "the spoiling script was never played"
    assert "infra_error" not in {each.ended_by for each in ended}
    assert (await run_experiment(spec, database)).ended == {}


@pytest.mark.parametrize(("limit", "least"), [("memory_mb = 4", "6 or more"), ("cpus = 0.001", "0.01 or more")])
async def test_less_than_docker_can_give_is_refused_by_its_field(tmp_path: Path, limit: str, least: str) -> None:
    backend = await docker()
    with pytest.raises(TaskRefused, match=rf"task\.toml environment\.{limit.split()[0]}: .*{least}"):
        async with backend.start(docker_task(tmp_path, toml=f"[environment]\n{limit}\n")):
            pass


async def test_the_password_of_a_proxy_enters_no_container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await engine()
    proxies = {"default": {"httpProxy": "http://user:s3cret@127.0.0.1:9"}}
    (tmp_path / "config.json").write_text(json.dumps({"proxies": proxies}))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    task = docker_task(tmp_path, "RUN env >/built\n", toml=CLOSED)
    async with (await docker()).start(task) as sandbox:
        assert "s3cret" not in (await sandbox.exec("env; cat /built", timeout_s=20)).text


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:notaport", "tcp://[::1", "unix:///nowhere/docker.sock"])
async def test_an_engine_that_was_asked_for_and_cannot_be_had_is_named(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bubblewrap()
    monkeypatch.setenv("DOCKER_HOST", address)
    with pytest.raises(SandboxMissing) as missing:
        await find()
    assert "\n" not in str(missing.value)
    backend = await choose("auto", [docker_task(tmp_path, toml=CLOSED)])
    assert backend.name == "bubblewrap"
    assert (backend.warning or "").startswith("bubblewrap is taken, not Docker: docker: ")
