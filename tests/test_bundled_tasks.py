"""The bundled tasks in the real sandbox: sound, quick to verify, and solvable after any of their wrong solutions."""

import shutil
from pathlib import Path

import pytest

from harbor_tasks.check import check, solve
from harbor_tasks.format import Task, bundled_tasks, load_task, load_tasks
from harbor_tasks.verifier import Verdict, verify
from tests.sandbox_tasks import bubblewrap

TASKS, INVALID = load_tasks(bundled_tasks())
WRONG = [(task.name, script.stem) for task in TASKS for script in task.wrong]


def by_name(name: str) -> Task:
    return load_task(bundled_tasks() / name)


async def after(name: str, command: str) -> Verdict:
    """The verdict on a fresh sandbox in which one command has run."""
    task = by_name(name)
    backend = await bubblewrap()
    async with backend.start(task) as sandbox:
        done = await sandbox.exec(command, timeout_s=20)
        assert done.exit_code == 0, done.text
        return await verify(task, sandbox)


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


@pytest.mark.parametrize(
    ("name", "trick"),
    [
        ("checkout-incident", "mkfifo diagnosis.json"),
        ("checkout-incident", "ln -s /dev/zero diagnosis.json"),
        ("parcel-history", "mkdir answers; mkfifo answers/culprit.txt"),
        ("archive-intake", "mkdir -p archive/north; mkfifo archive/MANIFEST.tsv archive/north/a.csv"),
        (
            "archive-intake",
            "mkdir archive; ln -s /tests/expected/MANIFEST.tsv archive/; truncate -s 1G archive/big.csv",
        ),
        ("tenant-billing", "echo 'while True: print(\"x\" * 100000)' >billing/__init__.py"),
    ],
)
async def test_what_cannot_be_read_to_its_end_scores_zero_at_once(name: str, trick: str) -> None:
    verdict = await after(name, trick)
    assert verdict.reward == 0.0, verdict.unscored_reason


async def test_a_package_that_never_answers_scores_zero_before_the_verifier_times_out(tmp_path: Path) -> None:
    copy = tmp_path / "tenant-billing"
    shutil.copytree(by_name("tenant-billing").path, copy)
    confined = copy / "tests" / "confined.py"
    text = confined.read_text()
    assert text.count("SECONDS = 40\n") == 1
    confined.write_text(text.replace("SECONDS = 40\n", "SECONDS = 1\n"))
    task = load_task(copy)
    assert task.config.verifier.timeout_sec > 2 * 40
    backend = await bubblewrap()
    async with backend.start(task) as sandbox:
        await sandbox.exec("echo 'import time; time.sleep(9999)' >billing/__init__.py", timeout_s=10)
        verdict = await verify(task, sandbox)
    assert verdict.reward == 0.0, verdict.unscored_reason


def test_the_two_tasks_that_run_the_agents_code_confine_it_alike() -> None:
    copies = [by_name(name).tests / "confined.py" for name in ("parcel-history", "tenant-billing")]
    assert copies[0].read_bytes() == copies[1].read_bytes()


# /logs/verifier/one holds a full reward, written before: to bring it into the reward's place needs no right to write.
FORGERIES = {
    "writes": "open(PATH, 'w').write('1')",
    "kills-the-check": """
os.kill(os.getppid(), 9)
while True:
    try:
        os.link('/logs/verifier/one', '/logs/verifier/two')
        os.replace('/logs/verifier/two', PATH)
    except OSError:
        pass
""",
    "shortens-the-script": "os.truncate('/tests/test.sh', 0); os.rename('/logs/verifier/one', PATH)",
    "leaves-a-process": """
if os.fork() == 0:
    os.execvp('sh', ['sh', '-c', f'while :; do ln -f /logs/verifier/one {PATH}; done'])
""",
    "kills-everything": "os.rename('/logs/verifier/one', PATH); os.kill(-1, 9)",
}


