"""Sandboxes prepared ahead: which are taken, how many there are, and that none stays."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from harbor_tasks.errors import SandboxBroken, TaskRefused
from harbor_tasks.format import Task
from harbor_tasks.sandbox import Sandbox
from harbor_tasks.sandbox.docker import provision as provisioning
from harbor_tasks.sandbox.docker.backend import Docker
from harbor_tasks.sandbox.docker.container import DockerMachine
from harbor_tasks.sandbox.docker.images import Images
from harbor_tasks.sandbox.docker.pool import UNLIMITED_MB, Pool, memory_mb
from harbor_tasks.sandbox.docker.provision import Prepared, Provision
from tests.docker_engine import containers, docker, docker_task, engine
from tests.faulty_engine import Fault, Faults, faulty

pytestmark = pytest.mark.xdist_group("docker-leftovers")
PATIENCE_S = 90
CREATE = r"POST .*/containers/create"
START = r"POST .*/containers/[0-9a-f]+/start"


@pytest.fixture
async def backend() -> AsyncIterator[Docker]:
    """Nothing of this process's is in the engine before and after."""
    found = await engine()
    assert await containers(found) == set()
    yield await docker()
    assert await containers(found) == set()


def inside(sandbox: Sandbox) -> str:
    assert isinstance(sandbox, DockerMachine)
    return sandbox.container


async def ready(pool: Docker | Pool, number: int) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while pool.ready < number:  # noqa: ASYNC110 (no event tells of it)
            await asyncio.sleep(0.01)


async def test_a_trial_takes_a_container_that_stands_ready_and_the_next_one_another(
    backend: Docker, tmp_path: Path
) -> None:
    found, task = await engine(), docker_task(tmp_path)
    async with backend.ahead([task] * 3, 1):
        used: set[str] = set()
        for _ in range(3):
            await ready(backend, 1)
            standing = await containers(found)
            async with backend.start(task) as sandbox:
                assert inside(sandbox) in standing - used
                used.add(inside(sandbox))
                assert (await sandbox.exec("touch /app/mine; ls /app", timeout_s=60)).text == "mine\n"
            assert inside(sandbox) not in await containers(found)
        assert len(used) == 3
        # Whoever comes without having been announced is served as well.
        async with backend.start(task) as sandbox:
            assert inside(sandbox) not in used


async def test_each_task_gets_its_own_and_no_more_stand_ready_than_trials_run_at_a_time(
    backend: Docker, tmp_path: Path
) -> None:
    found = await engine()
    one, other = docker_task(tmp_path / "a"), docker_task(tmp_path / "b", "RUN echo other >/is\n")
    async with backend.ahead([one, other, one, other], 2):
        await ready(backend, 2)
        assert len(await containers(found)) == 2
        standing = await containers(found)
        async with backend.start(other) as sandbox:
            assert inside(sandbox) in standing
            assert (await sandbox.exec("cat /is", timeout_s=60)).text == "other\n"
            await ready(backend, 2)
            assert len(await containers(found)) == 3


async def pool_of(tasks: list[Task], most: int, memory: int) -> Pool:
    found = await engine()
    return Pool(Provision(found, Images(found)), tasks, most, memory)


async def test_what_is_in_use_and_what_stands_ready_fit_into_memory(backend: Docker, tmp_path: Path) -> None:
    toml = '[environment]\nnetwork_mode = "no-network"\nmemory_mb = 256\n'
    task, unlimited = docker_task(tmp_path / "a", toml=toml), docker_task(tmp_path / "b")
    pool = await pool_of([task] * 6, 6, 800)
    async with pool.open():
        await ready(pool, 3)
        async with pool.lease(task), pool.lease(task):
            # Two are in use, one stands ready; nothing else may be made, however long one waits.
            await asyncio.sleep(0.3)
            assert (pool.ready, len(await containers(await engine()))) == (1, 3)
        await ready(pool, 3)
    small = await pool_of([unlimited], 1, UNLIMITED_MB - 1)
    async with small.open():
        await asyncio.sleep(0.3)
        assert await containers(await engine()) == set()
        # The bound is on what is made ahead; a trial that comes is always served.
        async with small.lease(unlimited) as machine:
            assert (await machine.exec("echo on", timeout_s=60)).text == "on\n"


async def test_the_memory_of_the_engines_machine_bounds_what_is_prepared() -> None:
    found = await engine()
    assert 0 < memory_mb(found) <= int(found.info["MemTotal"]) // 1024**2


