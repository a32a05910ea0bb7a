"""Topologies of one's own for tests: the documented example, one broken in a single place, and installed packages."""

import shutil
import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[1] / "docs" / "review_twice"

ARMS = """\
  - name: reviewed
    topology: ./review_twice.py
    roles: {writer: sim-deepseek-v4-flash, critic: sim-deepseek-v4-flash}
"""

PYPROJECT = """\
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"

[project]
name = "review-kit"
version = "1.0"

[project.entry-points."fullchain.topologies"]
review_twice = "review_kit.review_twice:TOPOLOGY"

[tool.setuptools]
packages = ["review_kit"]

[tool.setuptools.package-data]
review_kit = ["*.md"]
"""


def copy_example(folder: Path) -> Path:
    """The topology's file, its prompts beside it."""
    for path in EXAMPLE.iterdir():
        if path.is_file():
            shutil.copy(path, folder / path.name)
    return folder / "review_twice.py"


def spoilt(folder: Path, old: str, new: str) -> Path:
    """The example with `old`, which is in it, replaced."""
    path = copy_example(folder)
    source = path.read_text()
    assert old in source
    path.write_text(source.replace(old, new))
    return path


def install_package(folder: Path) -> Path:
    """Builds and installs the example as a package. Returns the folder to be put on the path. Needs no network."""
    source, target = folder / "source", folder / "site"
    (source / "review_kit").mkdir(parents=True)
    copy_example(source / "review_kit")
    (source / "review_kit" / "__init__.py").touch()
    (source / "pyproject.toml").write_text(PYPROJECT)
    options = ["--quiet", "--no-index", "--no-deps", "--no-build-isolation", "--disable-pip-version-check"]
    command = [sys.executable, "-m", "pip", "install", *options, "--target", str(target), str(source)]
    subprocess.run(command, check=True, timeout=100, capture_output=True)
    return target


def offer(folder: Path, package: str, name: str, value: str) -> None:
    """What an installed package leaves of itself: `folder` is to be put on the path."""
    info = folder / f"{package.replace('-', '_')}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[fullchain.topologies]\n{name} = {value}\n")
