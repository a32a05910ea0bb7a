"""What is kept of a sandbox: the same content has the same name and bytes, and nothing hostile gets in or out."""

import gzip
import io
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harbor_tasks.errors import SandboxBroken, StateUnfit
from harbor_tasks.sandbox import state_archive
from harbor_tasks.sandbox.copied_files import CopiedFiles, Layout
from harbor_tasks.sandbox.state_archive import Unpacked, pack

LAYOUT = Layout("bubblewrap", ("app", "tmp"), ("etc/gone", "odd\udcff"))

Member = tuple[str, str, int, object]
"""Name, kind, mode, and the bytes of a file or where a link leads."""
TREE: list[Member] = [
    ("app", "directory", 0o755, None),
    ("app/closed", "directory", 0o500, None),
    ("app/closed/a", "file", 0o400, b"alpha"),
    ("app/link", "link", 0o777, "/etc/passwd"),
    ("app/run.sh", "file", 0o4755, b"#!/bin/sh\n"),
    ("app/" + "n" * 200, "file", 0o644, b""),
    ("app/odd \udcff\n'", "file", 0o644, b"x" * 70_000),
]


def header(member: Member, *, at: float = 0) -> tarfile.TarInfo:
    name, kind, mode, content = member
    made = tarfile.TarInfo(name)
    made.type = {"directory": tarfile.DIRTYPE, "file": tarfile.REGTYPE, "link": tarfile.SYMTYPE}.get(
        kind, kind.encode("latin-1")
    )
    made.mode, made.mtime = mode, at
    if isinstance(content, bytes):
        made.size = len(content)
    elif isinstance(content, str):
        made.linkname = content
    return made


def stream(members: list[Member], *, at: float = 0) -> io.BytesIO:
    found = io.BytesIO()
    with tarfile.open(fileobj=found, mode="w", format=tarfile.PAX_FORMAT, encoding="utf-8") as tar:
        for member in members:
            content = member[3]
            tar.addfile(header(member, at=at), io.BytesIO(content) if isinstance(content, bytes) else None)
    return found


def packed(members: list[Member], layout: Layout = LAYOUT, *, at: float = 0) -> tuple[str, bytes]:
    target = io.BytesIO()
    name = pack(CopiedFiles.read(stream(members, at=at)), layout, target)
    return name, target.getvalue()


def written(folder: Path, content: bytes) -> Path:
    path = folder / "state.tar.gz"
    path.write_bytes(content)
    return path


def seen(files: CopiedFiles) -> list[tuple[object, ...]]:
    return [
        (entry.path, entry.kind, entry.mode, entry.says or b"".join(files.content(entry))) for entry in files.entries
    ]


def test_what_was_packed_comes_back_with_modes_links_and_names_of_any_bytes(tmp_path: Path) -> None:
    name, content = packed(TREE)
    state = Unpacked(written(tmp_path, content))
    try:
        assert (state.hash, state.layout) == (name, LAYOUT)
        assert seen(state.files) == [(n, kind, mode, data or b"") for n, kind, mode, data in sorted(TREE)]
    finally:
        state.close()


@given(
    st.permutations(TREE),
    st.floats(0, 2e9),
    st.sampled_from(range(len(TREE))),
    st.sampled_from(["content", "mode", "name", "gone"]),
)
def test_the_same_content_has_one_name_and_other_content_another(
    order: list[Member], at: float, changed: int, how: str
) -> None:
    assert packed(order, at=at) == packed(TREE)
    name, kind, mode, content = TREE[changed]
    other: list[Member]
    if how == "content":
        other = [(name, kind, mode, content + b"!" if isinstance(content, bytes) else f"{content}!")]
        if kind == "directory":
            return
    elif how == "mode":
        other = [(name, kind, mode ^ 0o020, content)]
        if kind == "link":
            return
    else:
        other = [] if how == "gone" else [(f"{name}!", kind, mode, content)]
    assert packed([*TREE[:changed], *other, *TREE[changed + 1 :]])[0] != packed(TREE)[0]


def test_what_is_removed_and_emptied_is_part_of_the_name() -> None:
    names = {
        packed(TREE, Layout("bubblewrap", *paths))[0] for paths in ((("app",),), ((), ("app",)), (("app",), ("x",)))
    }
    assert len(names) == 3
    assert packed(TREE, Layout("bubblewrap", ("tmp", "app"), ("odd\udcff", "etc/gone"))) == packed(TREE)


