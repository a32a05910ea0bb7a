"""The committed lock of what set-up installs: every version by hash, from whichever index the machine uses."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
LOCK = (ROOT / "requirements.lock").read_text(encoding="utf-8")


def locked() -> dict[str, str]:
    """Each package's block by its name: version, marker and hashes in one line."""
    blocks = [line for line in LOCK.replace("\\\n", " ").splitlines() if line and not line.lstrip().startswith("#")]
    return {re.split(r"==", block)[0].split("[")[0]: block for block in blocks}


def test_every_package_is_pinned_by_version_and_hash() -> None:
    assert len(locked()) > 30
    for name, block in locked().items():
        assert re.fullmatch(r"[a-z0-9][a-z0-9._-]*==[^\s;]+( ;[^\\]*?)?(\s+--hash=sha256:[0-9a-f]{64})+", block), name


def test_no_address_is_named() -> None:
    assert "://" not in LOCK
    assert "index-url" not in LOCK
    assert "find-links" not in LOCK


def test_all_that_the_project_asks_for_is_in_it() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    asked = [*project["project"]["dependencies"], *project["dependency-groups"]["dev"]]
    assert {re.split(r"[<>=;\s]", requirement)[0] for requirement in asked} <= locked().keys()
