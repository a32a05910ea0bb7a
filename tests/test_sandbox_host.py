"""Host mode, for real: on this machine's own root, so only where we are root and nothing of ours stands there."""

# ruff: noqa: ASYNC220, ASYNC240 (a test's own loop may wait)

import asyncio
import fcntl
import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from experiments.cli import main
from experiments.errors import SpecError
from experiments.runner import run_experiment
from harbor_tasks.errors import SandboxMissing, TaskRefused
from harbor_tasks.format import Task, bundled_tasks, load_task
from harbor_tasks.sandbox import binary, host_folders
from harbor_tasks.sandbox.host import Host
from tests.experiment_files import SOLO, scalar, small, write_spec
from tests.sandbox_tasks import processes_with, write_task

FOLDERS = [Path(path) for path in ("/app", "/logs", "/tests", "/solution")]

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="host mode needs root")


@pytest.fixture(autouse=True)
def alone() -> Iterator[None]:
    """One of these tests at a time on this machine: they look at its root, and other processes may run them too."""
    with Path(tempfile.gettempdir(), "fullchain-host-tests.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (foreign := host_folders.foreign_folder(["app", "logs", "tests", "solution"])) is not None:
            pytest.skip(f"host mode makes and removes {foreign}")
        yield


@pytest.fixture
def bundled() -> Task:
    return load_task(bundled_tasks() / "checkout-incident")


@pytest.fixture
async def host() -> AsyncIterator[Host]:
    backend = Host()
    await backend.probe()
    yield backend
    assert not any(os.path.lexists(folder) for folder in FOLDERS)
    assert not host_folders.MARKER.exists()


async def test_a_trial_runs_in_real_folders_that_are_gone_afterwards(host: Host, bundled: Task, tmp_path: Path) -> None:
    async with host.start(bundled) as sandbox:
        assert all(folder.is_dir() for folder in FOLDERS)
        assert any(Path("/app").iterdir())
        assert "no isolation: ran on the machine itself, with its network" in sandbox.notes
        shell = await sandbox.shell()
        await shell.run("cd /tmp; export A='b c'; echo x >~/mine; echo x >$TMPDIR/mine", timeout_s=20)
        said = await shell.run("echo $A; pwd; cat ~/mine; python3 -c 'import numpy'; echo $HOME", timeout_s=20)
        home = Path(said.text.splitlines()[-1])
        assert said.text.startswith("b c\n/tmp\nx\n")
        assert home.parent.name.startswith("fullchain-host-")
        await sandbox.upload(bundled.tests, "/tests")
        await sandbox.download("/tests", tmp_path / "tests")
        assert sorted(os.listdir(tmp_path / "tests")) == sorted(os.listdir(bundled.tests))
        await sandbox.exec("mkdir -p /app/x/y; chmod 000 /app/x", timeout_s=20)
    assert not home.exists()


async def test_no_process_of_the_shell_survives_its_close(host: Host, bundled: Task) -> None:
    mark = f"hostleft{secrets.token_hex(6)}"
    async with host.start(bundled) as sandbox:
        shell = await sandbox.shell()
        other = await sandbox.shell()
        await other.run(f"bash -c 'echo >/app/other; sleep 60; true' other{mark} &", timeout_s=20)
        await shell.run(f"bash -c 'echo >/app/one; sleep 60; true' {mark} &", timeout_s=20)
        await shell.run(f"setsid -f env -i /bin/bash -c 'echo >/app/two; sleep 60; true' {mark}", timeout_s=20)
        await shell.run(f"(trap '' TERM HUP; setsid bash -c 'echo >/app/three; sleep 60; true' {mark} &)", timeout_s=20)
        await shell.run("until [ -e /app/one ] && [ -e /app/two ] && [ -e /app/three ]; do :; done", timeout_s=20)
        await other.run("until [ -e /app/other ]; do :; done", timeout_s=20)
        assert processes_with(f"\0{mark}")
        await shell.close()
        left = [pid for pid in processes_with(mark) if Path("/proc", str(pid), "environ").read_bytes()]
        assert left == processes_with(f"other{mark}")
        assert len(left) == 1
    assert [pid for pid in processes_with(mark) if Path("/proc", str(pid), "environ").read_bytes()] == []
    for pid in processes_with(mark):
        # It cleared its environment and began a session of its own: only a namespace would have held it.
        os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("name", ["parcel-history", "tenant-billing"])
async def test_tests_that_end_leftover_processes_spare_those_of_the_machine(host: Host, name: str) -> None:
    task, mark = load_task(bundled_tasks() / name), f"hosttests{secrets.token_hex(6)}"
    check = textwrap.dedent(
        f"""
        import pathlib, subprocess, time
        subprocess.Popen(["bash", "-c", "sleep 60; true", "{mark}"], start_new_session=True)
        pathlib.Path("/app/ready").touch()
        while not pathlib.Path("/app/begun").exists():
            time.sleep(0.01)
        """
    )
    async with host.start(task) as sandbox:
        await sandbox.upload(task.tests, "/tests")
        for path in Path("/tests").glob("*.py"):
            path.write_text(check)
        testing = asyncio.create_task(sandbox.exec("bash /tests/test.sh", timeout_s=40))
        while not Path("/app/ready").exists():
            assert not testing.done(), testing.result()
            await asyncio.sleep(0.01)
        with subprocess.Popen(["sleep", "60"]) as stranger:
            Path("/app/begun").touch()
            ended = await testing
            spared = stranger.poll() is None
            stranger.kill()
        assert spared
        assert Path("/logs/verifier/reward.txt").read_text() == "1\n", ended
        assert [pid for pid in processes_with(mark) if Path("/proc", str(pid), "environ").read_bytes()] == []


async def test_only_bundled_tasks_are_let_in(host: Host, tmp_path: Path) -> None:
    with pytest.raises(TaskRefused, match="task-under-test: host mode has no isolation and takes bundled tasks alone"):
        async with host.start(write_task(tmp_path)):
            pass


async def test_a_folder_that_exists_is_left_alone(host: Host, bundled: Task) -> None:
    Path("/solution").mkdir()
    try:
        (Path("/solution") / "precious").touch()
        with pytest.raises(SandboxMissing, match="/solution, which exists here"):
            await Host().probe()
        with pytest.raises(SandboxMissing, match="/solution, which exists here"):
            async with host.start(bundled):
                pass
        assert (Path("/solution") / "precious").exists()
        assert not Path("/app").exists()
    finally:
        (Path("/solution") / "precious").unlink()
        Path("/solution").rmdir()


async def test_one_trial_at_a_time(host: Host, bundled: Task) -> None:
    inside = 0

    async def trial() -> None:
        nonlocal inside
        async with host.start(bundled) as sandbox:
            inside += 1
            assert inside == 1
            await sandbox.exec("true", timeout_s=20)
            inside -= 1

    async with asyncio.TaskGroup() as group:
        for _ in range(3):
            group.create_task(trial())


async def test_what_a_killed_run_left_is_removed_by_the_next_start(host: Host, bundled: Task) -> None:
    mark = f"hostkilled{secrets.token_hex(6)}"
    program = textwrap.dedent(
        f"""
        import asyncio, os, pathlib
        from harbor_tasks.format import load_task
        from harbor_tasks.sandbox.host import Host

        async def main():
            async with Host().start(load_task(pathlib.Path({str(bundled.path)!r}))) as sandbox:
                shell = await sandbox.shell()
                mark = os.environ["MARK"]
                await shell.run(f"bash -c 'echo >/app/up; sleep 60; true' {{mark}} &", timeout_s=20)
                await shell.run("until [ -e /app/up ]; do :; done", timeout_s=20)
                print("up", flush=True)
                await shell.run("sleep 60", timeout_s=60)
        asyncio.run(main())
        """
    )
    environment = {**os.environ, "MARK": mark}
    with subprocess.Popen([sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        process.kill()
    assert Path("/app/up").exists()
    await Host().probe()
    async with host.start(bundled):
        assert not Path("/app/up").exists()
        assert processes_with(mark) == []


async def test_a_marker_cannot_make_us_remove_what_we_did_not_make(host: Host, bundled: Task, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").touch()
    marker = {"folders": [[str(precious), 1], [str(tmp_path), 0]], "private": str(precious), "mark": "none"}
    host_folders.MARKER.write_text(json.dumps(marker))
    async with host.start(bundled):
        pass
    assert (precious / "file").exists()


async def test_a_link_in_a_folders_place_goes_and_what_it_leads_to_stays(
    host: Host, bundled: Task, tmp_path: Path
) -> None:
    (tmp_path / "precious").touch()
    async with host.start(bundled) as sandbox:
        await sandbox.exec(f"cd /; rm -rf /app; ln -s {tmp_path} /app", timeout_s=20)
    assert not os.path.lexists("/app")
    assert (tmp_path / "precious").exists()


async def test_a_folder_in_the_place_of_a_killed_runs_is_refused_by_name(host: Host) -> None:
    Path("/app").mkdir()
    try:
        (Path("/app") / "precious").touch()
        for inode in (0, Path("/app").stat().st_ino + 1):
            host_folders.MARKER.write_text(json.dumps({"folders": [["/app", inode]], "private": "", "mark": "none"}))
            with pytest.raises(SandboxMissing, match="removes /app, but what is there now is not what an earlier run"):
                await host.probe()
    finally:
        (Path("/app") / "precious").unlink()
        Path("/app").rmdir()
        host_folders.MARKER.unlink()


@pytest.fixture
def without_bubblewrap(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine that has none."""
    monkeypatch.setattr(binary, "system_bwrap", lambda: None)
    monkeypatch.setattr(binary, "packaged_bwrap", lambda: None)


@pytest.mark.usefixtures("without_bubblewrap")
def test_where_no_sandbox_starts_a_run_goes_on_in_host_mode_and_says_so_loudly(
    host: Host, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    database = tmp_path / "x.duckdb"
    with pytest.raises(SystemExit) as end:
        main(["run", str(write_spec(tmp_path, repeats=2)), "--db", str(database)])
    table, said = capsys.readouterr()
    assert end.value.code == 0, said
    assert "[simulated: models and time are simulated, prices are real, no sandbox held the commands]" in table
    assert "warning: NO SANDBOX: commands run as root on this machine itself" in said
    assert "2 trials to run; sandbox host, 1 at a time" in said
    with pytest.raises(SystemExit) as end:
        main(["show", str(scalar(database, "SELECT min(id) FROM trials")), "--db", str(database)])
    (named,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("sandbox host: ")]
    assert "no isolation: ran on the machine itself, with its network" in named
    assert scalar(database, "SELECT list(DISTINCT backend) FROM attempts") == ["host"]
    assert scalar(database, "SELECT count(*) FROM trials WHERE outcome IN ('passed', 'failed')") == 2


@pytest.mark.usefixtures("without_bubblewrap")
@pytest.mark.parametrize("what", ["a real model", "a served simulator", "a task of the user"])
async def test_where_no_sandbox_starts_only_bundled_tasks_on_the_simulator_inside_are_let_in(
    host: Host, tmp_path: Path, what: str
) -> None:
    arms, tasks, served = SOLO, "bundled/archive-intake", None
    if what == "a real model":
        arms, reason = SOLO.replace("sim-deepseek-v4-flash", "local"), "to real models"
    elif what == "a served simulator":
        served, reason = "http://127.0.0.1:9", "to a served simulator"
    else:
        write_task(tmp_path)
        tasks, reason = "task-under-test", r"to tasks that are not bundled \(task-under-test\)"
    database = tmp_path / "x.duckdb"
    with pytest.raises(SpecError, match=f"no sandbox with isolation can start .* is refused {reason}"):
        await run_experiment(small(tmp_path, arms, tasks=tasks), database, simulator_url=served)
    assert not database.exists()
