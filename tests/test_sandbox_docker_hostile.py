"""Tasks that mean harm, in their own files and in what they leave behind: contained, and named in one line."""

import asyncio
import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from harbor_tasks.errors import SandboxBroken, SandboxMissing, TaskInvalid, TaskRefused
from harbor_tasks.format import Task
from harbor_tasks.sandbox import Backend, Sandbox, machine, state
from harbor_tasks.sandbox.docker.backend import Docker
from harbor_tasks.sandbox.docker.engine import _connect, find
from harbor_tasks.sandbox.docker.places import Place
from harbor_tasks.sandbox.lasting import LastingShell
from harbor_tasks.verifier import verify
from tests.docker_engine import docker, docker_task
from tests.sandbox_tasks import bubblewrap, write_task

BOTH = ["docker", "bubblewrap"]
SIZE_LIMIT = 8 << 20
"""In place of half a gigabyte, which takes its time."""


async def _backend(name: str) -> Backend:
    return await docker() if name == "docker" else await bubblewrap()


@pytest.fixture(params=BOTH)
async def sandbox(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Sandbox]:
    async with (await _backend(request.param)).start(docker_task(tmp_path)) as started:
        yield started


OUTSIDE = {
    "a path that climbs": ("COPY ../../secret /app/secret", r"Dockerfile line 2: .*"),
    "an absolute path": ("COPY /etc/hostname /app/secret", r"Dockerfile line 2: .*"),
    "a file through a folder that climbs": ("COPY sub/../../secret /app/secret", r"Dockerfile line 2: .*"),
}


@pytest.mark.parametrize("name", BOTH)
@pytest.mark.parametrize("what", OUTSIDE)
async def test_a_task_cannot_copy_in_what_lies_outside_its_files(what: str, name: str, tmp_path: Path) -> None:
    line, said = OUTSIDE[what]
    backend = await _backend(name)
    task = docker_task(tmp_path, f"{line}\n", files={"sub/file": "x"})
    (tmp_path / "secret").write_text("the host's")
    with pytest.raises(TaskRefused, match=said) as refused:
        async with backend.start(task):
            pass
    assert "\n" not in str(refused.value)


LINKS = {"a link to a file": "/etc/passwd", "a link to a folder": "/etc", "one that climbs": "../../../secret"}


@pytest.mark.parametrize("what", LINKS)
def test_a_link_among_a_tasks_files_is_named(what: str, tmp_path: Path) -> None:
    task = docker_task(tmp_path, "COPY . /app/\n")
    (task.path / "environment" / "link").symlink_to(LINKS[what])
    with pytest.raises(TaskInvalid, match=r"environment/link: expected a file or a directory, found a link") as said:
        _ = _again(task).digest
    assert "\n" not in str(said.value)


@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_a_pipe_or_a_device_among_a_tasks_files_is_named(kind: str, tmp_path: Path) -> None:
    task = docker_task(tmp_path, "COPY . /app/\n")
    path = task.path / "environment" / "odd"
    if kind == "pipe":
        os.mkfifo(path)
    else:
        try:
            os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 5))
        except PermissionError:
            pytest.skip("only root makes device nodes")
    with pytest.raises(TaskInvalid, match=r"environment/odd: .* found a device, socket or pipe: remove it"):
        _ = _again(task).digest


def _again(task: Task) -> Task:
    from harbor_tasks.format import load_task

    return load_task(task.path)


