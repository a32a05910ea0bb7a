"""Where an engine is looked for, what its frames mean, and when "auto" takes it."""

import asyncio
import hashlib
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harbor_tasks.dockerfile import parse
from harbor_tasks.errors import SandboxBroken, SandboxMissing
from harbor_tasks.sandbox.backends import choose
from harbor_tasks.sandbox.docker import places as looking
from harbor_tasks.sandbox.docker.backend import Docker
from harbor_tasks.sandbox.docker.engine import find
from harbor_tasks.sandbox.docker.places import Place, places
from harbor_tasks.sandbox.docker.steps import bases
from harbor_tasks.sandbox.docker.streams import BUFFERED, Duplex
from tests.docker_engine import docker_task, engine
from tests.sandbox_tasks import bubblewrap, write_task


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / ".docker"))
    monkeypatch.setattr(looking, "SOCKETS", ("{home}/first.sock", "{home}/second.sock"))
    (tmp_path / ".docker").mkdir()
    return tmp_path


def _context(home: Path, name: str, host: str) -> None:
    folder = home / ".docker" / "contexts" / "meta" / hashlib.sha256(name.encode()).hexdigest()
    folder.mkdir(parents=True)
    endpoints = {"docker": {"Host": host, "SkipTLSVerify": False}}
    (folder / "meta.json").write_text(json.dumps({"Name": name, "Metadata": {}, "Endpoints": endpoints}))


def test_docker_host_goes_before_the_context_and_that_before_the_known_sockets(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "second.sock").touch()
    assert places() == (Place(f"unix://{home}/second.sock", "a known socket"),)
    (home / "first.sock").touch()
    assert [place.url for place in places()] == [f"unix://{home}/first.sock", f"unix://{home}/second.sock"]
    _context(home, "mine", "unix:///context.sock")
    (home / ".docker" / "config.json").write_text('{"currentContext": "mine"}')
    assert places() == (Place("unix:///context.sock", "the CLI context mine"),)
    _context(home, "other", "tcp://10.0.0.1:2375")
    monkeypatch.setenv("DOCKER_CONTEXT", "other")
    assert places() == (Place("tcp://10.0.0.1:2375", "the CLI context other"),)
    monkeypatch.setenv("DOCKER_HOST", "unix:///host.sock")
    assert places() == (Place("unix:///host.sock", "DOCKER_HOST"),)


