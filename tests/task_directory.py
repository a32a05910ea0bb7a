"""Writes small task directories for tests."""

from pathlib import Path

TEST_SH = """#!/bin/bash
reward=0
[ -e done.txt ] && reward=1
echo "$reward" >/logs/verifier/reward.txt
"""


def write_task(root: Path, toml: str = "", *, test: str = TEST_SH, solve: str | None = "touch done.txt\n") -> Path:
    """A valid task: pass when done.txt stands in the workdir. `solve` None leaves solution/ out."""
    files = {
        "task.toml": toml,
        "instruction.md": "Make a file named done.txt.\n",
        "environment/Dockerfile": "FROM debian:bookworm-slim\nWORKDIR /app\n",
        "tests/test.sh": test,
    }
    if solve is not None:
        files["solution/solve.sh"] = f"#!/bin/bash\n{solve}"
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root