async def test_a_link_that_is_no_part_of_a_tasks_digest_brings_no_file_of_the_host(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("the host's")
    task = docker_task(tmp_path, "COPY . /app/\n", files={"file": "own"})
    folder = task.path / "environment" / "__pycache__"
    folder.mkdir()
    (folder / "link").symlink_to(secret)
    os.mkfifo(folder / "pipe")
    async with (await docker()).start(_again(task)) as sandbox:
        said = await sandbox.exec("cat /app/file; cat /app/__pycache__/link; grep -rs host /app", timeout_s=20)
    assert said.text.startswith("own")
    assert "the host's" not in said.text


async def test_a_setuid_program_of_the_image_gives_nobody_more_rights(tmp_path: Path) -> None:
    dockerfile = "RUN useradd -m worker && cp /bin/bash /suid && chmod 6755 /suid\nUSER worker\n"
    async with (await docker()).start(docker_task(tmp_path, dockerfile)) as sandbox:
        said = await sandbox.exec("/suid -p -c 'id -u; cat /proc/self/status' | grep -E '^[0-9]|CapEff'", timeout_s=20)
    assert said.text.split() != []
    assert said.text.split()[0] != "0"
    assert said.text.split()[-1] == "0000000000000000"


ATTACKS = [
    "mknod /app/disk b 8 0",
    "mount -t tmpfs none /mnt",
    "mount -o remount,rw /sys",
    "chroot / true",
    "echo 1 >/proc/sys/kernel/sysrq",
    "echo b >/proc/sysrq-trigger",
    "unshare -m true",
    "hostname other",
    "date -s 2001-01-01",
]


async def test_device_nodes_mounts_and_the_hosts_kernel_are_out_of_reach(tmp_path: Path) -> None:
    async with (await docker()).start(docker_task(tmp_path)) as sandbox:
        said = await sandbox.exec("\n".join(f"{attack} && echo got {attack}" for attack in ATTACKS), timeout_s=20)
        there = await sandbox.exec("ls -A /mnt /var/run/docker.sock; [ -e /app/disk ]", timeout_s=20)
    assert "got" not in said.text
    assert (there.exit_code, "docker.sock': No such file" in there.text) == (1, True)


LEAVINGS = """
cd /logs/artifacts || exit
echo own >own; mkdir -p deep/er; echo deep >deep/er/file
ln -s /etc/passwd link; ln -s /etc folder; ln -s ../../../../../../../../etc/passwd climbs; ln -s . loop
ln own hard; mkfifo pipe; cp /bin/true setuid; chmod 6755 setuid
printf x >$'new\\nline'; printf x >'-rf *'; python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("sock")'
"""


async def test_of_what_a_task_leaves_only_plain_files_come_out(sandbox: Sandbox, tmp_path: Path) -> None:
    assert (await sandbox.exec(LEAVINGS, timeout_s=20)).exit_code == 0
    out = tmp_path / "out"
    await sandbox.download("/logs/artifacts", out)
    found = sorted(str(path.relative_to(out)) for path in out.rglob("*"))
    assert found == sorted(["-rf *", "deep", "deep/er", "deep/er/file", "hard", "new\nline", "own", "setuid"])
    assert all(not path.is_symlink() for path in out.rglob("*"))
    assert (out / "setuid").stat().st_mode & 0o7777 == 0o755
    for path in ("link", "folder", "climbs", "pipe", "sock", "loop"):
        assert await sandbox.read(f"/logs/artifacts/{path}") is None
        with pytest.raises(FileNotFoundError, match=path):
            await sandbox.download(f"/logs/artifacts/{path}", tmp_path / "none")
    # A folder on the way may be a link: it leads to another place in the sandbox, not here.
    await sandbox.exec("mkdir /app/own; echo inside >/app/own/hosts; ln -s /app/own /logs/artifacts/way", timeout_s=20)
    assert await sandbox.read("/logs/artifacts/way/hosts") == b"inside\n"


async def test_a_gigabyte_is_not_brought_out(sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "SIZE_LIMIT", SIZE_LIMIT)
    await sandbox.exec("truncate -s 1G /logs/artifacts/big", timeout_s=20)
    assert await sandbox.read("/logs/artifacts/big", limit=10) == bytes(10)
    with pytest.raises(SandboxBroken, match=f"/logs/artifacts: more than {SIZE_LIMIT} bytes"):
        await sandbox.download("/logs/artifacts", tmp_path / "out")
    assert not (tmp_path / "out").exists()


REWARDS = {
    "a link": ("echo 1 >/tmp/one; ln -s /tmp/one $r", "reward missing"),
    "a link to nowhere": ("ln -s /proc/self/mem $r", "reward missing"),
    "a pipe": ("mkfifo $r", "reward missing"),
    "a folder": ("mkdir $r; echo 1 >$r/reward.json", "reward missing"),
    "a gigabyte": ("truncate -s 1G $r", "reward invalid"),
    "binary": ("head -c 1000 /dev/urandom >$r", "reward invalid"),
    "deep": ("head -c 60000 /dev/zero | tr '\\0' '[' >$r", "reward invalid"),
    "no number": ("echo '{\"reward\": NaN}' >$r", "reward invalid"),
    "a number too long": ("echo '{\"reward\": 1'$(printf '0%.0s' {1..5000})'}' >$r", "reward invalid"),
    "gone with its folder": ("rm -rf /logs; ln -s /etc /logs", "reward missing"),
}


@pytest.mark.parametrize("name", BOTH)
async def test_a_reward_that_is_none_gives_no_score_and_the_reason(name: str, tmp_path: Path) -> None:
    backend = await _backend(name)
    async with backend.start(docker_task(tmp_path / "start")) as sandbox:
        for number, (what, (script, reason)) in enumerate(REWARDS.items()):
            task = docker_task(tmp_path / str(number))
            # Before, as an agent would, and while the tests run, as what they test would.
            await sandbox.exec(f"r=/logs/verifier/reward.json; {script}", timeout_s=20)
            (task.tests / "test.sh").write_text(f"#!/bin/bash\nr=/logs/verifier/reward.json\n{script}\n")
            verdict = await verify(task, sandbox)
            assert verdict.reward is None, what
            assert verdict.unscored_reason is not None
            assert verdict.unscored_reason.startswith(reason), (what, verdict.unscored_reason)
            assert "\n" not in verdict.unscored_reason
        assert (await verify(docker_task(tmp_path / "last"), sandbox)).reward == 1.0


@pytest.fixture
def small_disk(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A file system of its own: of some 20 MB, or of 200 where an engine must have room."""
    if os.geteuid() != 0:
        pytest.skip("only root mounts a volume")
    image, folder = tmp_path / "disk.img", Path(tempfile.mkdtemp(prefix="fullchain-disk-", dir="/var/tmp"))
    with image.open("wb") as file:
        file.truncate(200 << 20 if "engine" in request.node.name else 24 << 20)
    for words in (["mkfs.ext4", "-q", "-m", "0", str(image)], ["mount", "-o", "loop", str(image), str(folder)]):
        try:
            subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
        except (FileNotFoundError, subprocess.CalledProcessError) as error:
            folder.rmdir()
            pytest.skip(f"no volume can be mounted here: {getattr(error, 'stderr', None) or error}")
    try:
        folder.chmod(0o755)
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], timeout=60, check=True)
        folder.rmdir()


async def test_a_filled_disk_is_contained_and_the_next_trial_on_it_runs(
    small_disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = await bubblewrap()
    task = write_task(tmp_path)
    (small_disk / "trials").mkdir()
    async with backend.start(write_task(tmp_path / "beside")) as beside:
        monkeypatch.setattr(state, "shared_folder", lambda name: small_disk / name)
        async with backend.start(task) as sandbox:
            shell = LastingShell(sandbox)
            full = await shell.run("head -c 100000000 /dev/zero >/app/big", timeout_s=60)
            assert full.exit_code != 0
            assert "No space left on device" in full.text or full.text == ""
            # What a command prints has no room either: its answer is short, and in time.
            for _ in range(3):
                said = await shell.run("seq 100000; cat /app/none", timeout_s=20)
                assert said.seconds < 60
            verdict = await verify(task, sandbox)
            assert verdict.reward is None
            assert verdict.unscored_reason is not None
            assert verdict.unscored_reason.startswith(("verifier error: ", "reward ")), verdict.unscored_reason
            assert "\n" not in verdict.unscored_reason
            # Whoever makes room again goes on.
            await shell.run("rm /app/big", timeout_s=20)
            assert (await shell.run("echo on >/app/f; cat /app/f", timeout_s=20)).text == "on\n"
            assert (await beside.exec("echo beside >/app/f; cat /app/f", timeout_s=20)).text == "beside\n"
            await shell.run("head -c 100000000 /dev/zero >/app/big", timeout_s=60)
            await shell.close()
        async with backend.start(task) as after:
            assert (await verify(task, after)).reward == 1.0


PROGRAMS = "bash sh timeout head stat tar find mktemp chmod mkdir rm mv sleep ls cat seq dirname basename ln chown sed"
ROOT = f"""
mkdir /root-of-it && cd /root-of-it && mkdir -p tmp etc dev proc sys
for program in {PROGRAMS}; do
  path=$(command -v $program); cp --parents -L $path . || exit
  for library in $(ldd $path | grep -o '/[^ ]*'); do cp --parents -L $library . || exit; done
done
mkdir -p bin; for path in usr/bin/*; do [ -e bin/${{path##*/}} ] || cp -L $path bin/; done
[ -e lib64 ] || cp -r usr/lib64 lib64
tar -C /root-of-it -cf /root.tar .
"""


@pytest.mark.slow
async def test_a_filled_disk_of_an_engine_is_contained_and_the_next_trial_on_it_runs(
    small_disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shutil.which("dockerd") is None or shutil.which("unshare") is None:
        pytest.skip("there is no dockerd, or no unshare, to start an engine of our own with")
    async with (await docker()).start(docker_task(tmp_path / "made")) as made:
        assert (await made.exec(ROOT, timeout_s=60)).exit_code == 0
        await made.download("/root.tar", tmp_path / "root.tar")
    async with _own_engine(small_disk) as url, _asked_at(url, monkeypatch):
        own = await find()
        await own.call(lambda api: api.import_image(str(tmp_path / "root.tar"), repository="small", tag="1"))
        toml = '[environment]\nnetwork_mode = "no-network"\ndocker_image = "small:1"\n'
        task = write_task(tmp_path / "task", toml=toml)
        backend = Docker()
        async with backend.start(task) as sandbox:
            shell = LastingShell(sandbox)
            full = await shell.run("head -c 400000000 /dev/zero >/app/big", timeout_s=60)
            assert full.exit_code != 0
            for _ in range(3):
                assert (await shell.run("seq 100000; cat /app/none", timeout_s=20)).seconds < 60
            verdict = await verify(task, sandbox)
            assert verdict.reward is None
            assert verdict.unscored_reason is not None
            assert verdict.unscored_reason.startswith(("verifier error: ", "reward ")), verdict.unscored_reason
            assert "\n" not in verdict.unscored_reason
        async with backend.start(task) as after:
            assert (await verify(task, after)).reward == 1.0
    async with (await docker()).start(docker_task(tmp_path / "beside")) as beside:
        assert (await beside.exec("echo beside", timeout_s=20)).text == "beside\n"


@asynccontextmanager
async def _asked_at(url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    with monkeypatch.context() as patched:
        patched.setenv("DOCKER_HOST", url)
        yield


@asynccontextmanager
async def _own_engine(folder: Path) -> AsyncIterator[str]:
    """An engine without network whose images and containers are in this folder."""
    run = Path(tempfile.mkdtemp(prefix="fullchain-engine-", dir="/tmp"))
    words = [
        # In a network of its own: an engine without a bridge removes docker0 where it finds it, which is another's.
        "unshare", "--net", "dockerd", "--data-root", f"{folder}/data", "--exec-root", f"{run}/exec",
        "--pidfile", f"{run}/pid", "-H", f"unix://{run}/docker.sock", "--bridge=none", "--iptables=false",
        "--storage-driver", "overlay2",
    ]  # fmt: skip
    log = (run / "log").open("wb")
    process = await asyncio.create_subprocess_exec(*words, stdout=log, stderr=log, start_new_session=True)
    try:
        for _ in range(600):
            try:
                await asyncio.to_thread(_connect, Place(f"unix://{run}/docker.sock", "the test's own"))
                break
            except SandboxMissing:
                if process.returncode is not None:
                    break
                await asyncio.sleep(0.1)
        else:
            pytest.skip("an engine of our own does not answer")
        if process.returncode is not None:
            pytest.skip(f"an engine of our own does not start: {(run / 'log').read_text()[-300:]}")
        yield f"unix://{run}/docker.sock"
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()
        log.close()
        shutil.rmtree(run, ignore_errors=True)
