"""What holds a bubblewrap sandbox: each test is an attack, or a promise about what works inside."""

# ruff: noqa: ASYNC221, ASYNC240 (a test's own loop may wait)

import asyncio
import os
import secrets
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import pytest

from harbor_tasks.errors import SandboxBroken, TaskRefused
from harbor_tasks.sandbox.bubblewrap import Limits
from tests.sandbox_tasks import BINARIES, bubblewrap, processes_with, write_task

AS_ROOT = os.geteuid() == 0


@pytest.mark.parametrize("binary", BINARIES)
async def test_remounting_the_hosts_usr_writable_is_denied(binary: str, tmp_path: Path) -> None:
    backend = await bubblewrap(binary)
    name = f"/usr/lib/fullchain-attack-{secrets.token_hex(4)}"
    async with backend.start(write_task(tmp_path)) as sandbox:
        attack = f"mount -o remount,bind,rw /usr && echo mounted; echo owned >{name}; mount -t tmpfs none /mnt; id -u"
        said = await sandbox.exec(attack, timeout_s=10)
    assert not Path(name).exists()
    assert "mounted" not in said.text
    assert "Read-only file system" in said.text
    assert said.text.endswith("0\n")


GRAB = """
import ctypes, os, stat
libc = ctypes.CDLL(None, use_errno=True)
handle = libc.syscall(434, 1, 0)
assert handle >= 0, os.strerror(ctypes.get_errno())
for fd in range(21):
    taken = libc.syscall(438, handle, fd, 0)
    if taken >= 0:
        print("socket" if stat.S_ISSOCK(os.fstat(taken).st_mode) else "other", fd)
    else:
        print(os.strerror(ctypes.get_errno()), fd)
"""


@pytest.mark.parametrize("binary", BINARIES)
async def test_no_process_holds_the_sessions_socket_where_a_command_could_take_it(binary: str, tmp_path: Path) -> None:
    task = write_task(tmp_path, files={"grab.py": GRAB}, dockerfile="FROM a\nCOPY grab.py /app/\n")
    async with (await bubblewrap(binary)).start(task) as sandbox:
        shell = await sandbox.shell()
        said = await shell.run("python3 /app/grab.py; exec 3</dev/null; ls -l /proc/[0-9]*/fd", timeout_s=20)
        await shell.close()
    lines = said.text.splitlines()
    assert len([line for line in lines if line.endswith(tuple(f" {fd}" for fd in range(21)))]) >= 21
    assert "socket" not in said.text
    # Where the kernel lets a command into the first process at all, there is something to be found.
    assert "other 0" in lines or "Operation not permitted 0" in lines


async def test_the_driver_runs_no_file_that_a_tasks_variables_name(tmp_path: Path) -> None:
    task = write_task(tmp_path, "FROM a\nENV BASH_ENV=/app/env.sh CDPATH=/app A=b\n")
    async with (await bubblewrap()).start(task) as sandbox:
        await sandbox.exec("echo 'echo $$ >>/app/ran' >/app/env.sh", timeout_s=10)
        said = await sandbox.exec("ls /app; echo $BASH_ENV $CDPATH $A; bash -c true; wc -l </app/ran", timeout_s=10)
    assert said.text == "env.sh\n/app/env.sh /app b\n1\n"


@pytest.mark.parametrize("binary", BINARIES)
async def test_devices_work_and_dev_itself_is_no_place_to_write(binary: str, tmp_path: Path) -> None:
    async with (await bubblewrap(binary)).start(write_task(tmp_path)) as sandbox:
        said = await sandbox.exec(
            "echo x >/dev/null && head -c 4 /dev/urandom | wc -c; "
            "python3 -c 'import os, pty; a, b = pty.openpty(); os.write(b, b\"pty\"); print(os.read(a, 3).decode())'; "
            "python3 -c 'import multiprocessing as m; s = m.Semaphore(2); print(s.acquire())'; "
            "echo kept >/dev/shm/file && cat /dev/shm/file && rm /dev/shm/file; "
            "head -c 100000000 /dev/zero >/dev/shm/big; stat -c %s /dev/shm/big; echo x >/dev/new; mkdir /dev/folder",
            timeout_s=30,
        )
    lines = said.text.splitlines()
    assert lines[:4] == ["4", "pty", "True", "kept"]
    assert "No space left" in lines[4]
    assert lines[5] == str(64 * 1024**2)
    assert all("Read-only file system" in line for line in lines[6:])
    assert len(lines) == 8


