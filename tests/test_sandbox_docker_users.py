"""Whose commands are whose: task.toml's agent.user and verifier.user inside a container, and where there is none."""

from pathlib import Path

import pytest

from harbor_tasks.check import solve
from harbor_tasks.errors import TaskRefused
from harbor_tasks.sandbox.lasting import LastingShell
from harbor_tasks.verifier import verify
from tests.docker_engine import docker, docker_task
from tests.sandbox_tasks import bubblewrap

USERS = "WORKDIR /app\nRUN useradd -m dev && useradd -m -u 4242 checker && chown dev /app\n"
NO_NETWORK = '[environment]\nnetwork_mode = "no-network"\n'
TEST = '#!/bin/bash\nid -u\n[ "$(stat -c %U /app/work) $(id -u)" = "WANTED" ] && echo 1 >/logs/verifier/reward.txt\n'


@pytest.mark.parametrize(("verifier", "number"), [("", 0), ("[verifier]\nuser = 4242\n", 4242)])
async def test_the_agent_and_the_verifier_run_as_who_they_are_to_be(tmp_path: Path, verifier: str, number: int) -> None:
    toml = f'{NO_NETWORK}[agent]\nuser = "dev"\n{verifier}'
    task = docker_task(tmp_path, USERS, toml=toml, files={"../tests/test.sh": TEST.replace("WANTED", f"dev {number}")})
    async with (await docker()).start(task) as sandbox:
        shell = LastingShell(sandbox, user=task.config.agent.user)
        said = await shell.run('echo x >work; echo "$(id -un) $HOME $PWD"; echo 1 >/tests/forged', timeout_s=20)
        await shell.close()
        assert said.text.splitlines()[0] == "dev /home/dev /app"
        assert "Permission denied" in said.text
        verdict = await verify(task, sandbox)
    assert (verdict.reward, verdict.unscored_reason, verdict.output) == (1.0, None, f"{number}\n")


async def test_what_the_agent_left_in_the_verifiers_way_is_cleared_for_another_user(tmp_path: Path) -> None:
    toml = f'{NO_NETWORK}[agent]\nuser = "dev"\n[verifier]\nuser = "checker"\n'
    task = docker_task(tmp_path, USERS, toml=toml, files={"../tests/test.sh": TEST.replace("WANTED", "dev 4242")})
    forged = (
        "touch work; mkdir /logs/verifier/reward.json; touch /logs/verifier/reward.json/x; chmod 0 /logs/verifier/*"
    )
    async with (await docker()).start(task) as sandbox:
        await sandbox.exec(f"{forged}; ln -s /app/work reward.txt", timeout_s=20, user="dev")
        assert (await verify(task, sandbox)).reward == 1.0


async def test_the_solution_runs_as_the_agents_user(tmp_path: Path) -> None:
    files = {"../solution/solve.sh": "#!/bin/bash\nid -un\n"}
    task = docker_task(tmp_path, USERS, toml=f'{NO_NETWORK}[agent]\nuser = "dev"\n', files=files)
    async with (await docker()).start(task) as sandbox:
        assert (await solve(task, sandbox)).text == "dev\n"


@pytest.mark.parametrize("table", ["agent", "verifier"])
async def test_a_sandbox_of_one_user_refuses_another_by_name(tmp_path: Path, table: str) -> None:
    task = docker_task(tmp_path, toml=f'{NO_NETWORK}[{table}]\nuser = "dev"\n')
    with pytest.raises(TaskRefused, match=rf"task\.toml {table}\.user: dev: this sandbox has one user"):
        async with (await bubblewrap()).start(task):
            pass