@pytest.mark.parametrize("how", ["killed", "removed"])
async def test_one_that_died_while_it_waited_is_replaced(backend: Docker, tmp_path: Path, how: str) -> None:
    found, task = await engine(), docker_task(tmp_path)
    async with backend.ahead([task], 1):
        await ready(backend, 1)
        (dead,) = await containers(found)
        if how == "removed":
            await found.call(lambda api: api.remove_container(dead, force=True))
        else:
            await found.call(lambda api: api.kill(dead))
            await found.call(lambda api: api.wait(dead, timeout=PATIENCE_S))
        async with backend.start(task) as sandbox:
            assert inside(sandbox) != dead
            assert await containers(found) == {inside(sandbox)}
            assert (await sandbox.exec("echo on", timeout_s=60)).text == "on\n"


async def test_a_cancelled_run_leaves_none_behind_at_whatever_moment_it_is_cancelled(
    backend: Docker, tmp_path: Path
) -> None:
    task = docker_task(tmp_path)
    await backend.image(task)

    async def run(own: Docker, started: asyncio.Event) -> None:
        async with own.ahead([task] * 4, 2), own.start(task):
            started.set()
            await asyncio.Event().wait()

    async def cancelled_after(wait_s: float | None) -> None:
        started = asyncio.Event()
        running = asyncio.create_task(run(Docker(), started))
        if wait_s is None:
            await started.wait()
        else:
            await asyncio.sleep(wait_s)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    async with asyncio.timeout(PATIENCE_S):
        await asyncio.gather(*map(cancelled_after, (0.0, 0.05, 0.1, 0.2, 0.4, 0.8, None)))
    assert await containers(await engine()) == set()


