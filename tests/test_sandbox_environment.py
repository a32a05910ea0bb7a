"""The task environment: found whole or built anew, never half, and readable by a user without a home."""

import os
import subprocess
from pathlib import Path

import pytest

from harbor_tasks import environment
from harbor_tasks.environment import shared_folder, task_environment
from harbor_tasks.errors import SandboxMissing


def test_it_stands_by_itself_and_cannot_be_written() -> None:
    folder = task_environment()
    said = subprocess.run(
        [folder / "bin" / "python", "-c", "import numpy, sys; print(numpy.arange(4).sum(), sys.flags.isolated)"],
        env={},
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout == "6 0\n"
    homes = (os.path.expanduser("~"), "/home")
    for path in folder.rglob("*"):
        if path.is_symlink():
            target = os.path.realpath(path)
            assert target.startswith((str(folder), "/usr/")), path
            assert not target.startswith(homes) or target.startswith(str(folder))
        else:
            mode = path.stat().st_mode
            assert mode & 0o222 == 0, path
            assert mode & 0o004, path


def test_a_half_built_folder_is_removed_and_a_failed_build_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = tmp_path / "environment.lock"
    # pip refuses a line without a hash before it asks any index.
    lock.write_text("numpy==0.0\n")
    monkeypatch.setattr(environment, "_LOCK", lock)
    monkeypatch.setattr(environment, "cache_folder", lambda: tmp_path / "cache")
    half = tmp_path / "cache" / "environments" / ".building-dead"
    half.mkdir(parents=True)
    (half / "bin").mkdir()
    half.chmod(0o500)
    with pytest.raises(SandboxMissing, match="the task environment cannot be built"):
        task_environment()
    assert os.listdir(tmp_path / "cache" / "environments") == [".lock"]


def test_another_lock_file_names_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = environment._name()
    lock = tmp_path / "environment.lock"
    lock.write_text("numpy==0.0\n")
    monkeypatch.setattr(environment, "_LOCK", lock)
    assert environment._name() != before


def test_shared_folders_can_be_entered_under_any_umask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "cache_folder", lambda: tmp_path / "cache")
    old = os.umask(0o077)
    try:
        folder = shared_folder("bwrap")
    finally:
        os.umask(old)
    if os.geteuid() == 0:
        assert folder.stat().st_mode & 0o777 == 0o755
        assert folder.parent.stat().st_mode & 0o777 == 0o755


def test_the_lock_pins_every_package_by_hash_and_names_no_index() -> None:
    text = Path(environment.__file__).with_name("environment.lock").read_text()
    assert "://" not in text
    assert "index" not in text
    pinned = [block for block in text.replace("\\\n", " ").splitlines() if block.strip()]
    assert all("==" in block and "--hash=sha256:" in block for block in pinned)