def test_a_tar_for_unpacking_opens_closed_directories_and_closes_them_at_its_end() -> None:
    target = io.BytesIO()
    CopiedFiles.read(stream(TREE, at=123.5)).write(target)
    with tarfile.open(fileobj=target) as tar:
        modes = [(member.name, member.mode) for member in tar if member.name == "app/closed"]
        assert modes == [("app/closed", 0o700), ("app/closed", 0o500)]
        assert {member.mtime for member in tar.getmembers()} == {123.5}
        assert tar.getnames()[-1] == "app/closed"


@pytest.mark.parametrize("name", ["../out", "app/../../out", "/etc/passwd", "app/.."])
def test_a_name_that_leads_out_is_refused(name: str) -> None:
    with pytest.raises(SandboxBroken, match="leads out"):
        CopiedFiles.read(stream([(name, "file", 0o644, b"x")]))


def test_names_and_links_of_more_than_any_system_takes_are_refused() -> None:
    for member in (("a/" * 2500, "directory", 0o755, None), ("app/l", "link", 0o777, "a" * 5000)):
        with pytest.raises(SandboxBroken, match="4096 bytes"):
            CopiedFiles.read(stream([member]))


def test_pipes_devices_and_hard_links_are_left_out_and_the_last_of_two_counts() -> None:
    odd: list[Member] = [(f"app/{kind}", kind, 0o644, None) for kind in ("1", "3", "4", "6")]
    both: list[Member] = [("./app/a", "file", 0o644, b"first"), *odd, ("app//a", "file", 0o600, b"last")]
    assert seen(CopiedFiles.read(stream(both))) == [("app/a", "file", 0o600, b"last")]


@given(st.binary(max_size=2000), st.integers(0, 20_000))
def test_a_stream_of_anything_is_read_or_refused(noise: bytes, cut: int) -> None:
    for content in (noise, stream(TREE).getvalue()[:cut] + noise):
        try:
            files = CopiedFiles.read(io.BytesIO(content))
            seen(files)
        except SandboxBroken:
            pass


def test_too_much_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    files = CopiedFiles.read(stream(TREE))
    monkeypatch.setattr(state_archive, "MOST_BYTES", files.size - 1)
    target = io.BytesIO()
    with pytest.raises(StateUnfit, match="more than the"):
        pack(files, LAYOUT, target)
    assert target.getvalue() == b""


def archive(members: list[tuple[str, bytes]]) -> bytes:
    found = io.BytesIO()
    with tarfile.open(fileobj=found, mode="w:gz") as tar:
        for name, content in members:
            made = tarfile.TarInfo(name)
            made.size = len(content)
            tar.addfile(made, io.BytesIO(content))
    return found.getvalue()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no archive",
        gzip.compress(b"no tar" * 1000),
        packed(TREE)[1][:-2000],
        archive([("root/app/a", b"x")]),
        archive([("state.json", b"[]")]),
        archive([("state.json", b"{")]),
        archive([("state.json", b'{"backend": "b", "emptied": [1], "removed": []}')]),
        archive([("state.json", b'{"backend": "b", "emptied": ["../.."], "removed": []}')]),
        archive([("state.json", b'{"backend": "b", "emptied": [], "removed": ["/etc"]}')]),
        archive([("state.json", b'{"backend": "b", "emptied": [], "removed": [""]}')]),
        archive([("../state.json", b"")]),
    ],
    # A gzip holds when it was made, and each worker must give a case the same name.
    ids=[str(number) for number in range(12)],
)
def test_what_is_no_whole_archive_is_refused_in_one_line(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(StateUnfit) as refused:
        Unpacked(written(tmp_path, content))
    assert str(refused.value).startswith(str(tmp_path))
    assert "\n" not in str(refused.value)


def test_an_archive_that_unpacks_to_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_archive, "_MOST_UNPACKED", 1 << 20)
    with pytest.raises(StateUnfit, match="unpacks to more"):
        Unpacked(written(tmp_path, gzip.compress(b"\0" * (2 << 20))))


def test_what_was_changed_in_an_archive_changes_its_hash(tmp_path: Path) -> None:
    name, content = packed(TREE)
    plain = bytearray(gzip.decompress(content))
    plain[plain.index(b"alpha")] ^= 1
    state: Any = Unpacked(written(tmp_path, gzip.compress(bytes(plain))))
    state.close()
    assert state.hash != name
    assert os.listdir(tmp_path) == ["state.tar.gz"]