def test_what_is_set_and_cannot_be_used_is_named_with_the_mend(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_CONTEXT", "gone")
    with pytest.raises(SandboxMissing, match=r"the CLI context gone .*docker context use default"):
        places()
    for host in ("ssh://me@there", "https://there:2376", "npipe:////./pipe/docker_engine"):
        monkeypatch.setenv("DOCKER_HOST", host)
        with pytest.raises(
            SandboxMissing, match=rf"DOCKER_HOST names {re.escape(host)}: only unix.*ssh -NL"
        ) as refused:
            places()
        assert "\n" not in str(refused.value)


@pytest.mark.parametrize("variable", ["DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH"])
def test_an_engine_behind_tls_is_refused_with_the_mend(
    variable: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", "tcp://10.0.0.1:2376")
    monkeypatch.setenv(variable, "1")
    with pytest.raises(SandboxMissing, match=r"DOCKER_HOST names tcp://10\.0\.0\.1:2376 with TLS: .*ssh -NL"):
        places()
    monkeypatch.setenv("DOCKER_HOST", "unix:///x.sock")
    assert places() == (Place("unix:///x.sock", "DOCKER_HOST"),)


def test_a_context_with_tls_material_is_refused_with_the_mend(home: Path) -> None:
    _context(home, "far", "tcp://10.0.0.1:2376")
    material = home / ".docker" / "contexts" / "tls" / hashlib.sha256(b"far").hexdigest() / "docker"
    material.mkdir(parents=True)
    for name in ("ca.pem", "cert.pem", "key.pem"):
        (material / name).write_text("x")
    (home / ".docker" / "config.json").write_text('{"currentContext": "far"}')
    with pytest.raises(SandboxMissing, match=r"the CLI context far names tcp://10\.0\.0\.1:2376 with TLS: .*ssh -NL"):
        places()


@pytest.mark.parametrize("text", ["", "{", '{"currentContext": 7}', "[]"])
def test_a_settings_file_that_cannot_be_read_is_no_traceback(text: str, home: Path) -> None:
    (home / "first.sock").touch()
    (home / ".docker" / "config.json").write_text(text)
    try:
        assert places() == (Place(f"unix://{home}/first.sock", "a known socket"),)
    except SandboxMissing as error:
        assert "\n" not in str(error)  # noqa: PT017 (either is an answer)


@asynccontextmanager
async def _pipe(to: Path, at: Path | None = None) -> AsyncIterator[str]:
    """A way to the engine's socket by another address: over TCP, or through a socket `at`. Gives its URL."""
    open_now: set[asyncio.StreamWriter] = set()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
        writer.write_eof()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_unix_connection(to)
        open_now.update((writer, back))
        try:
            await asyncio.gather(pump(reader, back), pump(there, writer))
        except OSError:
            pass
        finally:
            for end in (writer, back):
                open_now.discard(end)
                end.close()

    server = await (asyncio.start_unix_server(serve, at) if at else asyncio.start_server(serve, "127.0.0.1", 0))
    try:
        yield f"unix://{at}" if at else f"tcp://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for end in list(open_now):
            end.close()
        await asyncio.sleep(0)


@pytest.mark.parametrize("how", ["DOCKER_HOST", "the CLI context mine", "a known socket"])
async def test_an_engine_found_by_each_way_runs_a_task(
    how: str, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    found = await engine()
    if not found.place.url.startswith("unix://"):
        pytest.skip("the engine here has no socket")
    to = Path(found.place.url.removeprefix("unix://"))
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("DOCKER_CONFIG", str(home / ".docker"))
    monkeypatch.setattr(looking, "SOCKETS", ("{home}/first.sock", "{home}/second.sock"))
    async with _pipe(to, home / "second.sock" if how == "a known socket" else None) as url:
        if how == "DOCKER_HOST":
            monkeypatch.setenv("DOCKER_HOST", url)
        elif how != "a known socket":
            _context(home, "mine", url)
            (home / ".docker" / "config.json").write_text('{"currentContext": "mine"}')
        backend = Docker()
        async with backend.start(docker_task(tmp_path / "task")) as sandbox:
            said = await sandbox.exec("echo there", timeout_s=20)
        assert said.text == "there\n"
        assert f"at {url} ({how})" in backend.described


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]", b"SSH-2.0-x\r\n", None])
async def test_whoever_answers_and_is_no_engine_is_named_in_one_line(
    answer: bytes | None, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        if answer is None:
            await over.wait()
        writer.write(answer or b"")
        writer.close()
        await writer.wait_closed()
        done.set()

    over, done = asyncio.Event(), asyncio.Event()
    monkeypatch.setattr("harbor_tasks.sandbox.docker.engine.PROBE_TIMEOUT_S", 0.3)
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        url = f"tcp://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        monkeypatch.setenv("DOCKER_HOST", url)
        with pytest.raises(SandboxMissing, match=rf"^docker: {re.escape(url)} \(DOCKER_HOST\): ") as none:
            await find()
        assert "\n" not in str(none.value)
    finally:
        over.set()
        await asyncio.wait_for(done.wait(), 60)
        server.close()


async def test_where_no_engine_answers_one_line_says_what_to_do(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SandboxMissing, match="no engine answers here: install") as none:
        await find()
    monkeypatch.setenv("DOCKER_HOST", f"unix://{home}/nobody.sock")
    with pytest.raises(SandboxMissing, match=r"nobody\.sock \(DOCKER_HOST\): .*start it") as nobody:
        await find()
    assert "\n" not in f"{none.value}{nobody.value}"
    monkeypatch.setattr("sys.platform", "darwin")
    assert "Docker Desktop" in looking.install()


async def test_an_engine_is_named_with_its_version_address_and_platform() -> None:
    found = await engine()
    assert found.described.startswith("Docker ")
    assert found.place.url in found.described
    assert found.platform in found.described


FRAMES = st.lists(st.tuples(st.sampled_from([1, 2]), st.binary(max_size=300)), max_size=12)


def _frames(parts: list[tuple[int, bytes]]) -> bytes:
    return b"".join(bytes([kind, 0, 0, 0]) + len(data).to_bytes(4) + data for kind, data in parts)


@given(FRAMES, st.data())
@settings(max_examples=60, deadline=None)
def test_frames_cut_anywhere_give_both_outputs_whole(parts: list[tuple[int, bytes]], data: st.DataObject) -> None:
    whole = _frames(parts)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=5)))

    async def pass_through() -> tuple[bytes, bytes]:
        source = asyncio.StreamReader()
        _, writer = await _nowhere()
        early, *rest = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
        duplex = Duplex(source, writer, early)
        for piece in rest:
            source.feed_data(piece)
            await asyncio.sleep(0)
        source.feed_eof()
        both = await duplex.stdout.read(), await duplex.stderr.read()
        await duplex.close()
        return both

    got = asyncio.run(pass_through())
    assert got == tuple(b"".join(text for kind, text in parts if kind == which) for which in (1, 2))


