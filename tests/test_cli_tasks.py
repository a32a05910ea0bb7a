"""fullchain tasks: what is listed, and that a check tells a task that measures from one that does not."""

from pathlib import Path

import pytest

from experiments.cli import main
from tests.sandbox_tasks import bubblewrap
from tests.task_directory import write_task


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as end:
        main(["tasks", *arguments])
    printed = capsys.readouterr()
    assert isinstance(end.value.code, int)
    return end.value.code, printed.out, printed.err


@pytest.fixture
async def sandbox() -> None:
    """Skips where none can start."""
    await bubblewrap()


def test_the_bundled_tasks_are_listed_with_what_they_need(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, error = said(capsys, "list")
    assert (code, error) == (0, "")
    rows = {line.split()[0]: line for line in out.splitlines()}
    assert {"archive-intake", "checkout-incident", "parcel-history", "tenant-billing"} <= rows.keys()
    assert "tar, git, python>=3.9" in rows["parcel-history"]
    _, alone, _ = said(capsys, "list", "bundled/parcel-history")
    assert [line.split()[0] for line in alone.splitlines()[2:]] == ["parcel-history"]


def test_a_task_that_is_not_valid_is_named_beside_those_that_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_task(tmp_path / "good")
    write_task(tmp_path / "bad", "x = [")
    code, out, error = said(capsys, "list", str(tmp_path))
    assert code == 1
    assert "good" in out
    assert error.startswith("not valid: task bad: task.toml is no TOML")


@pytest.mark.usefixtures("sandbox")
def test_a_sound_task_passes_the_check_leg_by_leg(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_task(tmp_path / "t")
    code, out, _ = said(capsys, "check", str(path), "--sandbox", "bubblewrap")
    assert code == 0
    head, solution, nothing = out.splitlines()
    assert head.split() == ["ok", "t"]
    assert solution.split()[:3] == ["solution", "reward", "1"]
    assert nothing.split()[:3] == ["nothing", "reward", "0"]
    assert all(line.endswith("as expected") for line in (solution, nothing))


@pytest.mark.usefixtures("sandbox")
@pytest.mark.parametrize(
    ("task", "expected"),
    [
        ({"solve": "touch dome.txt\n"}, "EXPECTED TO PASS: reward 0, expected to pass"),
        ({"test": "#!/bin/bash\necho 1 >/logs/verifier/reward.txt\n"}, "EXPECTED TO FAIL: reward 1, expected to fail"),
        ({"toml": '[metadata]\nrequires = ["no-such-program"]'}, "refused  t: task t: the sandbox bubblewrap lacks"),
    ],
)
def test_a_task_that_does_not_hold_ends_the_check_with_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], task: dict[str, str], expected: str
) -> None:
    code, out, _ = said(capsys, "check", str(write_task(tmp_path / "t", **task)), "--sandbox", "bubblewrap")
    assert code == 1
    assert expected in out


def test_an_unknown_sandbox_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, error = said(capsys, "check", str(write_task(tmp_path / "t")), "--sandbox", "podman")
    assert (code, out) == (2, "")
    assert error == "fullchain: sandbox 'podman': expected one of auto, docker, bubblewrap, host\n"
