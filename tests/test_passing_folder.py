"""A folder that passes: gone with its block, and with the next one where its owner was killed."""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from experiments.passing_folder import PREFIX, passing_folder

HOLDS = (
    "from experiments.passing_folder import passing_folder\nwith passing_folder() as f:\n print(f, flush=True); input()"
)


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


def _age(folder: Path) -> None:
    os.utime(folder, (time.time() - 3600,) * 2)


def test_it_is_gone_after_its_block(temporary: Path) -> None:
    with passing_folder() as folder:
        assert folder.parent == temporary
        (folder / "copy").mkdir()
    assert list(temporary.iterdir()) == []


def test_what_a_killed_owner_left_is_removed_by_the_next_and_what_another_holds_is_not(temporary: Path) -> None:
    owners = [
        subprocess.Popen([sys.executable, "-c", HOLDS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    try:
        folders = []
        for owner in owners:
            assert owner.stdout is not None
            folders.append(Path(owner.stdout.readline().strip()))
        for folder in folders:
            (folder / "before").mkdir()
            _age(folder)
        owners[0].kill()
        owners[0].wait(timeout=30)
        with passing_folder():
            assert not folders[0].exists()
            assert (folders[1] / "before").is_dir()
        owners[1].communicate("\n", timeout=30)
        assert list(temporary.iterdir()) == []
    finally:
        for owner in owners:
            owner.kill()
            owner.communicate(timeout=30)


def test_a_new_folder_a_link_and_a_file_are_left_alone(temporary: Path) -> None:
    fresh, elsewhere = temporary / f"{PREFIX}fresh", temporary / "elsewhere"
    fresh.mkdir()
    elsewhere.mkdir()
    _age(elsewhere)
    (temporary / f"{PREFIX}link").symlink_to(elsewhere)
    (temporary / f"{PREFIX}file").write_text("")
    with passing_folder():
        pass
    assert fresh.is_dir()
    assert elsewhere.is_dir()
    assert (temporary / f"{PREFIX}file").exists()
