"""A running bubblewrap sandbox is copied: nobody inside can tell, and the copy is verified like the original."""

import asyncio
from pathlib import Path

import pytest

from harbor_tasks.check import solve
from harbor_tasks.errors import SandboxBroken, StateUnfit
from harbor_tasks.format import Task
from harbor_tasks.kept_state import verify_state
from harbor_tasks.sandbox import Backend, Sandbox, state_archive
from harbor_tasks.sandbox.copied_files import Layout
from harbor_tasks.sandbox.host import Host
from harbor_tasks.verifier import verify
from tests.known_diffs import TASKS, scripts_of
from tests.sandbox_tasks import bubblewrap, processes_with, write_task

VERIFIED = ("archive-intake", "checkout-incident")


async def said(sandbox: Sandbox, command: str) -> str:
    return (await sandbox.exec(command, timeout_s=30)).text


LEAVES = (
    "mkdir -p /app/closed/in /root/x; echo one >/app/closed/in/a; chmod 400 /app/closed/in/a; chmod 500 /app/closed/in "
    "/app/closed; ln -s /etc/passwd /app/link; touch -d '2001-02-03 04:05:06.789' /app/old; echo k >/root/x/k; "
    "mkfifo /app/pipe; rm -rf /logs/agent; chmod 711 /srv; echo -e 'odd\\xff' >$'/app/odd\\xff\\n'"
)
LOOK = (
    "for path in /app /root /logs /srv /tmp /opt; do find $path -printf '%p %y %m %s %T@ %l\\n'; done | "
    "grep -av pipe | LC_ALL=C sort; cat /app/odd* /root/x/k"
)
TIMES = "find /app /root /srv /logs /tmp ! -type l -printf '%p %m %n %A@ %T@ %C@\\n' | LC_ALL=C sort"


async def test_the_copy_has_all_that_the_original_had_with_modes_times_and_links(tmp_path: Path) -> None:
    backend, task = await bubblewrap(), write_task(tmp_path, files={"a": "b"})
    async with backend.start(task) as original:
        await said(original, LEAVES)
        left = await said(original, LOOK)
        assert "/app/closed/in/a f 400 4" in left
        async with backend.copied(task, original) as copy:
            await said(original, "echo changed >/app/old; rm -rf /root/x")
            async with copy.start() as twin:
                assert await said(twin, LOOK) == left
                await said(twin, "chmod -R u+rwx /app; rm -rf /app/*; echo twin >/srv/twin")
            async with copy.start() as another:
                assert await said(another, LOOK) == left, "the copy can be started again"
        assert await said(original, "cat /app/old; ls /srv /app/closed/in") == "changed\n/app/closed/in:\na\n\n/srv:\n"


async def test_nobody_inside_can_tell_that_a_copy_was_taken(tmp_path: Path) -> None:
    backend, task = await bubblewrap(), write_task(tmp_path, files={"a": "b"})
    async with backend.start(task) as original:
        await said(original, LEAVES)
        shell = await original.shell()
        seen = "for n in {1..400}; do ps -e -o args= >>/tmp/seen; [ -e /tmp/stop ] && break; sleep 0.01; done"
        await shell.run(f"({seen}; touch /tmp/stopped) & sleep 0.2", timeout_s=10)
        # The first look reads the directories, and says so in their times.
        await said(original, TIMES)
        before = await said(original, f"{TIMES} | grep -av /tmp")
        async with backend.copied(task, original) as copy:
            after = await said(original, f"{TIMES} | grep -av /tmp")
            assert after == before
            async with copy.start() as twin:
                assert await said(twin, "pgrep -c sleep") == "0\n", "processes are not copied"
        await said(original, "touch /tmp/stop; while [ ! -e /tmp/stopped ]; do sleep 0.01; done")
        assert int(await said(original, "grep -c 'sleep 0.01\\|ps -e' /tmp/seen")) > 0
        assert await said(original, "grep -c 'tar ' /tmp/seen") == "0\n"
        await shell.close()


async def test_what_even_its_owner_may_not_read_is_said_and_nothing_is_copied(tmp_path: Path) -> None:
    backend, task = await bubblewrap(), write_task(tmp_path)
    async with backend.start(task) as original:
        await said(original, "echo x >/app/secret; chmod 000 /app/secret")
        with pytest.raises(SandboxBroken, match="Cannot open: Permission denied"):
            async with backend.copied(task, original):
                pass
        assert await said(original, "stat -c %a /app/secret") == "0\n"


async def kept(backend: Backend, task: Task, script: Path, target: Path) -> float | None:
    """The reward of the original; the state before it was verified is in `target`."""
    async with backend.start(task) as original:
        await solve(task, original, script)
        async with backend.copied(task, original) as copy, copy.start() as twin:
            files, layout = await copy.files(twin)
            with target.open("wb") as archive:
                state_archive.pack(files, layout, archive)
            shadow = await verify(task, twin)
        assert "test.sh" not in await said(original, "ls /tests"), "tests are brought to the copy alone"
        truth = await verify(task, original)
        assert shadow.rewards == truth.rewards
        return truth.reward


@pytest.mark.timeout(300)
@pytest.mark.parametrize("task", [t for t in TASKS if t.name in VERIFIED], ids=lambda task: task.name)
async def test_a_kept_state_is_verified_again_with_the_same_truth(task: Task, tmp_path: Path) -> None:
    backend = await bubblewrap()
    right, wrong, *_ = scripts_of(task)
    rewards = []
    for script in (right, wrong):
        archive = tmp_path / f"{script.stem}.tar.gz"
        rewards.append(await kept(backend, task, script, archive))
        assert (await verify_state(task, archive, backend)).reward == rewards[-1]
    assert rewards[0] == 1.0
    assert rewards[1] is not None
    assert rewards[1] < 1.0


async def test_a_state_that_was_changed_or_taken_elsewhere_is_refused(tmp_path: Path) -> None:
    backend, task = await bubblewrap(), write_task(tmp_path)
    archive = tmp_path / f"{'0' * 64}.tar.gz"
    async with backend.start(task) as original:
        async with backend.copied(task, original) as copy, copy.start() as twin:
            files, layout = await copy.files(twin)
            with archive.open("wb") as target:
                name = state_archive.pack(files, layout, target)
            with pytest.raises(StateUnfit, match=f"it was changed: its content has the hash {name}"):
                await verify_state(task, archive, backend)
            with pytest.raises(StateUnfit, match="taken in docker"):
                async with backend.restored(task, files, Layout("docker", ())):
                    pass
        with pytest.raises(SandboxBroken, match="of which there is no copy"):
            Host().copied(task, original)
    with pytest.raises(FileNotFoundError):
        await verify_state(task, tmp_path / "none.tar.gz", backend)


async def test_a_copy_that_is_cancelled_leaves_no_sandbox_behind(tmp_path: Path) -> None:
    backend, task = await bubblewrap(), write_task(tmp_path)
    mark = f"9{abs(hash(str(tmp_path))) % 10**8}"

    async def look(original: Sandbox) -> None:
        async with backend.copied(task, original) as copy, copy.start() as twin:
            await twin.exec(f"sleep {mark}", timeout_s=100)

    async with backend.start(task) as original:
        looking = asyncio.create_task(look(original))
        while not processes_with(mark):
            await asyncio.sleep(0.02)
            assert not looking.done()
        looking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await looking
        assert processes_with(mark) == []
        assert await said(original, "echo lives") == "lives\n"