def forgery(kind: str, suffix: str) -> str:
    return f"import os\nPATH = '/logs/verifier/reward.{suffix}'\n{FORGERIES[kind]}"


@pytest.mark.parametrize("kind", FORGERIES)
@pytest.mark.parametrize("suffix", ["txt", "json"])
async def test_code_under_test_cannot_forge_its_reward(kind: str, suffix: str) -> None:
    full = "1" if suffix == "txt" else '{"reward": 1}'
    verdict = await after(
        "tenant-billing",
        f"mkdir -p /logs/verifier; echo '{full}' >/logs/verifier/one; "
        f"cat >billing/__init__.py <<'CODE'\n{forgery(kind, suffix)}\nCODE",
    )
    # Tests that were killed have no score; in every other case the work is wrong.
    assert verdict.reward in ((None, 0.0) if kind == "kills-everything" else (0.0,)), verdict.unscored_reason


async def test_code_on_the_branch_cannot_forge_its_reward_either() -> None:
    verdict = await after(
        "parcel-history",
        "mkdir -p /logs/verifier; echo 1 >/logs/verifier/one; cd repo; git checkout -q -b fix; "
        f"cat >rates.py <<'CODE'\n{forgery('kills-the-check', 'txt')}\nCODE\n"
        "git -c user.name=a -c user.email=a@example.org commit -q -a -m fix",
    )
    assert verdict.reward == 0.0, verdict.unscored_reason


async def test_a_diagnosis_may_start_with_a_byte_order_mark() -> None:
    task = by_name("checkout-incident")
    backend = await bubblewrap()
    async with backend.start(task) as sandbox:
        assert (await solve(task, sandbox)).exit_code == 0
        await sandbox.exec("printf '\\xef\\xbb\\xbf' | cat - diagnosis.json >m; mv m diagnosis.json", timeout_s=10)
        assert (await sandbox.read("/app/diagnosis.json", limit=3)) == b"\xef\xbb\xbf"
        assert (await verify(task, sandbox)).reward == 1.0


SLIPS = {
    "takes-a-longer-date": ("archive-intake", "[0-9]{2}$ ]]", "[0-9]{2} ]]"),
    "a-name-is-taken-whatever-its-extension": (
        "archive-intake",
        '[ -e "$archive/$target" ]',
        '[ -e "$archive/${target%.*}.csv" ] || [ -e "$archive/${target%.*}.txt" ]',
    ),
    "shows-an-unknown-station-as-written": (
        "archive-intake",
        'print toupper(seen["station"])',
        'print (seen["station"] ~ /9$/ ? seen["station"] : toupper(seen["station"]))',
    ),
    "takes-two-hashes-for-one": ("archive-intake", "sub(/^#[ ]*/", "sub(/^#+[ ]*/"),
    "sorts-by-the-parts-of-the-path": (
        "archive-intake",
        "find . -type f -print0 | sort -z",
        r"find . -type f -print0 | tr '/' '\001' | sort -z | tr '\001' '/'",
    ),
    "a-bracket-ends-a-gram-above-its-limit": (
        "parcel-history",
        r"bisect\.bisect(/bisect.bisect_left(/' rates.py",
        r"""bisect\.bisect(/bisect.bisect_left(/; s/\], weight)$/], weight - Decimal("0.001"))/' rates.py""",
    ),
}


@pytest.mark.parametrize("slip", SLIPS)
async def test_one_slip_in_the_solution_decides_the_reward(slip: str) -> None:
    name, right, wrong = SLIPS[slip]
    text = (by_name(name).path / "solution" / "solve.sh").read_text()
    assert text.count(right) == 1
    changed = text.replace(right, wrong)
    verdict = await after(name, f"cat >/tmp/solve.sh <<'CHANGED'\n{changed}\nCHANGED\nbash /tmp/solve.sh")
    assert verdict.reward == 0.0, verdict.unscored_reason