@pytest.mark.parametrize("binary", BINARIES)
async def test_no_capability_and_no_further_user_namespace(binary: str, tmp_path: Path) -> None:
    async with (await bubblewrap(binary)).start(write_task(tmp_path)) as sandbox:
        status = await sandbox.exec("grep ^Cap /proc/self/status; grep NoNewPrivs /proc/self/status", timeout_s=10)
        nested = await sandbox.exec("unshare -U true", timeout_s=10)
        doubly = await sandbox.exec("echo 99 >/proc/sys/user/max_user_namespaces; unshare -Ur true", timeout_s=10)
    assert {line.split()[1] for line in status.text.splitlines()[:4]} == {"0000000000000000"}
    assert status.text.splitlines()[-1].split() == ["NoNewPrivs:", "1"]
    assert nested.exit_code != 0
    assert doubly.exit_code != 0


async def test_files_of_the_host_cannot_be_seen(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("the host's")
    secret.chmod(0o644)
    async with (await bubblewrap()).start(write_task(tmp_path)) as sandbox:
        said = await sandbox.exec(
            f"cat {secret}; ls -A /root /home; cat /etc/shadow; cat /proc/1/environ; ls /var/lib /run /dev; env",
            timeout_s=10,
        )
        assert await sandbox.read("/etc/shadow") is None
        assert await sandbox.read(str(secret)) is None
    assert "the host's" not in said.text
    assert "/home:\n\n/root:\n" in said.text
    assert "sda" not in said.text
    assert "nvme" not in said.text
    assert not any(variable in said.text for variable in ("PYTEST", "VIRTUAL_ENV"))


async def test_a_tasks_variables_never_reach_bwrap_on_the_host(tmp_path: Path) -> None:
    preload = tmp_path / "task-under-test" / "environment" / "evil.so"
    task = write_task(tmp_path, f"FROM a\nENV LD_PRELOAD={preload} LD_LIBRARY_PATH={tmp_path} MARK=inside\n")
    async with (await bubblewrap()).start(task) as sandbox:
        shell = await sandbox.shell({"GIVEN": "too"})
        said = await shell.run("echo $MARK $GIVEN", timeout_s=10)
        outside = shell._launched.process.pid  # type: ignore[attr-defined] # bwrap itself
        try:
            environment = Path("/proc", str(outside), "environ").read_bytes()
        except PermissionError:
            pytest.skip("root lacks CAP_SYS_PTRACE in this container, and cannot see what bwrap was given")
        await shell.close()
    assert said.text.endswith("inside too\n")
    assert environment == b""


async def test_a_variable_that_no_process_can_hold_breaks_openly(tmp_path: Path) -> None:
    async with (await bubblewrap()).start(write_task(tmp_path)) as sandbox:
        with pytest.raises(SandboxBroken, match="null"):
            await sandbox.exec("true", timeout_s=10, env={"A": "a\0b"})


async def test_a_server_on_the_hosts_loopback_cannot_be_reached(tmp_path: Path) -> None:
    reached = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reached.set()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    connect = f"exec 3<>/dev/tcp/127.0.0.1/{port}"
    async with server, (await bubblewrap()).start(write_task(tmp_path)) as sandbox:
        said = await sandbox.exec(connect, timeout_s=10)
        assert subprocess.run(["bash", "-c", connect], check=False).returncode == 0
        await asyncio.wait_for(reached.wait(), 60)
        reached.clear()
        assert said.exit_code != 0
        assert "Connection refused" in said.text
        # Its own loopback works: tasks run servers on it.
        own = await sandbox.exec(
            "python3 -m http.server 8123 >/dev/null 2>&1 & for i in $(seq 100); do "
            "python3 -c \"import urllib.request as u; print(u.urlopen('http://127.0.0.1:8123').status)\" 2>/dev/null "
            "&& break; sleep .1; done",
            timeout_s=30,
        )
    assert own.text == "200\n"


@pytest.mark.parametrize("allowed", [False, True])
async def test_a_public_network_is_given_only_when_allowed_and_is_noted(allowed: bool, tmp_path: Path) -> None:
    task = write_task(tmp_path, toml='[environment]\nnetwork_mode = "public"\nmemory_mb = 64\n')
    async with (await bubblewrap()).start(task, allow_host_network=allowed) as sandbox:
        inside = await sandbox.exec("readlink /proc/self/ns/net", timeout_s=10)
        assert (inside.text.strip() == os.readlink("/proc/self/ns/net")) is allowed
        expected = "the host's network was given (--allow-host-network)"
        assert sandbox.notes == (
            expected if allowed else "public network asked for; ran without",
            "memory limit not enforced",
        )


async def test_a_task_without_network_gets_none_even_where_it_is_allowed(tmp_path: Path) -> None:
    async with (await bubblewrap()).start(write_task(tmp_path), allow_host_network=True) as sandbox:
        inside = await sandbox.exec("readlink /proc/self/ns/net", timeout_s=10)
        assert sandbox.notes == ()
    assert inside.text.strip() != os.readlink("/proc/self/ns/net")


async def test_an_allowlist_is_refused_by_name(tmp_path: Path) -> None:
    task = write_task(tmp_path, toml='[environment]\nnetwork_mode = "allowlist"\nallowed_hosts = ["example.org"]\n')
    backend = await bubblewrap()
    with pytest.raises(TaskRefused, match=r"task-under-test: task.toml environment.network_mode: .allowlist."):
        async with backend.start(task):
            pass


async def test_two_trials_have_other_uids_and_cannot_see_each_other(tmp_path: Path) -> None:
    backend = await bubblewrap()
    task = write_task(tmp_path)
    async with backend.start(task) as one, backend.start(task) as other:
        await one.exec("echo mine >/app/mine; echo mine >/tmp/mine", timeout_s=10)
        first, second = [machine._slot for machine in (one, other)]  # type: ignore[attr-defined] # who they are
        assert first.folder != second.folder
        if AS_ROOT:
            assert first.uid != second.uid
            assert first.folder.stat().st_uid == first.uid
        assert first.folder.stat().st_mode & 0o777 == 0o700
        said = await other.exec(
            f"cat {first.folder}/tree/app/mine /app/mine /tmp/mine; ls {first.folder}; ps ax | wc -l", timeout_s=10
        )
    assert "mine\n" not in said.text
    assert int(said.text.split()[-1]) < 12


async def test_writes_beside_the_folders_fail_instead_of_vanishing(tmp_path: Path) -> None:
    async with (await bubblewrap()).start(write_task(tmp_path)) as sandbox:
        outside = await sandbox.exec("mkdir /elsewhere || echo x >/etc/new", timeout_s=10)
        await sandbox.exec(
            "for d in app logs tests solution root tmp home opt srv var; do echo 1 >/$d/f; done", timeout_s=10
        )
        inside = await sandbox.exec("cat /*/f | wc -l; ls /logs", timeout_s=10)
    assert outside.exit_code != 0
    assert inside.text.split() == ["10", "agent", "artifacts", "f", "verifier"]


async def test_the_task_environment_and_the_tools_of_the_host_work(tmp_path: Path) -> None:
    async with (await bubblewrap()).start(write_task(tmp_path)) as sandbox:
        said = await sandbox.exec(
            "python3 -c 'import numpy, ssl, sqlite3, getpass; print(numpy.arange(4).sum(), getpass.getuser())'; "
            "command -v python3 python; echo x | awk '{print $1}'; date +%Z; hostname; "
            "python3 -c 'print(hash(\"a\"))'; python3 -c 'print(hash(\"a\"))'; touch /run/python/x",
            timeout_s=30,
        )
    lines = said.text.splitlines()
    assert lines[:6] == ["6 root", "/run/python/bin/python3", "/run/python/bin/python", "x", "UTC", "task"]
    assert lines[6] == lines[7]
    assert "Read-only file system" in lines[8]


async def test_a_fork_bomb_ends_with_its_command_and_touches_no_other_sandbox(tmp_path: Path) -> None:
    backend = await bubblewrap(limits=Limits(processes=60))
    task = write_task(tmp_path)
    mark = f"bomb{secrets.token_hex(6)}"
    async with backend.start(task) as sandbox, backend.start(task) as other:
        try:
            said = await sandbox.exec(f"b() {{ b {mark} | b {mark} & }}; b; sleep 30", timeout_s=0.7)
            assert said.timed_out
        except SandboxBroken:
            # Its driver could start no process either: an honest end too.
            pass
        assert (await other.exec("echo well", timeout_s=10)).text == "well\n"
        assert (await sandbox.exec("echo well", timeout_s=10)).text == "well\n"
    assert processes_with(mark) == []


async def test_a_file_cannot_grow_beyond_the_limit_and_leaves_no_core(tmp_path: Path) -> None:
    backend = await bubblewrap(limits=Limits(file_bytes=1 << 20))
    async with backend.start(write_task(tmp_path)) as sandbox:
        await sandbox.exec("head -c 5000000 /dev/zero >/app/big; ulimit -c", timeout_s=10)
        size = await sandbox.exec("stat -c %s /app/big; ls /app", timeout_s=10)
    assert size.text.split() == [str(1 << 20), "big"]


SYSTEM_PYTHON = Path("/usr/bin/python3")


@pytest.mark.slow
@pytest.mark.skipif(not AS_ROOT, reason="every other test here runs as an ordinary user already")
@pytest.mark.skipif(
    SYSTEM_PYTHON.resolve().name != f"python3.{sys.version_info.minor}",
    reason="an ordinary user needs a Python outside root's home that can load the installed packages",
)
def test_an_ordinary_user_gets_the_same_sandbox_and_an_environment_of_their_own(tmp_path: Path) -> None:
    home = Path(tempfile.mkdtemp(prefix="fullchain-user-", dir="/var/tmp"))
    task = write_task(home)
    program = textwrap.dedent(
        f"""
        import asyncio, pathlib
        from harbor_tasks.format import load_task
        from harbor_tasks.sandbox.bubblewrap import Bubblewrap

        async def main():
            async with Bubblewrap().start(load_task(pathlib.Path({str(task.path)!r}))) as sandbox:
                said = await sandbox.exec(
                    "id -u; mount -o remount,bind,rw /usr 2>&1 | head -1; "
                    "python3 -c 'import numpy; print(numpy.pi > 3)'; "
                    "mkdir -p /app/a/b; chmod 000 /app/a/b /app/a; ulimit -u",
                    timeout_s=60,
                )
                print(said.text, end="")
        asyncio.run(main())
        """
    )
    try:
        os.chown(home, 54321, 54321)
        said = subprocess.run(
            [SYSTEM_PYTHON, "-W", "error", "-c", program],
            env={"HOME": str(home), "PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(["/", os.getcwd(), *sys.path[1:]])},
            user=54321,
            group=54321,
            extra_groups=[],
            capture_output=True,
            text=True,
            check=False,
        )
        assert said.stdout.splitlines() == ["0", "mount: /usr: permission denied.", "True", "1024"], said.stderr
        assert os.listdir(home / ".cache" / "fullchain" / "trials") == ["0.lock"]
    finally:
        subprocess.run(["rm", "-rf", str(home)], check=True)
