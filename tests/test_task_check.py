"""What `check` says of sound and of unsound tasks, each leg in a fresh sandbox."""

from pathlib import Path

import pytest

from harbor_tasks.check import CheckResult, check
from harbor_tasks.errors import TaskRefused
from harbor_tasks.format import load_task
from tests.sandbox_tasks import bubblewrap
from tests.task_directory import write_task


async def checked(path: Path) -> CheckResult:
    return await check(load_task(path), await bubblewrap())


def add_wrong(path: Path, name: str, script: str) -> None:
    folder = path / "audit" / "wrong"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(f"#!/bin/bash\n{script}")


async def test_a_sound_task_is_ok_leg_by_leg(tmp_path: Path) -> None:
    path = write_task(tmp_path / "t")
    add_wrong(path, "typo.sh", "touch dome.txt\n")
    add_wrong(path, "elsewhere.sh", "touch /tmp/done.txt\n")
    result = await checked(path)
    legs = [(leg.name, leg.expected, leg.reward, leg.reason, leg.ok) for leg in result.legs]
    assert legs == [
        ("solution", "pass", 1.0, None, True),
        ("nothing", "fail", 0.0, None, True),
        ("wrong/elsewhere", "fail", 0.0, None, True),
        ("wrong/typo", "fail", 0.0, None, True),
    ]
    assert result.ok


async def test_a_test_that_accepts_wrong_work_is_found(tmp_path: Path) -> None:
    path = write_task(tmp_path / "t", test="#!/bin/bash\necho 1 >/logs/verifier/reward.txt\n")
    add_wrong(path, "anything.sh", "true\n")
    result = await checked(path)
    assert [leg.ok for leg in result.legs] == [True, False, False]
    assert result.legs[1].reason == "reward 1, expected to fail"
    assert not result.ok


async def test_a_solution_that_fails_is_found_with_its_exit_code_and_last_line(tmp_path: Path) -> None:
    test = "#!/bin/bash\necho looking\necho nothing there\necho 0 >/logs/verifier/reward.txt\n"
    result = await checked(write_task(tmp_path / "t", test=test, solve="exit 7\n"))
    assert result.legs[0].reason == "reward 0, expected to pass; its script ended with 7: nothing there"


async def test_an_unscored_leg_is_not_ok_even_where_failing_is_expected(tmp_path: Path) -> None:
    result = await checked(write_task(tmp_path / "t", test="#!/bin/bash\n[ -e done.txt ] || exit 1\n"))
    assert [leg.reason for leg in result.legs] == [
        "reward missing (tests/test.sh ended with 0)",
        "reward missing (tests/test.sh ended with 1)",
    ]
    assert not any(leg.ok for leg in result.legs)


async def test_a_missing_solution_is_a_failed_leg(tmp_path: Path) -> None:
    result = await checked(write_task(tmp_path / "t", solve=None))
    assert [(leg.name, leg.ok, leg.reason) for leg in result.legs] == [
        ("solution", False, "solution/solve.sh is missing"),
        ("nothing", True, None),
    ]


async def test_a_solution_that_does_not_end_is_cut_at_the_agents_limit(tmp_path: Path) -> None:
    result = await checked(write_task(tmp_path / "t", "[agent]\ntimeout_sec = 0.5", solve="sleep 60\n"))
    assert result.legs[0].reason is not None
    assert result.legs[0].reason.startswith("its script timed out after")


async def test_what_cannot_be_run_is_refused_with_every_reason(tmp_path: Path) -> None:
    path = write_task(tmp_path / "t", "[environment]\ngpus = 1\ntpu = 'v5'")
    with pytest.raises(TaskRefused, match=r"task t: not supported: environment\.gpus: 1 GPUs; environment\.tpu: a TPU"):
        await checked(path)


async def test_a_program_that_the_sandbox_lacks_is_named(tmp_path: Path) -> None:
    path = write_task(tmp_path / "t", '[metadata]\nrequires = ["bash", "no-such-program"]')
    with pytest.raises(TaskRefused, match="task t: the sandbox bubblewrap lacks no-such-program"):
        await checked(path)
