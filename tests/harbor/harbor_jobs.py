"""Runs jobs of Harbor, from the environment that .ci/harbor sets up, in the engine that the Docker sandbox uses.

Harbor closes a task's network by a container of its own, of images that it fetches by digest: where none can be fetched
it refuses every task with `network_mode = "no-network"`. A task is therefore handed to it as a copy that says "public",
with an overlay of Compose that takes the network away.
"""

import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harbor_tasks.format import Task, load_task
from harbor_tasks.sandbox.docker.engine import Engine
from tests.docker_engine import on_base

if TYPE_CHECKING:
    from docker import APIClient

SET_UP = Path(__file__).resolve().parents[2] / ".ci" / "harbor"
SET_UP_S = 1200
JOB_S = 900
STOP_S = 30
"""For Harbor to take away what it started, once it is asked to stop."""
CLOSED = {"services": {"main": {"network_mode": "none"}}}
"""As Harbor ships it, but for the network."""
QUICK = {"services": {"main": {"network_mode": "none", "stop_grace_period": "0s"}}}
"""Harbor's containers do not hear that they are to stop: each trial would wait ten seconds for them to be killed."""

OPEN = {"services": {"main": {"stop_grace_period": "0s"}}}
"""With a network of its own, as a public task has."""

_PROJECT = "com.docker.compose.project"
_PASSED_ON = ("PATH", "LANG", "LC_ALL", "TMPDIR", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH")


class Unavailable(Exception):
    """Harbor cannot run here; the message says why."""


class HarborFailed(Exception):
    """Harbor ended before its job did, or wrote no results."""


@dataclass(frozen=True, slots=True)
class HarborTrial:
    """What Harbor wrote of one trial. `task` is the directory's name, `error` the type of its exception, `seconds` its
    own time from start to finish, without the start of the program."""

    task: str
    agent: str
    rewards: dict[str, float] | None
    error: str | None
    seconds: float


@dataclass(frozen=True, slots=True)
class Harbor:
    """`folder` is what .ci/harbor printed."""

    folder: Path
    engine: Engine

    async def run(
        self,
        tasks: Sequence[Path],
        agents: Sequence[str],
        folder: Path,
        *,
        overlay: dict[str, Any] = QUICK,
        concurrency: int = 2,
    ) -> list[HarborTrial]:
        """One job: each agent on each task, in order of task and agent. `folder` is new and takes all that it writes.

        However it ends, none of its processes, containers, networks, volumes and images is left. Raises HarborFailed,
        also when the job takes longer than JOB_S.
        """
        job = _job(tasks, agents, folder, overlay, concurrency)
        try:
            said = await self._python([str(self.folder / "venv" / "bin" / "harbor"), "run", "-y", "-c", job], folder)
        finally:
            await self._sweep(folder)
        trials = _trials(folder)
        if len(trials) != len(tasks) * len(agents):
            raise HarborFailed(f"{len(trials)} results of {len(tasks) * len(agents)}: {said[-2000:]}")
        return trials

    async def read_tasks(self, texts: Sequence[str]) -> list[dict[str, Any]]:
        """What Harbor reads from each text of a task.toml, with its defaults."""
        code = (
            "import json, sys; from harbor.models.task.config import TaskConfig; "
            "print(json.dumps([TaskConfig.model_validate_toml(text).model_dump(mode='json') for text in sys.argv[1:]]))"
        )
        with tempfile.TemporaryDirectory() as home:
            read: list[dict[str, Any]] = json.loads(await self._python(["-c", code, *texts], Path(home)))
        return read

    async def left(self, folder: Path) -> list[str]:
        """What is still in the engine of the job that wrote `folder`: kind and name each."""
        found = []
        for project in _projects(folder):
            for kind, name in await self.engine.call(partial(_things, project=project)):
                found.append(f"{kind} {name}")
        return found

    async def _python(self, arguments: Sequence[str], home: Path) -> str:
        """Runs Harbor's interpreter with `home` as its home. Returns what it printed; raises HarborFailed."""
        env = {name: os.environ[name] for name in _PASSED_ON if name in os.environ} | {
            "HOME": str(home),
            "XDG_CACHE_HOME": str(home / "cache"),
            "DOCKER_CONFIG": str(self.folder / "docker"),
            "DOCKER_HOST": self.engine.place.url,
            "HARBOR_TELEMETRY": "0",
        }
        running = await asyncio.create_subprocess_exec(
            str(self.folder / "venv" / "bin" / "python"),
            *arguments,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            cwd=home,
            env=env,
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(JOB_S):
                said = (await running.communicate())[0].decode("utf-8", errors="replace")
        except TimeoutError:
            raise HarborFailed(f"not done after {JOB_S} s") from None
        finally:
            await _ended(running)
        if running.returncode:
            raise HarborFailed(f"Harbor ended with {running.returncode}: {said[-2000:]}")
        return said

    async def _sweep(self, folder: Path) -> None:
        """What a Harbor that was stopped has left. What its last request makes may come a moment after it."""
        for _ in range(3):
            for project in _projects(folder):
                await self.engine.call(partial(_remove, project=project))
            if not await self.left(folder):
                return
            await asyncio.sleep(0.5)


async def harbor(engine: Engine) -> Harbor:
    """Set up, the first time over the package index. Raises Unavailable."""
    running = await asyncio.create_subprocess_exec(
        sys.executable, str(SET_UP), stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    try:
        async with asyncio.timeout(SET_UP_S):
            out, errors = await running.communicate()
    except TimeoutError:
        raise Unavailable(f"{SET_UP.name} was not done after {SET_UP_S} s") from None
    finally:
        await _ended(running)
    if running.returncode:
        raise Unavailable((errors.decode(errors="replace").strip().splitlines() or ["it said nothing"])[-1])
    return Harbor(Path(out.decode().strip()), engine)


async def oracle_seconds(task: Path, harbor: Harbor, *, overlay: dict[str, Any] = QUICK) -> float:
    """One trial of Harbor's oracle on a task that Harbor can run here (see `for_harbor`).

    The seconds that Harbor itself counts: building the image (from the engine's cache, when it has been built before),
    the container's start, the solution, the tests, and until all of it is gone again. CLOSED as overlay times Harbor as
    it is shipped. Raises HarborFailed, also when the task's own solution does not pass.
    """
    with tempfile.TemporaryDirectory() as folder:
        [trial] = await harbor.run([task], ["oracle"], Path(folder, "job"), overlay=overlay)
    if trial.rewards is None or trial.rewards.get("reward") != 1.0:
        raise HarborFailed(f"the oracle did not pass {trial.task}: {trial.rewards or trial.error}")
    return trial.seconds


def for_harbor(task: Task, folder: Path) -> tuple[Task, Path]:
    """A copy of a bundled task on the image that is there, and the same with a network by its word: for Harbor."""
    ours = on_base(task, folder / "ours")
    theirs = folder / "harbor" / task.name
    shutil.copytree(ours.path, theirs)
    path = theirs / "task.toml"
    text, changed = re.subn(r'^network_mode = "no-network"$', 'network_mode = "public"', path.read_text(), flags=re.M)
    assert changed == 1, f"{path} has no network_mode to open"
    path.write_text(text)
    return ours, load_task(theirs).path


def _job(tasks: Sequence[Path], agents: Sequence[str], folder: Path, overlay: dict[str, Any], concurrency: int) -> str:
    """The path of a job's configuration."""
    folder.mkdir()
    compose, path = folder / "overlay.json", folder / "job.json"
    compose.write_text(json.dumps(overlay))
    job = {
        "job_name": "job",
        "jobs_dir": str(folder),
        "n_concurrent_trials": concurrency,
        "quiet": True,
        "environment": {"type": "docker", "extra_docker_compose": [str(compose)]},
        "agents": [{"name": agent} for agent in agents],
        "tasks": [{"path": str(task)} for task in tasks],
    }
    path.write_text(json.dumps(job))
    return str(path)


def _trials(folder: Path) -> list[HarborTrial]:
    return sorted(map(_trial, folder.glob("job/*/result.json")), key=lambda trial: (trial.task, trial.agent))


def _trial(path: Path) -> HarborTrial:
    read = json.loads(path.read_text(encoding="utf-8"))
    began, ended = (datetime.fromisoformat(read[key]) for key in ("started_at", "finished_at"))
    return HarborTrial(
        Path(read["task_id"]["path"]).name,
        read["agent_info"]["name"],
        (read["verifier_result"] or {}).get("rewards"),
        (read["exception_info"] or {}).get("exception_type"),
        (ended - began).total_seconds(),
    )


def _projects(folder: Path) -> list[str]:
    """Of Compose: Harbor names one after each trial, whose folder it makes first."""
    trials = [path.name for path in folder.glob("job/*") if path.is_dir()]
    return [re.sub(r"[^a-z0-9_-]", "-", f"{name}__env".lower()) for name in trials]


def _things(api: "APIClient", *, project: str) -> list[tuple[str, str]]:
    labelled = {"label": f"{_PROJECT}={project}"}
    return [
        *(("container", each["Id"]) for each in api.containers(all=True, filters=labelled)),
        *(("network", each["Id"]) for each in api.networks(filters=labelled)),
        *(("volume", each["Name"]) for each in api.volumes(filters=labelled)["Volumes"] or ()),
        *(("image", tag) for each in api.images(f"{project}-main") for tag in each["RepoTags"] or ()),
    ]


def _remove(api: "APIClient", *, project: str) -> None:
    from docker.errors import APIError

    for kind, name in _things(api, project=project):
        # Another hand was quicker, or it is in use for a moment more: the next sweep tells.
        with contextlib.suppress(APIError):
            if kind == "container":
                api.remove_container(name, force=True, v=True)
            elif kind == "network":
                api.remove_network(name)
            elif kind == "volume":
                api.remove_volume(name, force=True)
            else:
                api.remove_image(name, force=True)


async def _ended(running: asyncio.subprocess.Process) -> None:
    """Asks it to stop, where it has not, then ends its whole process group."""
    if running.returncode is not None:
        return
    with contextlib.suppress(ProcessLookupError, TimeoutError):
        running.terminate()
        async with asyncio.timeout(STOP_S):
            await running.communicate()
    with contextlib.suppress(ProcessLookupError):
        os.killpg(running.pid, signal.SIGKILL)
    await running.wait()