class Counting(Provision):
    """How often each task was prepared."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]  # handed on as they are
        self.tried: Counter[str] = Counter()

    async def prepared(self, task: Task, *, ahead: bool = False) -> Prepared:
        self.tried[task.digest] += 1
        return await super().prepared(task, ahead=ahead)


async def test_a_refused_task_is_tried_once_and_its_trials_alone_are_refused(backend: Docker, tmp_path: Path) -> None:
    found = await engine()
    good, bad = docker_task(tmp_path / "good"), docker_task(tmp_path / "bad", "RUN exit 3\n")
    provision = Counting(found, Images(found))
    pool = Pool(provision, [bad, good, bad, good], 2, 10_000)

    async def use(task: Task) -> str:
        async with pool.lease(task) as machine:
            return (await machine.exec("echo on", timeout_s=60)).text

    async with pool.open():
        ends = await asyncio.gather(*(use(task) for task in (bad, good, bad, good)), return_exceptions=True)
        with pytest.raises(TaskRefused):
            await use(bad)
    assert [ends[1], ends[3]] == ["on\n", "on\n"]
    for end in (ends[0], ends[2]):
        assert isinstance(end, TaskRefused)
        assert "Dockerfile line 2" in str(end)
    assert provision.tried[bad.digest] <= 2
    assert provision.tried[good.digest] == 2


class FailingOnce(Provision):
    """The engine fails while the first one is prepared."""

    failed = False

    async def prepared(self, task: Task, *, ahead: bool = False) -> Prepared:
        if not self.failed:
            self.failed = True
            raise SandboxBroken("Docker: it fails once")
        return await super().prepared(task, ahead=ahead)


async def test_what_could_not_be_prepared_ahead_is_made_when_its_trial_comes(backend: Docker, tmp_path: Path) -> None:
    found, task = await engine(), docker_task(tmp_path)
    provision = FailingOnce(found, Images(found))
    pool = Pool(provision, [task], 1, 10_000)
    async with pool.open():
        while not provision.failed:  # noqa: ASYNC110 (no event tells of it)
            await asyncio.sleep(0)
        for _ in range(5):
            await asyncio.sleep(0)
        assert pool.ready == 0
        async with pool.lease(task) as machine:
            assert (await machine.exec("echo on", timeout_s=60)).text == "on\n"


async def test_a_trial_that_is_cancelled_while_its_container_is_being_made_leaves_none(
    backend: Docker, tmp_path: Path
) -> None:
    task = docker_task(tmp_path)
    await backend.image(task)
    async with backend.ahead([task] * 2, 2):
        async with AsyncExitStack() as stack:
            coming = [asyncio.create_task(stack.enter_async_context(backend.start(task))) for _ in range(3)]
            await asyncio.sleep(0.05)
            coming[0].cancel()
            await asyncio.gather(*coming, return_exceptions=True)
        assert len(await containers(await engine())) == backend.ready == 0


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provisioning, "FIRST_WAIT_S", 0.01)
    monkeypatch.setattr(provisioning, "JITTER_S", 0.05)


@asynccontextmanager
async def behind(faults: Faults, folder: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Docker]:
    """A backend whose engine fails so."""
    where = (await engine()).place.url
    if not where.startswith("unix://"):
        pytest.skip("the engine is not at a socket of this machine")
    async with faulty(Path(where.removeprefix("unix://")), folder, faults) as address:
        with monkeypatch.context() as patched:
            patched.setenv("DOCKER_HOST", address)
            own = Docker()
            await own.probe()
        yield own


async def failing(folder: Path, monkeypatch: pytest.MonkeyPatch, faults: Faults, task: Task) -> str:
    """Runs a command in a sandbox of an engine that fails so; its output."""
    async with behind(faults, folder, monkeypatch) as own, own.ahead([], 1), own.start(task) as sandbox:
        assert await containers(await engine()) == {inside(sandbox)}
        return (await sandbox.exec("echo on", timeout_s=60)).text


@pytest.mark.parametrize(
    ("plan", "creates", "starts"),
    [
        ({CREATE: ["500", "500", "500"]}, 4, 1),
        ({CREATE: ["lost"]}, 2, 1),
        ({START: ["500", "lost"]}, 3, 3),
    ],
    ids=["three faults", "created, the answer lost", "not started, then the answer lost"],
)
@pytest.mark.usefixtures("quick")
async def test_a_fault_of_the_engine_is_tried_again_and_no_try_leaves_a_container(
    plan: dict[str, list[Fault]],
    creates: int,
    starts: int,
    backend: Docker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    faults = Faults(plan)
    assert await failing(tmp_path, monkeypatch, faults, docker_task(tmp_path)) == "on\n"
    assert (faults.count(CREATE), faults.count(START)) == (creates, starts)


@pytest.mark.usefixtures("quick")
async def test_a_container_that_could_not_be_removed_at_once_is_when_the_run_ends(
    backend: Docker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults, task = Faults({CREATE: ["lost"], "DELETE .*/containers/fullchain-": ["500"]}), docker_task(tmp_path)
    async with behind(faults, tmp_path, monkeypatch) as own, own.ahead([], 1):
        async with own.start(task) as sandbox:
            assert len(await containers(await engine()) - {inside(sandbox)}) == 1
        assert len(await containers(await engine())) == 1
    assert await containers(await engine()) == set()


@pytest.mark.usefixtures("quick")
async def test_what_the_engine_refuses_is_not_tried_again_and_faults_are_not_for_ever(
    backend: Docker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = docker_task(tmp_path)
    refusing = Faults({CREATE: ["400"]})
    with pytest.raises(SandboxBroken, match="as the test wants it"):
        await failing(tmp_path, monkeypatch, refusing, task)
    assert refusing.count(CREATE) == 1
    broken = Faults({CREATE: ["500"] * 9})
    with pytest.raises(SandboxBroken, match="as the test wants it"):
        await failing(tmp_path, monkeypatch, broken, task)
    assert broken.count(CREATE) == provisioning.TRIES == 4


async def test_taking_a_ready_one_asks_the_engine_one_short_question_and_its_shell_none(
    backend: Docker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults, task = Faults(), docker_task(tmp_path)
    async with behind(faults, tmp_path, monkeypatch) as own, own.ahead([task], 1):
        await own.warmed(task)
        faults.asked.clear()
        async with own.start(task) as sandbox:
            shell = await sandbox.shell()
            assert (await shell.run("echo on", timeout_s=60)).text == "on\n"
            assert faults.asked == [
                f"GET /v{(await engine()).api.api_version}/containers/{inside(sandbox)}/json HTTP/1.1"
            ]
            await shell.close()


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
async def test_an_engine_that_does_not_answer_in_time_is_asked_again(
    backend: Docker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provisioning, "READY_S", 10.0)
    faults = Faults({START: ["hang"]})
    assert await failing(tmp_path, monkeypatch, faults, docker_task(tmp_path)) == "on\n"
    assert faults.count(CREATE) == 2


async def test_only_one_run_at_a_time_prepares_ahead(backend: Docker, tmp_path: Path) -> None:
    async with backend.ahead([], 1):
        with pytest.raises(ValueError, match="another run"):
            async with backend.ahead([], 1):
                pass
