"""Files that enter and leave a container: replaced whole, never through a link, bounded."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from harbor_tasks.errors import SandboxBroken
from harbor_tasks.sandbox import Sandbox
from tests.docker_engine import docker, docker_task


@pytest.fixture
async def sandbox(tmp_path: Path) -> AsyncIterator[Sandbox]:
    async with (await docker()).start(docker_task(tmp_path)) as started:
        yield started


async def test_a_directory_round_trips_with_names_bytes_and_the_executable_bit(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    (source / "deep" / "er").mkdir(parents=True)
    (source / "deep" / "er" / "-ö\n'").write_bytes(bytes(range(256)) * 20_000)
    (source / "run.sh").write_text("#!/bin/sh\necho ran\n")
    (source / "run.sh").chmod(0o755)
    (source / "link").symlink_to("run.sh")
    await sandbox.upload(source, "/app/new/place")
    said = await sandbox.exec("/app/new/place/run.sh; readlink /app/new/place/link", timeout_s=10)
    assert said.text == "ran\nrun.sh\n"
    await sandbox.download("/app/new/place", tmp_path / "back")
    assert (tmp_path / "back" / "deep" / "er" / "-ö\n'").read_bytes() == bytes(range(256)) * 20_000
    assert (tmp_path / "back" / "run.sh").stat().st_mode & 0o777 == 0o755
    assert not (tmp_path / "back" / "link").is_symlink()


async def test_upload_replaces_whatever_stood_there(sandbox: Sandbox, tmp_path: Path) -> None:
    source = tmp_path / "tests"
    source.mkdir()
    (source / "test.sh").write_text("the real one\n")
    await sandbox.exec("mkdir -p /tests/a/b; echo planted >/tests/test.sh; echo x >/tests/.hidden", timeout_s=10)
    await sandbox.exec("chmod 000 /tests/a/b /tests/a /tests; ln -s /srv /app/link", timeout_s=10)
    await sandbox.upload(source, "/tests")
    await sandbox.upload(source, "/app/link")
    said = await sandbox.exec("ls -A /tests /srv; cat /tests/test.sh; cat /app/link/test.sh", timeout_s=10)
    assert said.text == "/srv:\n\n/tests:\ntest.sh\nthe real one\nthe real one\n"


async def test_links_devices_and_pipes_lead_nowhere(sandbox: Sandbox, tmp_path: Path) -> None:
    await sandbox.exec(
        "ln -s /etc/passwd /app/file; ln -s /etc /app/dir; mkdir /app/out; ln -s /etc/passwd /app/out/inner; "
        "echo own >/app/out/own; mkfifo /app/pipe /app/out/pipe",
        timeout_s=10,
    )
    for path in ("/app/file", "/app/dir", "/app/pipe", "/dev/zero", "/app/none"):
        assert await sandbox.read(path) is None
    for link in ("/app/file", "/app/dir", "/app/pipe"):
        with pytest.raises(FileNotFoundError, match=link):
            await sandbox.download(link, tmp_path / "got")
    await sandbox.download("/app/out", tmp_path / "got")
    assert os.listdir(tmp_path / "got") == ["own"]


async def test_read_gives_the_head_of_a_file_whole_or_cut(sandbox: Sandbox) -> None:
    await sandbox.exec("seq 100000 >/app/n; : >/app/empty; head -c 3000000 /dev/zero >/app/big", timeout_s=10)
    assert await sandbox.read("/app/n", limit=5) == b"1\n2\n3"
    assert await sandbox.read("/app/empty") == b""
    assert await sandbox.read("/app/big", limit=2_500_000) == bytes(2_500_000)


async def test_what_is_too_big_does_not_reach_the_host(
    sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harbor_tasks.sandbox.machine.SIZE_LIMIT", 1 << 20)
    await sandbox.exec("truncate -s 3G /app/sparse; head -c 3000000 /dev/zero >/app/big", timeout_s=10)
    for path in ("/app", "/app/sparse", "/app/big"):
        with pytest.raises(SandboxBroken, match="more than"):
            await sandbox.download(path, tmp_path / "out")
    assert (await sandbox.exec("echo on", timeout_s=10)).text == "on\n"
