"""Files that enter and leave a sandbox: replaced whole, never through a link, bounded."""

# ruff: noqa: ASYNC240 (a test's own loop may wait)

import io
import os
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harbor_tasks.errors import SandboxBroken
from harbor_tasks.sandbox import Sandbox, archive
from harbor_tasks.sandbox.archive import pack, unpack
from tests.sandbox_tasks import bubblewrap, write_task


@pytest.fixture
async def sandbox(tmp_path: Path) -> AsyncIterator[Sandbox]:
    async with (await bubblewrap()).start(write_task(tmp_path)) as started:
        yield started


async def test_a_directory_round_trips_with_names_bytes_and_the_executable_bit(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    (source / "deep" / "er").mkdir(parents=True)
    (source / "deep" / "er" / "-ö\n'").write_bytes(bytes(range(256)))
    (source / "run.sh").write_text("#!/bin/sh\necho ran\n")
    (source / "run.sh").chmod(0o755)
    (source / "link").symlink_to("run.sh")
    await sandbox.upload(source, "/app/new/place")
    said = await sandbox.exec("/app/new/place/run.sh; readlink /app/new/place/link", timeout_s=10)
    assert said.text == "ran\nrun.sh\n"
    await sandbox.download("/app/new/place", tmp_path / "back")
    assert (tmp_path / "back" / "deep" / "er" / "-ö\n'").read_bytes() == bytes(range(256))
    assert (tmp_path / "back" / "run.sh").stat().st_mode & 0o777 == 0o755
    assert not (tmp_path / "back" / "link").is_symlink()


async def test_upload_replaces_whatever_stood_there(sandbox: Sandbox, tmp_path: Path) -> None:
    source = tmp_path / "tests"
    source.mkdir()
    (source / "test.sh").write_text("the real one\n")
    await sandbox.exec("mkdir -p /tests/a/b; echo planted >/tests/test.sh; echo x >/tests/.hidden", timeout_s=10)
    await sandbox.exec("chmod 000 /tests/a/b /tests/a /tests", timeout_s=10)
    await sandbox.upload(source, "/tests")
    assert (await sandbox.exec("ls -A /tests; cat /tests/test.sh", timeout_s=10)).text == "test.sh\nthe real one\n"
    await sandbox.exec(
        "rm /tests/test.sh; mkdir /tests/test.sh; touch /tests/test.sh/f; ln -s /srv /tests/link", timeout_s=10
    )
    await sandbox.upload(source / "test.sh", "/tests/test.sh")
    await sandbox.upload(source, "/tests/link")
    said = await sandbox.exec(
        "cat /tests/test.sh; ls -A /srv; [ -L /tests/link ] || cat /tests/link/test.sh", timeout_s=10
    )
    assert said.text == "the real one\nthe real one\n"


async def test_a_directory_that_only_root_could_fill_arrives_whole(sandbox: Sandbox, tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "shut").mkdir(parents=True)
    (source / "shut" / "in").write_text("in\n")
    (source / "shut" / "in").chmod(0o444)
    (source / "shut").chmod(0o555)
    await sandbox.upload(source, "/app/x")
    await sandbox.upload(source, "/app/x")
    assert (await sandbox.exec("cat /app/x/shut/in; stat -c %a /app/x/shut/in", timeout_s=10)).text == "in\n444\n"


async def test_a_link_to_a_file_of_the_host_leads_nowhere(sandbox: Sandbox, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("the host's")
    secret.chmod(0o666)
    tmp_path.chmod(0o755)
    await sandbox.exec(
        f"ln -s {secret} /app/file; ln -s {tmp_path} /app/dir; mkdir /app/out; ln -s {secret} /app/out/inner; "
        f"echo own >/app/out/own; ln -s {secret} /app/target",
        timeout_s=10,
    )
    assert await sandbox.read("/app/file") is None
    assert await sandbox.read("/app/dir/secret") is None
    for link in ("/app/file", "/app/dir", "/app/dir/secret"):
        with pytest.raises(FileNotFoundError, match=link):
            await sandbox.download(link, tmp_path / "got")
    await sandbox.download("/app/out", tmp_path / "got")
    assert os.listdir(tmp_path / "got") == ["own"]
    new = tmp_path / "new"
    new.write_text("new")
    await sandbox.upload(new, "/app/target")
    assert secret.read_text() == "the host's"
    assert await sandbox.read("/app/target") == b"new"


async def test_read_gives_the_head_of_a_regular_file_only(sandbox: Sandbox) -> None:
    await sandbox.exec("seq 100000 >/app/n; mkfifo /app/fifo; mkdir /app/d; : >/app/empty", timeout_s=10)
    assert await sandbox.read("/app/n", limit=5) == b"1\n2\n3"
    assert await sandbox.read("/app/empty") == b""
    for path in ("/app/fifo", "/app/d", "/app/none", "/dev/zero"):
        assert await sandbox.read(path) is None


async def test_a_single_file_comes_out_under_the_name_asked_for(sandbox: Sandbox, tmp_path: Path) -> None:
    await sandbox.exec("printf 'a\\0b' >'/app/-x y'; chmod 4711 '/app/-x y'", timeout_s=10)
    await sandbox.download("/app/-x y", tmp_path / "deep" / "copy")
    assert (tmp_path / "deep" / "copy").read_bytes() == b"a\0b"
    assert (tmp_path / "deep" / "copy").stat().st_mode & 0o7777 == 0o755


async def test_what_is_too_big_does_not_reach_the_host(
    sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harbor_tasks.sandbox.machine.SIZE_LIMIT", 1 << 20)
    await sandbox.exec("truncate -s 3G /app/sparse; head -c 3000000 /dev/zero >/app/big", timeout_s=10)
    for path in ("/app", "/app/sparse", "/app/big"):
        with pytest.raises(SandboxBroken, match="more than"):
            await sandbox.download(path, tmp_path / "out")
    assert (await sandbox.exec("echo on", timeout_s=10)).text == "on\n"


def _tar(members: list[tuple[tarfile.TarInfo, bytes]]) -> io.BytesIO:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        for member, data in members:
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    stream.seek(0)
    return stream


def _member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname, member.mode = kind, link, 0o7777
    return member


def test_hostile_members_are_left_out_and_the_rest_unpacked(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("untouched")
    members = [
        (_member(".", tarfile.DIRTYPE), b""),
        (_member("../outside"), b"overwritten"),
        (_member("link", tarfile.SYMTYPE, ".."), b""),
        (_member("link/outside"), b"through a link"),
        (_member("hard", tarfile.LNKTYPE, "../outside"), b""),
        (_member("device", tarfile.CHRTYPE), b""),
        (_member("pipe", tarfile.FIFOTYPE), b""),
        (_member(str(outside)), b"absolute"),
        (_member("good"), b"good"),
    ]
    assert unpack(_tar(members), tmp_path / "in")
    assert outside.read_text() == "untouched"
    assert (tmp_path / "in" / "good").read_bytes() == b"good"
    assert (tmp_path / "in" / "good").stat().st_mode & 0o7022 == 0
    assert not any((tmp_path / "in" / name).exists() for name in ("hard", "device", "pipe"))
    assert not (tmp_path / "in" / "link").is_symlink()


def test_too_many_members_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "COUNT_LIMIT", 3)
    members = [(_member(".", tarfile.DIRTYPE), b""), *((_member(str(number)), b"") for number in range(3))]
    with pytest.raises(SandboxBroken, match="3 files"):
        unpack(_tar(members), tmp_path / "in")
    (tmp_path / "four").mkdir()
    for number in range(4):
        (tmp_path / "four" / str(number)).touch()
    with pytest.raises(SandboxBroken, match="3 files"):
        pack([(tmp_path / "four", ".")])


def test_a_torn_stream_is_an_error_of_the_sandbox(tmp_path: Path) -> None:
    whole = _tar([(_member(".", tarfile.DIRTYPE), b""), (_member("a"), b"x" * 5000)]).getvalue()
    with pytest.raises(SandboxBroken, match="torn"):
        unpack(io.BytesIO(whole[:2000]), tmp_path / "in")


NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0/"), min_size=1, max_size=40).filter(
    lambda name: name not in (".", "..") and len(name.encode()) < 200
)


@given(st.dictionaries(NAMES, st.binary(max_size=700), max_size=5))
@settings(max_examples=40)
def test_pack_and_unpack_are_inverse_for_plain_files(
    tmp_path_factory: pytest.TempPathFactory, files: dict[str, bytes]
) -> None:
    folder = tmp_path_factory.mktemp("pack")
    (folder / "source").mkdir()
    for name, data in files.items():
        (folder / "source" / name).write_bytes(data)
    with pack([(folder / "source", ".")]) as stream:
        assert unpack(stream, folder / "copy")
    assert {path.name: path.read_bytes() for path in (folder / "copy").iterdir()} == files
