"""A shell session over driver.sh: what lasts, what is bounded, and what a hostile command cannot do to it."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harbor_tasks.errors import SandboxBroken
from harbor_tasks.sandbox import OUTPUT_LIMIT, Sandbox
from tests.sandbox_tasks import bubblewrap, write_task


@pytest.fixture
async def sandbox(tmp_path: Path) -> AsyncIterator[Sandbox]:
    async with (await bubblewrap()).start(write_task(tmp_path)) as started:
        yield started


FETCH = """for i in $(seq 100); do
  python3 -c "import urllib.request as u; print(u.urlopen('http://127.0.0.1:8000').status)" 2>/dev/null && break
  sleep .1
done"""
NASTY = [
    # (command, seconds allowed, exit code, output, timed out)
    ("echo hi; cd /tmp; export A=\"7 'x\"; false", 30, 1, "hi\n", False),
    ("echo $A; pwd", 30, 0, "7 'x\n/tmp\n", False),
    ("cat", 30, 0, "", False),
    ("echo 'unclosed", 30, 2, None, False),
    ("printf 'a\\0b\\xff\\n'", 30, 0, "a\0b\ufffd\n", False),
    ("sleep 100 & echo bg", 30, 0, "bg\n", False),
    ("(sleep .2; echo late) & echo now", 30, 0, "now\n", False),
    ("sleep .4; echo next", 30, 0, "next\n", False),
    ("set -e; false; echo no", 30, 1, "", False),
    ("echo still $A", 30, 0, "still 7 'x\n", False),
    ("exit 3", 30, 3, "", False),
    ("exec echo replaced", 30, 0, "replaced\n", False),
    ("sleep 300", 0.4, 124, "", True),
    ("while :; do :; done", 0.4, 124, "", True),
    ("trap '' TERM; while :; do :; done", 0.4, 137, "", True),
    ("python3 -m http.server 8000 >/dev/null 2>&1 & echo up", 30, 0, "up\n", False),
    (FETCH, 30, 0, "200\n", False),
    ("pwd; echo $A", 30, 0, "/tmp\n7 'x\n", False),
    ("exit 124", 30, 124, "", False),
    ("set -x; cd /app; echo traced", 30, 0, "++ cd /app\n++ echo traced\ntraced\n", False),
    ("cd - >/dev/null; pwd; set -u; trap 'echo bye' EXIT; cd /srv", 30, 0, "/tmp\nbye\n", False),
    ("pwd; unset A; export PATH=/nowhere", 30, 0, "/srv\n", False),
    ("echo \"[$A]\" $PATH; export PATH=/run/python/bin:/usr/bin:/bin", 30, 0, "[] /nowhere\n", False),
    ("f() { echo in; }; f; shopt -s extglob; plain=1", 30, 0, "in\n", False),
    ("echo \"[$plain]\"; type f 2>/dev/null", 30, 1, "[]\n", False),
    ("mkdir /app/gone; cd /app/gone; rmdir /app/gone", 30, 0, "", False),
    ("pwd", 30, 0, "/\n", False),
    ("echo $0 $# $-", 30, 0, "bash 0 hBc\n", False),
    ("nosuchcommand", 30, 127, "bash: line 1: nosuchcommand: command not found\n", False),
    ("", 30, 0, "", False),
]  # fmt: skip


async def test_nasty_commands_end_as_they_should_and_the_session_goes_on(sandbox: Sandbox) -> None:
    shell = await sandbox.shell()
    for command, timeout_s, code, text, timed_out in NASTY:
        got = await shell.run(command, timeout_s=timeout_s)
        assert (command, got.exit_code, got.timed_out) == (command, code, timed_out), got
        if text is not None:
            assert (command, got.text) == (command, text)


async def test_the_environment_given_reaches_the_shell_and_exec(sandbox: Sandbox) -> None:
    shell = await sandbox.shell({"GIVEN": "a b\n'c'"})
    assert (await shell.run('printf %s "$GIVEN"; pwd', timeout_s=9)).text == "a b\n'c'/app\n"
    said = await sandbox.exec('printf %s "$GIVEN"; pwd', timeout_s=9, cwd="/srv", env={"GIVEN": "$x"})
    assert said.text == "$x/srv\n"


PRINTABLE = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=60)


async def test_exported_values_of_any_text_last_from_command_to_command(sandbox: Sandbox) -> None:
    shell = await sandbox.shell()
    loop = asyncio.get_running_loop()

    def round_trips(values: list[str]) -> None:
        async def check() -> None:
            lines = []
            for index, value in enumerate(values):
                quoted = value.replace("'", "'\\''")
                # $( ) eats line breaks at the end: x keeps them.
                lines.append(f"export V{index}=$(printf %s '{quoted}x'); V{index}=${{V{index}%x}}")
            assert (await shell.run("\n".join(lines), timeout_s=20)).text == ""
            names = " ".join(f'"$V{index}"' for index in range(len(values)))
            got = await shell.run(f"printf '%s\\0' {names}", timeout_s=20)
            assert got.text == "".join(value + "\0" for value in values)

        asyncio.run_coroutine_threadsafe(check(), loop).result(120)

    @given(st.lists(PRINTABLE, min_size=1, max_size=6))
    @settings(max_examples=25, suppress_health_check=list(HealthCheck))
    def examples(values: list[str]) -> None:
        round_trips(values)

    await asyncio.to_thread(examples)
    await asyncio.to_thread(
        round_trips, ["\n\n", "$(id) `id` \\", "ä\u2028\U0001f600\x7f\x1b[0m", "# whole", "cd /x\n# whole"]
    )


async def test_a_megabyte_of_command_text_runs(sandbox: Sandbox) -> None:
    shell = await sandbox.shell()
    text = "é" * 400_000
    got = await shell.run(f"x='{text}'; echo ${{#x}}; cat <<'END' | wc -c\n{'y' * 300_000}\nEND", timeout_s=30)
    assert got.text.split() == ["400000", "300001"]


@pytest.mark.parametrize("length", [2047, 2048, 2049, 4097])
async def test_commands_around_the_size_where_their_reading_changes_arrive_whole(sandbox: Sandbox, length: int) -> None:
    command = "echo " + "é" * 700
    command += "z" * (length - len(command.encode()))
    said = await sandbox.exec(command, timeout_s=9)
    assert said.text == command.removeprefix("echo ") + "\n"


async def test_a_huge_output_is_cut_and_its_true_size_reported(sandbox: Sandbox) -> None:
    shell = await sandbox.shell()
    got = await shell.run("head -c 100000000 /dev/zero | tr '\\0' x", timeout_s=60)
    assert (got.size, len(got.text), got.exit_code) == (100_000_000, OUTPUT_LIMIT, 0)
    assert (await shell.run("echo after", timeout_s=9)).text == "after\n"


async def test_a_background_job_never_writes_into_the_next_commands_output(sandbox: Sandbox) -> None:
    shell = await sandbox.shell()
    started = await shell.run("(while :; do echo noise; done) & echo started", timeout_s=9)
    assert "started\n" in started.text
    for _ in range(5):
        assert (await shell.run("sleep .02; echo quiet", timeout_s=9)).text == "quiet\n"


async def test_a_timeout_ends_the_commands_process_group(sandbox: Sandbox) -> None:
    shell = await sandbox.shell()
    mark = secrets.token_hex(8)
    got = await shell.run(f"bash -c 'sleep 50' {mark} & bash -c 'sleep 60; true' {mark}", timeout_s=0.5)
    assert got.timed_out
    # The brackets keep grep from finding itself.
    found = await shell.run(f"grep -ls '{mark[:-1]}[{mark[-1]}]' /proc/[0-9]*/cmdline", timeout_s=9)
    assert (found.text, found.exit_code) == ("", 1)


HOSTILE = [
    "echo '0 0 0' >&201; echo 0 >&200; true",
    "for p in /proc/[0-9]*; do for f in $p/fd/*; do echo 'ffff 0 2 2' >$f; done; done 2>/dev/null",
    "rm -rf /run/shell/* /run/shell/.[!.]* /run/shell/out/*",
    "rm -f /run/shell/state /run/shell/new; mkdir /run/shell/new /run/shell/state",
    "ln -sf /dev/zero /run/shell/new",
    "echo 'exit 9' >/run/shell/state; echo 'exit 9' >/run/shell/new",
    "chmod 000 /run/shell /run/shell/out",
    "head -c 100000000 /dev/zero >/run/shell/full",
    "kill -9 $PPID",
    "kill -STOP $PPID; sleep .1; kill -CONT $PPID",
    "kill -9 -1",
    "kill -9 2 1",
    "exec 1>&- 2>&-; exit 4",
    "export BASH_ENV=/app/x ENV=/app/x SHELLOPTS; echo 'exit 7' >/app/x; declare -rx UID2=1; readonly BASHOPTS",
    "builtin() { :; }; trap() { :; }; eval() { :; }",
    "export FULLCHAIN_CWD=/nowhere IFS=x LC_ALL=tr_TR.UTF-8 LD_PRELOAD=/app/none.so",
    "mkdir -p /app/bin; for t in stat head timeout bash rm; do printf '#!/bin/sh\\necho forged\\n' >/app/bin/$t; "
    "chmod +x /app/bin/$t; done; export PATH=/app/bin:$PATH",
    "ulimit -v 100000; ulimit -n 4",
    "(head -c 10000000 /dev/zero >/proc/1/fd/2 &) 2>/dev/null",
]


@pytest.mark.parametrize("command", HOSTILE)
async def test_a_hostile_command_is_harmless_or_breaks_the_session_openly(sandbox: Sandbox, command: str) -> None:
    shell = await sandbox.shell()
    await shell.run("export KEPT=yes; cd /srv", timeout_s=9)
    try:
        await shell.run(command, timeout_s=9)
        for number in range(3):
            got = await shell.run(f"/bin/echo answer {number}", timeout_s=9)
            printed = [line for line in got.text.splitlines() if "LD_PRELOAD" not in line and "setlocale" not in line]
            assert (printed, got.exit_code) == ([f"answer {number}"], 0)
    except SandboxBroken as error:
        assert "the shell is gone" in str(error)  # noqa: PT017 (either outcome is right)
        assert command.startswith(("kill -9", "head -c 100000000", "rm -f /run/shell/state"))
        with pytest.raises(SandboxBroken):
            await shell.run("true", timeout_s=5)
    finally:
        await shell.close()
    assert (await sandbox.exec("echo fresh", timeout_s=9)).text == "fresh\n"


async def test_what_came_before_a_deleted_state_file_lasts(sandbox: Sandbox) -> None:
    shell = await sandbox.shell()
    await shell.run("export KEPT=yes; cd /srv", timeout_s=9)
    await shell.run("trap 'rm -rf /run/shell/*' EXIT; exit", timeout_s=9)
    assert (await shell.run("echo $KEPT; pwd", timeout_s=9)).text == "yes\n/srv\n"


async def test_the_driver_cannot_be_read_by_a_command(sandbox: Sandbox) -> None:
    shell = await sandbox.shell()
    await shell.run("true", timeout_s=9)
    said = await shell.run(
        "d=$(grep -lsx driver /proc/[0-9]*/comm | cut -d/ -f3 | sort -n | head -n 1); echo $d; "
        "cat /proc/$d/environ; ls /proc/$d/fd; cat /run/driver",
        timeout_s=9,
    )
    assert said.text.splitlines()[0].isdigit()
    assert said.text.count("Permission denied") == 3


async def test_a_command_with_a_nul_byte_is_answered_without_running(sandbox: Sandbox) -> None:
    shell = await sandbox.shell()
    got = await shell.run("touch /app/ran\0", timeout_s=9)
    assert (got.exit_code, "NUL" in got.text) == (2, True)
    assert await sandbox.read("/app/ran") is None


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
        await shell.run("echo new", timeout_s=5)
    await shell.close()
