"""An agent that ends its own shell gets a new one: it cannot have a failing trial counted as broken."""

from pathlib import Path

import pytest

from harbor_tasks.errors import SandboxBroken
from harbor_tasks.sandbox.lasting import SHELL_GONE, LastingShell
from tests.sandbox_tasks import bubblewrap, write_task

KILL_THE_DRIVER = "kill -9 $(grep -l 'driver' /proc/[0-9]*/cmdline | cut -d/ -f3 | sort -n); kill -9 $PPID; kill -9 1"


async def test_a_command_that_ends_its_shell_costs_exports_and_directory_alone(tmp_path: Path) -> None:
    async with (await bubblewrap()).start(write_task(tmp_path)) as sandbox:
        shell = LastingShell(sandbox)
        await shell.run("export A=1; cd /tmp; echo kept > /app/file", timeout_s=10)
        gone = await shell.run(KILL_THE_DRIVER, timeout_s=10)
        assert (gone.exit_code, gone.timed_out) == (SHELL_GONE, False)
        assert gone.text.endswith("a new shell begins in /app, without what was exported")
        after = await shell.run("pwd; cat file; echo [$A]", timeout_s=10)
        assert (after.exit_code, after.text) == (0, "/app\nkept\n[]\n")
        await shell.close()


async def test_no_process_of_the_lost_shell_is_left(tmp_path: Path) -> None:
    async with (await bubblewrap()).start(write_task(tmp_path)) as sandbox:
        shell = LastingShell(sandbox)
        ticking = "while :; do date +%N > /app/tick; sleep 0.01; done >/dev/null 2>&1 &"
        await shell.run(ticking, timeout_s=10)
        await shell.run(KILL_THE_DRIVER, timeout_s=10)
        still = await shell.run('a=$(cat tick); sleep 0.2; [ "$a" = "$(cat tick)" ]', timeout_s=10)
        assert still.exit_code == 0
        await shell.close()


async def test_a_sandbox_that_can_start_no_shell_is_a_fault_of_the_machine(tmp_path: Path) -> None:
    async with (await bubblewrap()).start(write_task(tmp_path)) as sandbox:
        shell = LastingShell(sandbox)
    with pytest.raises(SandboxBroken):
        await shell.run("true", timeout_s=10)
