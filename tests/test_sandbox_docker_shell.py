"""Shell sessions over the engine's socket: the same commands as in bubblewrap, the same answers."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from harbor_tasks.errors import SandboxBroken
from harbor_tasks.sandbox import OUTPUT_LIMIT, Sandbox
from harbor_tasks.sandbox.lasting import SHELL_GONE, LastingShell
from tests.docker_engine import docker, docker_task
from tests.test_shell_session import HOSTILE, NASTY

FOLDER = "/run/fullchain/1"


@pytest.fixture
async def sandbox(tmp_path: Path) -> AsyncIterator[Sandbox]:
    async with (await docker()).start(docker_task(tmp_path)) as started:
        yield started


async def test_nasty_commands_end_as_they_should_and_the_session_goes_on(sandbox: Sandbox) -> None:
    shell = await sandbox.shell()
    for command, timeout_s, code, text, timed_out in NASTY:
        started = time.monotonic()
        got = await shell.run(command, timeout_s=timeout_s)
        assert (command, got.exit_code, got.timed_out) == (command, code, timed_out), got
        # A command that ignores the first signal gets the second two seconds later; a busy machine is later still.
        assert time.monotonic() - started < timeout_s + 30
        if text is not None:
            assert (command, got.text) == (command, text)


async def test_the_environment_given_reaches_the_shell_and_exec(sandbox: Sandbox) -> None:
    shell = await sandbox.shell({"GIVEN": "a b\n'c'"})
    assert (await shell.run('printf %s "$GIVEN"; pwd', timeout_s=30)).text == "a b\n'c'/app\n"
    said = await sandbox.exec('printf %s "$GIVEN"; pwd', timeout_s=30, cwd="/srv", env={"GIVEN": "$x"})
    assert said.text == "$x/srv\n"


async def test_a_megabyte_of_command_text_runs(sandbox: Sandbox) -> None:
    text = "é" * 400_000
    got = await sandbox.exec(f"x='{text}'; echo ${{#x}}; cat <<'END' | wc -c\n{'y' * 300_000}\nEND", timeout_s=30)
    assert got.text.split() == ["400000", "300001"]


async def test_a_gigabyte_of_output_is_cut_and_its_true_size_reported(sandbox: Sandbox) -> None:
    shell = await sandbox.shell()
    got = await shell.run("head -c 1000000000 /dev/zero", timeout_s=60)
    assert (got.size, len(got.text), got.exit_code) == (1_000_000_000, OUTPUT_LIMIT, 0)
    assert (await shell.run("echo after", timeout_s=30)).text == "after\n"


@pytest.mark.parametrize("command", HOSTILE)
async def test_a_hostile_command_is_harmless_or_breaks_the_session_openly(sandbox: Sandbox, command: str) -> None:
    command = command.replace("/run/shell", FOLDER)
    shell = await sandbox.shell()
    await shell.run("export KEPT=yes; cd /srv; echo kept >/app/file", timeout_s=30)
    try:
        await shell.run(command, timeout_s=30)
        for number in range(3):
            got = await shell.run(f"/bin/echo answer {number}", timeout_s=30)
            printed = [line for line in got.text.splitlines() if "LD_PRELOAD" not in line and "setlocale" not in line]
            assert (printed, got.exit_code) == ([f"answer {number}"], 0)
    except SandboxBroken as error:
        assert "the shell is gone" in str(error)  # noqa: PT017 (either outcome is right)
        # Root inside may write to the pipes of the driver: what it says then cannot be read.
        assert command.startswith(("kill -9", f"rm -f {FOLDER}/state", "for p in", f"rm -rf {FOLDER}"))
        with pytest.raises(SandboxBroken):
            await shell.run("true", timeout_s=30)
    finally:
        await shell.close()
    assert (await sandbox.exec("echo fresh; cat /app/file", timeout_s=30)).text == "fresh\nkept\n"


async def test_an_agent_that_ends_the_whole_container_goes_on_in_a_new_shell_with_its_files(sandbox: Sandbox) -> None:
    shell = LastingShell(sandbox)
    await shell.run("export A=1; cd /tmp; echo kept >/app/file", timeout_s=10)
    gone = await shell.run("kill -9 -1", timeout_s=10)
    assert (gone.exit_code, gone.timed_out) == (SHELL_GONE, False)
    after = await shell.run("pwd; cat file; echo [$A]", timeout_s=10)
    assert (after.exit_code, after.text) == (0, "/app\nkept\n[]\n")
    await shell.close()


SURVIVORS = {
    "a background job": "while :; do date +%N >/app/tick; sleep .01; done >/dev/null 2>&1 &",
    "a daemon": "setsid -f bash -c 'exec -a innocent bash -c \"while :; do date +%N >/app/tick; sleep .01; done\"' "
    ">/dev/null 2>&1 </dev/null",
    "one that ignores signals": "(trap '' TERM HUP INT; while :; do date +%N >/app/tick; sleep .01; done) "
    ">/dev/null 2>&1 & disown",
    "another user's": "setsid -f setpriv --reuid 65534 --clear-groups bash -c "
    "'while :; do date +%N >/tmp/tick; sleep .01; done' >/dev/null 2>&1; ln -s /tmp/tick /app/tick",
}


@pytest.mark.parametrize("kind", SURVIVORS)
async def test_no_process_of_a_shell_outlives_it(sandbox: Sandbox, kind: str) -> None:
    shell = await sandbox.shell()
    await shell.run(SURVIVORS[kind], timeout_s=10)
    assert (await shell.run("until [ -s /app/tick ]; do sleep .01; done", timeout_s=10)).exit_code == 0
    await shell.close()
    still = await sandbox.exec('a=$(cat /app/tick); sleep .2; [ "$a" = "$(cat /app/tick)" ]', timeout_s=10)
    assert still.exit_code == 0


async def test_a_shell_that_ends_leaves_the_other_ones_processes_alone(sandbox: Sandbox) -> None:
    first, second = await sandbox.shell(), await sandbox.shell()
    loop = "while :; do date +%N >/app/{0}; sleep .01; done >/dev/null 2>&1 &"
    await first.run(loop.format("first"), timeout_s=10)
    await second.run(loop.format("second"), timeout_s=10)
    await second.run("until [ -s /app/first ] && [ -s /app/second ]; do sleep .01; done", timeout_s=10)
    await first.close()
    changed = 'a=$(cat /app/{0}); sleep .2; [ "$a" != "$(cat /app/{0})" ]'
    assert (await second.run(changed.format("first"), timeout_s=10)).exit_code == 1
    assert (await second.run(changed.format("second"), timeout_s=10)).exit_code == 0
    await second.close()


async def test_a_fork_bomb_ends_with_its_shell_and_others_are_unharmed(sandbox: Sandbox, tmp_path: Path) -> None:
    other = docker_task(tmp_path / "other")
    async with (await docker()).start(other) as beside:
        shell = LastingShell(sandbox)
        # It may leave its own shell no process to answer with: the agent is told so and gets a new one.
        bomb = await shell.run("bomb() { bomb | bomb & }; bomb; sleep 1", timeout_s=3)
        assert bomb.exit_code in (0, 124, SHELL_GONE)
        assert (await beside.exec("echo beside", timeout_s=10)).text == "beside\n"
        await shell.close()
        after = await sandbox.exec("echo /proc/[0-9]* | wc -w", timeout_s=10)
        assert int(after.text) < 12


async def test_commands_asked_for_at_once_run_one_after_the_other(sandbox: Sandbox) -> None:
    shell = await sandbox.shell()
    got = await asyncio.gather(*(shell.run(f"echo {number} | tee -a /app/order", timeout_s=20) for number in range(8)))
    assert [output.text for output in got] == [f"{number}\n" for number in range(8)]
    assert (await sandbox.read("/app/order")) == b"0\n1\n2\n3\n4\n5\n6\n7\n"


async def test_a_cancelled_command_makes_the_session_unusable_not_out_of_step(sandbox: Sandbox) -> None:
    shell = await sandbox.shell()
    running = asyncio.create_task(shell.run("sleep 20; echo old", timeout_s=30))
    await asyncio.sleep(0.2)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    with pytest.raises(SandboxBroken, match="cancelled"):
        await shell.run("echo new", timeout_s=30)
    await shell.close()
