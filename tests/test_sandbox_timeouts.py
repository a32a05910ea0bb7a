"""A command's time-out, in each sandbox: whatever it does, an answer soon after and a shell that goes on."""

import resource
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from harbor_tasks.sandbox import OUTPUT_LIMIT, Sandbox
from harbor_tasks.sandbox.bubblewrap import Limits
from harbor_tasks.sandbox.docker import settings
from harbor_tasks.sandbox.lasting import SHELL_GONE, LastingShell
from tests.docker_engine import docker, docker_task
from tests.sandbox_tasks import bubblewrap, write_task

LATEST_S = 2.0
"""After the time-out, on a quiet machine: what the measured overshoot is held against."""
SLACK = 5
TIMEOUT_S = 1.0
FEW = 64


@pytest.fixture(params=["docker", "bubblewrap"])
async def sandbox(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Sandbox]:
    """With room for few processes."""
    if request.param == "docker":
        monkeypatch.setattr(settings, "PROCESSES", FEW)
        task = docker_task(tmp_path, toml='[environment]\nnetwork_mode = "no-network"\ncpus = 1\n')
        async with (await docker()).start(task) as started:
            yield started
    else:
        async with (await bubblewrap(limits=Limits(processes=FEW))).start(write_task(tmp_path)) as started:
            yield started


DRIVER = "$(cut -d' ' -f4 /proc/$PPID/stat)"
"""The parent of the `timeout` that is a command's parent."""
BOMB = """cat >/tmp/bomb.py <<'END'
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
while True:
    try:
        if os.fork() == 0:
            os.setsid()
    except OSError:
        time.sleep(.005)
END
"""
TIMED_OUT = {
    "ignores signals": ("trap '' TERM HUP INT; while :; do :; done", 137),
    "waits": ("sleep 300", 124),
    "replaced by a program": ("exec sleep 300", 124),
    "children in the background": ("sleep 300 & setsid sleep 300 & (trap '' TERM; sleep 300) & sleep 300", 124),
    "a flood": ("yes $(head -c 4000 /dev/zero | tr '\\0' x)", 124),
    "binary": ("cat /dev/urandom", 124),
    "waits for input": ("cat; read line; exec 0</dev/tty; sleep 300", 124),
    "an open quote inside": ('bash -c "echo \'x"; sleep 300', 124),
}
ENDED = {
    "exit": ("exit 3", 3),
    "set -e": ("set -eu; false; sleep 300", 1),
    "quote": ("echo 'x", 2),
    "input": ("cat", 0),
}
BOMBS = {
    "forks": "b() { b | b & }; b; sleep 300",
    "ignores signals": "trap '' TERM HUP INT; b() { b | b & }; b; sleep 300",
    "is beside its command": f"{BOMB}for i in 1 2 3 4; do setsid -f python3 /tmp/bomb.py >/dev/null 2>&1; done",
}
GONE = {
    "kills its driver": f"kill -KILL {DRIVER}; sleep 300",
    "stops its driver": f"kill -STOP {DRIVER}; sleep 300",
    "stops what times it": "kill -STOP $PPID; sleep 300",
    "kills everything": "kill -KILL -1; sleep 300",
}


async def _overshoot(shell: LastingShell, command: str) -> tuple[int, bool, str, float]:
    before = time.monotonic()
    said = await shell.run(command, timeout_s=TIMEOUT_S)
    late = time.monotonic() - before - TIMEOUT_S
    print(f"{late:+.2f} s after the time-out: {command[:60]!r}")  # noqa: T201 (shown with -s)
    assert late < LATEST_S * SLACK
    assert len(said.text) <= OUTPUT_LIMIT
    return said.exit_code, said.timed_out, said.text, late


async def _goes_on(shell: LastingShell) -> None:
    said = await shell.run("/bin/echo on; cat /app/kept", timeout_s=20)
    assert (said.exit_code, said.text) == (0, "on\nkept\n")


@pytest.mark.parametrize("kind", TIMED_OUT)
async def test_a_command_is_ended_at_its_time_out_and_the_same_shell_goes_on(sandbox: Sandbox, kind: str) -> None:
    command, code = TIMED_OUT[kind]
    shell = LastingShell(sandbox)
    await shell.run("export A=1; echo kept >/app/kept", timeout_s=20)
    exit_code, timed_out, _, _ = await _overshoot(shell, command)
    assert (exit_code, timed_out) in ((code, True), (137, True))
    await _goes_on(shell)
    assert (await shell.run("echo $A", timeout_s=20)).text == "1\n"
    await shell.close()


@pytest.mark.parametrize("kind", ENDED)
async def test_a_command_that_breaks_off_ends_itself_alone(sandbox: Sandbox, kind: str) -> None:
    command, code = ENDED[kind]
    shell = LastingShell(sandbox)
    await shell.run("echo kept >/app/kept", timeout_s=20)
    exit_code, timed_out, _, _ = await _overshoot(shell, command)
    assert (exit_code, timed_out) == (code, False)
    await _goes_on(shell)
    await shell.close()


@pytest.mark.parametrize("kind", GONE)
async def test_a_command_that_takes_its_shell_away_is_told_so_and_a_new_one_begins(sandbox: Sandbox, kind: str) -> None:
    shell = LastingShell(sandbox)
    await shell.run("echo kept >/app/kept", timeout_s=20)
    exit_code, _, text, _ = await _overshoot(shell, GONE[kind])
    assert exit_code == SHELL_GONE
    assert text.startswith("the shell is gone: ")
    assert "a new shell begins in /app" in text
    await _goes_on(shell)
    await shell.close()


@pytest.mark.parametrize("kind", BOMBS)
async def test_while_a_fork_bomb_runs_each_command_ends_in_time_and_the_last_word_is_ours(
    sandbox: Sandbox, kind: str
) -> None:
    shell = LastingShell(sandbox)
    await shell.run("echo kept >/app/kept", timeout_s=20)
    await _overshoot(shell, BOMBS[kind])
    for _ in range(5):
        # What is left of the bomb may leave a command no process, and then goes with its shell.
        exit_code, timed_out, text, _ = await _overshoot(shell, "/bin/echo on; cat /app/kept")
        if exit_code == 0:
            break
        assert timed_out or "fork: " in text or (exit_code == SHELL_GONE and "the shell is gone: " in text), text
    # A bomb beside its command ends with its shell.
    await shell.close()
    await _goes_on(shell)
    await shell.close()


async def test_a_gigabyte_of_output_takes_no_memory_here(sandbox: Sandbox) -> None:
    shell = LastingShell(sandbox)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    said = await shell.run("head -c 1000000000 /dev/zero", timeout_s=120)
    assert (said.size, len(said.text), said.exit_code) == (1_000_000_000, OUTPUT_LIMIT, 0)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 32 * 1024
    await shell.close()
