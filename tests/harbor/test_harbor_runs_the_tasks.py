"""Harbor's oracle and its agent that does nothing, on the bundled tasks: the rewards are those of the Docker sandbox.

Opt-in (`make test-harbor`): it installs Harbor once, into the user's cache.
"""

import asyncio
import os
import subprocess
import sys
import tomllib
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from harbor_tasks.check import CheckResult, check
from harbor_tasks.config import TaskConfig
from harbor_tasks.format import bundled_tasks, load_tasks
from harbor_tasks.sandbox.docker.backend import Docker
from tests.docker_engine import docker_task, engine
from tests.harbor import harbor_jobs
from tests.harbor.harbor_jobs import SET_UP, Harbor, HarborTrial, Unavailable, for_harbor, harbor

pytestmark = [pytest.mark.harbor, pytest.mark.timeout(1800), pytest.mark.xdist_group("harbor")]

TASKS, _ = load_tasks(bundled_tasks())
STARTED_S = 300
OLD_SPELLING = 'version = "1.0"\n[environment]\nmemory = "2G"\nstorage = "10G"\nallow_internet = false\n'
UNSET: tuple[object, ...] = ([], 0, "mean", "shared")
"""What ours says where Harbor leaves a field open and decides the same when it comes to use it."""


async def ready() -> Harbor:
    """Skips the test, with the reason, where Harbor cannot run."""
    if os.environ.get("FULLCHAIN_HARBOR") != "1":
        pytest.skip("opt-in: make test-harbor")
    found = await engine()
    try:
        return await harbor(found)
    except Unavailable as why:
        pytest.skip(str(why))


@dataclass(frozen=True)
class Both:
    """Of the same copies, by the task's name: Harbor's trials by agent, and our check. `left` of Harbor's job."""

    trials: dict[str, dict[str, HarborTrial]]
    checks: dict[str, CheckResult]
    left: list[str]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Both:
    folder = tmp_path_factory.mktemp("harbor")

    async def run() -> Both:
        there = await ready()
        copies = [for_harbor(task, folder) for task in TASKS]
        ran = await there.run([theirs for _, theirs in copies], ["oracle", "nop"], folder / "run")
        trials: dict[str, dict[str, HarborTrial]] = {}
        for trial in ran:
            trials.setdefault(trial.task, {})[trial.agent] = trial
        backend = Docker()
        # Their wrong solutions are for another test.
        checks = {ours.name: await check(replace(ours, wrong=()), backend) for ours, _ in copies}
        return Both(trials, checks, await there.left(folder / "run"))

    return asyncio.run(run())


@pytest.mark.parametrize("name", [task.name for task in TASKS])
def test_harbors_oracle_passes_its_nop_fails_and_our_sandbox_says_the_same(both: Both, name: str) -> None:
    trials, legs = both.trials[name], {leg.name: leg for leg in both.checks[name].legs}
    assert {agent: trial.error for agent, trial in trials.items()} == {"nop": None, "oracle": None}
    rewards = {agent: (trial.rewards or {}).get("reward") for agent, trial in trials.items()}
    assert rewards == {"nop": legs["nothing"].reward, "oracle": legs["solution"].reward}
    assert rewards["oracle"] == 1.0
    assert rewards["nop"] is not None
    assert rewards["nop"] < 1.0
    assert [(leg.name, leg.reason) for leg in legs.values() if not leg.ok] == []


def test_a_job_of_harbor_leaves_nothing_in_the_engine(both: Both) -> None:
    assert both.left == []


@pytest.mark.parametrize("grace_s", [60, 0], ids=["asked to stop", "killed"])
async def test_a_job_that_is_given_up_leaves_nothing_either(
    grace_s: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = await ready()
    monkeypatch.setattr(harbor_jobs, "STOP_S", grace_s)
    task = docker_task(tmp_path / "endless", "WORKDIR /app\n", toml='[environment]\nnetwork_mode = "public"\n')
    solution = task.path / "solution"
    solution.mkdir(exist_ok=True)
    (solution / "solve.sh").write_text("#!/bin/bash\nsleep 3600\n")
    job = asyncio.create_task(there.run([task.path], ["oracle"], tmp_path / "run", overlay=harbor_jobs.OPEN))
    async with asyncio.timeout(STARTED_S):
        while kinds(await there.left(tmp_path / "run")) != {"container", "image", "network"}:
            assert not job.done(), job.result()
            await asyncio.sleep(0.2)
    job.cancel()
    with pytest.raises(asyncio.CancelledError):
        await job
    assert await there.left(tmp_path / "run") == []


@pytest.mark.parametrize(
    ("programs", "why"),
    [
        ([], "harbor: no docker command on PATH: install"),
        (["docker"], "harbor: no Python 3.12 or newer"),
        (["docker", "python3.12"], "harbor: no docker compose (version 2), and no apt to fetch it with: install"),
    ],
    ids=["docker", "python", "compose"],
)
def test_what_is_missing_on_a_machine_is_said_in_one_line(programs: list[str], why: str, tmp_path: Path) -> None:
    # They end well and say nothing: a Python that is new enough, a client without plugins.
    for program in programs:
        (tmp_path / program).symlink_to("/bin/true")
    places = {"PATH": str(tmp_path), "HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = subprocess.run([sys.executable, SET_UP], env=places, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith(why)
    assert done.stderr.count("\n") == 1


async def test_harbor_reads_the_same_from_a_task_toml() -> None:
    there = await ready()
    texts = [*((task.path / "task.toml").read_text(encoding="utf-8") for task in TASKS), "", OLD_SPELLING]
    for text, theirs in zip(texts, await there.read_tasks(texts), strict=True):
        ours = TaskConfig.model_validate(tomllib.loads(text)).model_dump(mode="json")
        assert differences(ours, theirs) == [], text


def kinds(things: list[str]) -> set[str]:
    return {thing.split()[0] for thing in things}


def differences(ours: object, theirs: object, name: str = "") -> list[str]:
    if isinstance(ours, dict) and isinstance(theirs, dict):
        keys = ours.keys() | theirs.keys()
        assert ours.keys() == theirs.keys(), f"{name}: {ours.keys() ^ theirs.keys()}"
        return [fault for key in sorted(keys) for fault in differences(ours[key], theirs[key], f"{name}.{key}")]
    if ours == theirs or (theirs is None and ours in UNSET):
        return []
    return [f"{name}: {ours!r} here, {theirs!r} there"]
