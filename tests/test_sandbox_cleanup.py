"""What is gone when a shell or a bubblewrap sandbox is closed, cancelled or killed: its processes and its folder."""

# ruff: noqa: ASYNC220, ASYNC240, ASYNC251 (a test's own loop may wait)

import asyncio
import os
import secrets
import signal
import subprocess
import sys
import textwrap
import time
from contextlib import suppress
from pathlib import Path

import pytest

from harbor_tasks.errors import SandboxBroken
from harbor_tasks.sandbox.bwrap_process import Bwrap
from harbor_tasks.sandbox.state import remove_leftovers
from tests.sandbox_tasks import bubblewrap, processes_with, write_task


async def test_no_process_of_the_agent_is_left_when_the_shell_is_closed(tmp_path: Path) -> None:
    mark = f"survivor{secrets.token_hex(6)}"
    async with (await bubblewrap()).start(write_task(tmp_path)) as sandbox:
        shell = await sandbox.shell()
        rewrite = f"trap '' HUP TERM INT; while :; do echo 1 >/app/reward; sleep .01; done # {mark}"
        started = await shell.run(
            f'setsid -f bash -c "{rewrite}" {mark}; (bash -c "{rewrite}" {mark} &); '
            "until [ -e /app/reward ]; do :; done",
            timeout_s=20,
        )
        assert started.exit_code == 0
        # The file tells that one of the two runs; the other may be on its way.
        deadline = time.monotonic() + 20
        while len(processes_with(mark)) < 2 and time.monotonic() < deadline:  # noqa: ASYNC110 (no event)
            await asyncio.sleep(0.02)
        assert len(processes_with(mark)) >= 2
        await shell.close()
        # No wait in between: the promise is that they are gone when close returns.
        assert processes_with(mark) == []
        await sandbox.exec("rm /app/reward", timeout_s=10)
        assert await sandbox.read("/app/reward") is None
        with pytest.raises(SandboxBroken, match="closed"):
            await shell.run("true", timeout_s=5)


async def test_a_closed_sandbox_leaves_neither_folder_nor_process(tmp_path: Path) -> None:
    mark = f"left{secrets.token_hex(6)}"
    async with (await bubblewrap()).start(write_task(tmp_path)) as sandbox:
        folder: Path = sandbox._slot.folder  # type: ignore[attr-defined] # where it stands
        shell = await sandbox.shell()
        await shell.run(f"bash -c 'sleep 60; true' {mark} & ", timeout_s=10)
        deep = "import os\nfor _ in range(1200):\n os.mkdir('d'); os.chdir('d')\n"
        await sandbox.exec(
            f'python3 -c "{deep}"; mkdir -p /app/n/m; touch /app/n/m/f; chmod 000 /app/n/m /app/n /tmp', timeout_s=30
        )
        assert folder.exists()
    assert not folder.exists()
    assert processes_with(mark) == []


async def test_cancelling_a_trial_in_the_middle_of_a_command_cleans_up(tmp_path: Path) -> None:
    mark = f"cancelled{secrets.token_hex(6)}"
    backend = await bubblewrap()
    task = write_task(tmp_path)
    folders: list[Path] = []

    async def trial() -> None:
        async with backend.start(task) as sandbox:
            folders.append(sandbox._slot.folder)  # type: ignore[attr-defined] # where it stands
            shell = await sandbox.shell()
            await shell.run(f"bash -c 'sleep 60; true' {mark}", timeout_s=60)

    running = asyncio.create_task(trial())
    for _ in range(600):
        if processes_with(mark):
            break
        await asyncio.sleep(0.05)
    assert processes_with(mark)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert processes_with(mark) == []
    assert not folders[0].exists()


async def test_closing_a_bwrap_that_has_just_ended_keeps_its_exit_code(caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(10):
        process = await asyncio.create_subprocess_exec("/bin/sh", "-c", "exit 3")
        with suppress(ChildProcessError):
            # It has ended, and the event loop, which this holds up, cannot know.
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # noqa: ASYNC222
        await Bwrap(process, -1).kill()
        assert process.returncode == 3
    assert caplog.messages == []


async def test_a_killed_run_leaves_no_process_and_the_next_start_removes_its_folder(tmp_path: Path) -> None:
    await bubblewrap()
    mark = f"killed{secrets.token_hex(6)}"
    task = write_task(tmp_path)
    program = textwrap.dedent(
        f"""
        import asyncio, os, pathlib
        from harbor_tasks.format import load_task
        from harbor_tasks.sandbox.bubblewrap import Bubblewrap

        async def main():
            async with Bubblewrap().start(load_task(pathlib.Path({str(task.path)!r}))) as sandbox:
                shell = await sandbox.shell()
                mark = os.environ["MARK"]
                await shell.run(f"setsid -f bash -c 'echo >/app/up; sleep 60; true' {{mark}}", timeout_s=20)
                await shell.run("until [ -e /app/up ]; do :; done", timeout_s=20)
                print(sandbox._slot.folder, flush=True)
                await shell.run("sleep 60", timeout_s=60)
        asyncio.run(main())
        """
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], env={**os.environ, "MARK": mark}, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        folder = Path(process.stdout.readline().strip())
        assert processes_with(mark)
        assert folder.exists()
        process.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 60
    while processes_with(mark) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert processes_with(mark) == []
    # Any sandbox that starts on this machine removes it too, and what it is removing is left to it.
    while folder.exists() and time.monotonic() < deadline:
        remove_leftovers()
        time.sleep(0.01)
    assert not folder.exists()
