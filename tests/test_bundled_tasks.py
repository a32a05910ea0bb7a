"""The bundled tasks in the real sandbox: sound, quick to verify, and solvable after any of their wrong solutions."""

from pathlib import Path

import pytest

from harbor_tasks.check import check, solve
from harbor_tasks.format import Task, bundled_tasks, load_task, load_tasks
from harbor_tasks.verifier import verify
from tests.bubblewrap_sandbox import bubblewrap

TASKS, INVALID = load_tasks(bundled_tasks())
WRONG = [(task.name, script.stem) for task in TASKS for script in task.wrong]


def by_name(name: str) -> Task:
    return load_task(bundled_tasks() / name)


def test_there_are_four_of_four_categories_in_harbors_format() -> None:
    assert INVALID == []
    assert {task.name: task.category for task in TASKS} == {
        "archive-intake": "shell",
        "checkout-incident": "incident",
        "parcel-history": "git",
        "tenant-billing": "python",
    }
    for task in TASKS:
        assert task.config.task is not None
        assert task.config.task.name == f"fullchain/{task.name}"
        assert task.config.environment.network_mode == "no-network"
        assert (task.unknown_fields, task.unsupported()) == ((), ())
        assert len(task.wrong) >= 2


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
async def test_each_is_sound(task: Task) -> None:
    result = await check(task, await bubblewrap())
    assert [(leg.name, leg.reason) for leg in result.legs if not leg.ok] == []
    assert len(result.legs) == 2 + len(task.wrong)
    rewards = {leg.name: leg.reward for leg in result.legs}
    graded = {"wrong/names-inventory-too": pytest.approx(2 / 3, abs=1e-6)}
    assert rewards == {name: graded.get(name, float(name == "solution")) for name in rewards}


@pytest.mark.parametrize(("name", "wrong"), WRONG)
async def test_the_solution_passes_after_a_wrong_one(name: str, wrong: str) -> None:
    task = by_name(name)
    backend = await bubblewrap()
    async with backend.start(task) as sandbox:
        played = await solve(task, sandbox, task.path / "audit" / "wrong" / f"{wrong}.sh")
        # A wrong solution is plausible: its author saw it run to its end.
        assert (played.exit_code, played.timed_out) == (0, False), played.text
        assert (await solve(task, sandbox)).exit_code == 0
        if wrong == task.wrong[0].stem:
            assert (await solve(task, sandbox)).exit_code == 0, "a second run on its own result"
        verdict = await verify(task, sandbox)
    assert verdict.reward == 1.0, verdict.output


async def test_the_incident_is_scored_by_precision_once_no_cause_is_missed() -> None:
    tax = '{"entity": "tax", "fault": "certificate_expired"}'
    pod = '{"entity": "tax-84c6d-p3xwz", "fault": "certificate_expired"}'
    pool = '{"entity": "orders-pool", "fault": "connection_limit"}'
    other = '{"entity": "web", "fault": "bad_deploy"}'
    wrong_fault = '{"entity": "tax", "fault": "bad_deploy"}'
    cases = {
        f"[{pod}, {pool}, {tax}, {pool}]": 1.0,
        f"[{tax}, {pool}, {other}, 7]": 0.5,
        f"[{wrong_fault}, {pool}]": 0.0,
        f"[{tax}]": 0.0,
        "[]": 0.0,
        '{"tax": 1}': 0.0,
        "[[[": 0.0,
    }
    task = by_name("checkout-incident")
    backend = await bubblewrap()
    found = {}
    async with backend.start(task) as sandbox:
        for causes in cases:
            await sandbox.exec(f"echo '{{\"root_causes\": {causes}}}' >/app/diagnosis.json", timeout_s=10)
            found[causes] = (await verify(task, sandbox)).reward
    assert found == cases


@pytest.mark.parametrize(
    ("name", "trick"),
    [
        ("archive-intake", "mkdir archive; cp -r incoming archive/north; touch archive/{MANIFEST,SKIPPED,TOTALS}.tsv"),
        ("tenant-billing", "rm -rf checks; printf 'import os\\nos._exit(0)\\n' >billing/__init__.py"),
        ("tenant-billing", "printf 'import unittest\\nunittest.TestCase.run = print\\n' >billing/__init__.py"),
        ("tenant-billing", "printf 'exit(0)\\n' >sitecustomize.py; cp sitecustomize.py unittest.py"),
        (
            "parcel-history",
            "cd repo; git branch fix; git branch feature/labels; mkdir ../answers; "
            "git log -1 --format=%H >../answers/culprit.txt",
        ),
    ],
)
async def test_a_cheap_trick_does_not_pass(name: str, trick: str) -> None:
    task = by_name(name)
    backend = await bubblewrap()
    async with backend.start(task) as sandbox:
        await sandbox.exec(trick, timeout_s=20)
        assert (await verify(task, sandbox)).reward == 0.0


async def test_the_answers_are_not_visible_to_the_agent() -> None:
    task = by_name("parcel-history")
    backend = await bubblewrap()
    async with backend.start(task) as sandbox:
        seen = await sandbox.exec("ls -A /app /tests /solution 2>/dev/null; cat /app/build/* 2>&1", timeout_s=10)
    assert "make_repo" not in seen.text
    assert "solve.sh" not in seen.text
    assert "test.sh" not in seen.text


def test_scripts_can_be_run_as_they_are() -> None:
    scripts: list[Path] = [*bundled_tasks().glob("*/tests/test.sh"), *bundled_tasks().glob("*/solution/solve.sh")]
    assert len(scripts) == 8
    for script in scripts:
        assert script.stat().st_mode & 0o100
        assert script.read_text().startswith("#!/bin/bash\n")