async def _nowhere() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    import socket

    ours, theirs = socket.socketpair()
    theirs.close()
    return await asyncio.open_connection(sock=ours)


async def test_an_output_that_nobody_reads_is_not_kept_in_memory() -> None:
    source = asyncio.StreamReader()
    _, writer = await _nowhere()
    duplex = Duplex(source, writer)
    for _ in range(200):
        source.feed_data(_frames([(1, bytes(1 << 16))]))
        await asyncio.sleep(0)
    assert len(duplex.stdout._buffer) < 3 * BUFFERED  # type: ignore[attr-defined] # how much waits is not told otherwise
    await duplex.close()


def test_the_images_that_a_build_begins_from_are_found() -> None:
    text = (
        "ARG BASE=debian\nARG TAG=12\nFROM --platform=linux/amd64 ${BASE}:$TAG AS first\nFROM first\n"
        "FROM scratch AS empty\nFROM python:3.12-slim\n"
    )
    assert bases(parse(text)) == ["debian:12", "python:3.12-slim"]


async def test_auto_takes_docker_where_each_task_starts_in_it(tmp_path: Path) -> None:
    await engine()
    backend = await choose("auto", [docker_task(tmp_path)])
    assert (backend.name, backend.isolated, backend.warning) == ("docker", True, None)
    assert "Docker" in backend.described


async def test_auto_goes_on_to_bubblewrap_and_says_so_where_an_image_cannot_be_had(tmp_path: Path) -> None:
    await engine()
    await bubblewrap()
    there = docker_task(tmp_path / "there")
    nowhere = write_task(tmp_path / "nowhere", "FROM 127.0.0.1:9/nobody/has-this:1\n")
    backend = await choose("auto", [there, nowhere])
    assert backend.name == "bubblewrap"
    assert backend.warning is not None
    assert "bubblewrap is taken, not docker (Docker" in backend.warning
    assert "127.0.0.1:9/nobody/has-this:1 is not in the engine and cannot be fetched" in backend.warning


async def test_a_refusal_of_the_engine_is_one_line() -> None:
    found = await engine()
    with pytest.raises(SandboxBroken, match="No such container") as refused:
        await found.call(lambda api: api.start("nobody-has-this-container"))
    assert "\n" not in str(refused.value)
