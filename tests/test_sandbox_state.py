"""What a hostile process may leave in its folder is removed, or stays without harm to whoever comes next."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from harbor_tasks.errors import SandboxBroken
from harbor_tasks.sandbox import state
from harbor_tasks.sandbox.state import remove_leftovers, remove_tree, take_slot

NOBODY = 65534


@pytest.fixture
def trials(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        monkeypatch.setattr(state, "shared_folder", lambda name: Path(folder))
        yield Path(folder)


def dig(folder: Path, levels: int) -> None:
    """A directory `levels` deep, with a file in each thousandth."""
    current = os.open(folder, os.O_RDONLY)
    for level in range(levels):
        os.mkdir("d", dir_fd=current)
        below = os.open("d", os.O_RDONLY, dir_fd=current)
        os.close(current)
        current = below
        if level % 1000 == 0:
            os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=current))
    os.close(current)


def test_a_tree_of_thirty_thousand_levels_is_removed() -> None:
    # In memory where there is some: a disk takes most of a millisecond for each.
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    tree = Path(tempfile.mkdtemp(dir=memory))
    dig(tree, 30_000)
    remove_tree(tree)
    assert not tree.exists()


def test_links_are_removed_and_never_followed(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    (kept / "folder").mkdir(parents=True)
    (kept / "file").write_text("precious")
    kept.chmod(0o500)
    tree = tmp_path / "tree"
    (tree / "a" / "b").mkdir(parents=True)
    (tree / "a" / "b" / "link").symlink_to(kept)
    (tree / "link").symlink_to(kept / "file")
    (tree / "loop").symlink_to("loop")
    os.link(kept / "file", tree / "a" / "hard")
    os.mkfifo(tree / "a" / "fifo")
    (tree / "a").chmod(0)
    remove_tree(tree)
    assert not os.path.lexists(tree)
    (tmp_path / "top").symlink_to(kept)
    remove_tree(tmp_path / "top")
    assert not os.path.lexists(tmp_path / "top")
    assert (kept / "file").read_text() == "precious"
    assert (kept / "file").stat().st_mode & 0o777 == 0o644
    assert kept.stat().st_mode & 0o777 == 0o500
    kept.chmod(0o700)


def test_an_ordinary_owner_removes_what_it_took_its_own_rights_from(tmp_path: Path) -> None:
    """In a child that is no root, so that permissions count."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)  # noqa: S103
        child = os.fork()
        if child == 0:
            try:
                if os.geteuid() == 0:
                    os.setgroups([])
                    os.setgid(NOBODY)
                    os.setuid(NOBODY)
                tree = Path(folder, "tree")
                for name in ("a/b/c", "a/d", "e"):
                    (tree / name).mkdir(parents=True)
                (tree / "a" / "b" / "file").touch()
                for name, mode in (("a/b/c", 0), ("a/b", 0o400), ("a/d", 0o111), ("a", 0), ("e", 0o555), ("", 0)):
                    (tree / name).chmod(mode)
                remove_tree(tree)
                os._exit(0 if not tree.exists() else 2)
            except BaseException:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_hundreds_of_files_and_directories_beside_each_other_are_removed(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    for number in range(300):
        (tree / f"{number}" / "same" / "name").mkdir(parents=True)
        (tree / f"{number}" / "file").touch()
    remove_tree(tree)
    assert not tree.exists()
    remove_tree(tree)


def test_what_cannot_be_removed_stops_neither_release_nor_a_start(
    trials: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slot = take_slot()
    (slot.folder / "file").touch()
    with monkeypatch.context() as broken:

        def refuse(*_: object, **__: object) -> None:
            raise PermissionError(1, "Operation not permitted")

        broken.setattr(os, "unlink", refuse)
        with pytest.raises(SandboxBroken, match="cannot be removed: Operation not permitted"):
            remove_tree(slot.folder)
        slot.release()
        assert slot.folder.exists()
        remove_leftovers()
        again = take_slot()
        assert again.folder != slot.folder
        assert again.uid == slot.uid
    again.release()
    assert not again.folder.exists()
    assert slot.folder.exists()
    remove_leftovers()
    assert sorted(path.name for path in trials.iterdir()) == ["0.lock"]
