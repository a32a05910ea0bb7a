"""Simulated reviewers judge the diff's text, and err as often as their persona says."""

import asyncio
import json
import math
from collections.abc import Mapping
from pathlib import Path

import pytest

from agents.simulated import recognition
from agents.simulated.attempt import RUN, write_commands
from agents.simulated.catalogue import Catalogue, KnownTask
from agents.simulated.conversation import COMMAND_TOOL, Request, Said, Tool, Transcript
from agents.simulated.dice import Dice
from agents.simulated.errors import SimulatorError
from agents.simulated.judging import diff_in, is_right, judge
from agents.simulated.persona import Persona, Reviewing, load_personas
from agents.simulated.play import respond
from agents.simulated.recognition import changed_files, recognised
from agents.verdict import Verdict
from experiments.changes import Changes
from experiments.paper_sandbox import PaperBackend
from harbor_tasks.format import Task
from harbor_tasks.tree_diff import NOTHING
from tests.known_diffs import TASKS, diff_after, scripts_of
from tests.sandbox_tasks import bubblewrap
from topologies.worker_reviewer import case

CATALOGUE = Catalogue(TASKS)
PERSONAS = load_personas()
NAMES = ["checkout-incident", "tenant-billing"]
VERDICT = Tool("verdict", "", "verdict")
SEEDS = 400
Z = 2.576
"""Of a 99 % interval."""

_MADE: dict[tuple[str, str], str] = {}


def task_named(name: str) -> Task:
    return next(task for task in TASKS if task.name == name)


def known(task: Task) -> KnownTask:
    found = CATALOGUE.find([Said("user", task.instruction)])
    assert found is not None
    return found


async def real_diffs(task: Task) -> Mapping[Path, str]:
    """By script, the right one first; each made once."""
    backend = await bubblewrap()
    scripts = scripts_of(task)

    async def made(script: Path) -> None:
        if (task.name, str(script)) not in _MADE:
            _MADE[task.name, str(script)] = await diff_after(task, [script], backend)

    for start in range(0, len(scripts), 3):
        await asyncio.gather(*map(made, scripts[start : start + 3]))
    return {script: _MADE[task.name, str(script)] for script in scripts}


def asked(task: Task, diff: str, *, nonce: int = 0, tools: tuple[Tool, ...] = (VERDICT,)) -> Request:
    transcript = Transcript()
    transcript.add(Said("user", f"{task.instruction}\n\n{case('It is done.', diff)}"))
    return Request(f"[run {nonce:016x}]\nYour role: reviewer.\n", tools, transcript, 4000)


def verdict_of(persona: Persona, task: Task, diff: str, nonce: int) -> Verdict:
    answer = respond(persona, 1, CATALOGUE, asked(task, diff, nonce=nonce))
    (call,) = answer.calls
    assert (call.tool, call.parameter) == ("verdict", "")
    return Verdict.model_validate_json(call.text)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
async def test_every_script_of_a_bundled_task_is_recognised_by_the_diff_that_it_really_leaves(task: Task) -> None:
    told = {script: recognised(known(task), diff) for script, diff in (await real_diffs(task)).items()}
    assert {script.name: script.read_bytes() for script in told} == {
        script.name: found.content if found else None for script, found in told.items()
    }


@pytest.mark.timeout(600)
async def test_a_reviewers_measured_errors_come_back_within_their_intervals() -> None:
    cases = [
        (task, diff, script == scripts_of(task)[0])
        for task in map(task_named, NAMES)
        for script, diff in (await real_diffs(task)).items()
    ]
    own = PERSONAS["sim-deepseek-v4-flash"].model_copy(
        update={"model": "own", "review": Reviewing(recall=0.8, false_reject=0.1)}
    )
    for persona in (own, PERSONAS["sim-claude-opus-5-5"], PERSONAS["sim-deepseek-v4-flash"]):
        rejected = {True: 0, False: 0}
        seen = {True: 0, False: 0}
        for task, diff, right in cases:
            for nonce in range(SEEDS):
                seen[right] += 1
                rejected[right] += verdict_of(persona, task, diff, nonce).verdict == "reject"
        for right, rate in ((False, persona.reviewing.recall), (True, persona.reviewing.false_reject)):
            measured = rejected[right] / seen[right]
            assert abs(measured - rate) < Z * math.sqrt(rate * (1 - rate) / seen[right]), (persona.model, right)
            assert seen[right] >= 2 * SEEDS


@pytest.mark.timeout(600)
async def test_reworked_work_is_judged_by_what_it_is_now() -> None:
    task = task_named("tenant-billing")
    solution, wrong = scripts_of(task)[:2]
    backend = await bubblewrap()
    assert is_right(known(task), await diff_after(task, [wrong, solution], backend))


async def test_findings_name_files_of_the_diff_and_who_is_right_is_surer() -> None:
    task = task_named("tenant-billing")
    right, wrong = list((await real_diffs(task)).values())[:2]
    persona = PERSONAS["sim-deepseek-v4-flash"]
    sure: dict[bool, list[float]] = {True: [], False: []}
    for diff in (right, wrong):
        for nonce in range(100):
            verdict = verdict_of(persona, task, diff, nonce)
            sure[(verdict.verdict == "approve") == (diff == right)].append(verdict.confidence)
            assert {finding.file for finding in verdict.findings} <= set(changed_files(diff))
            assert bool(verdict.findings) is (verdict.verdict == "reject")
    assert sum(sure[True]) / len(sure[True]) > 0.1 + sum(sure[False]) / len(sure[False])


async def test_the_verdict_follows_from_the_diff_alone_and_not_from_the_report() -> None:
    task = task_named("checkout-incident")
    diffs = await real_diffs(task)
    right, wrong = list(diffs.values())[:2]
    told = case(f"All is well.\n\n{wrong}", right)
    said = [Said("user", f"{task.instruction}\n\n{told}")]
    assert diff_in(said) == right
    said.append(Said("tool", case("Now?", wrong)))
    assert diff_in(said) == wrong
    assert [is_right(known(task), diff) for diff in (right, wrong)] == [True, False]


@pytest.mark.parametrize("diff", ["", NOTHING, "--- /dev/null\n+++ b/x\n@@ -0,0 +1 @@\n+something else"])
def test_what_is_not_recognised_and_an_unknown_task_are_taken_for_wrong(diff: str) -> None:
    task = known(task_named("tenant-billing"))
    assert recognised(task, diff) is None
    reviewing = Reviewing(recall=1, false_reject=0)
    for known_task in (task, None):
        verdict = Verdict.model_validate_json(judge(Dice(1), reviewing, known_task, diff))
        assert verdict.verdict == "reject"
        assert verdict.findings


async def test_scripts_of_which_nothing_was_learned_are_told_apart_by_their_own_lines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    task = task_named("checkout-incident")
    diffs = await real_diffs(task)
    monkeypatch.setattr(recognition, "_learned", lambda name: {})
    recognition._marks.cache_clear()
    try:
        told = {script: recognised(known(task), diff) for script, diff in diffs.items()}
    finally:
        recognition._marks.cache_clear()
    assert {script.read_bytes() for script in told} == {found.content for found in told.values() if found}


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
async def test_a_rehearsal_shows_its_reviewers_which_script_was_played(task: Task) -> None:
    for script in scripts_of(task):
        async with PaperBackend().start(task) as sandbox, Changes.since_now(sandbox) as changes:
            assert await changes.diff() == NOTHING
            shell = await sandbox.shell()
            for command in (*write_commands(script.read_bytes(), 6), RUN):
                await shell.run(command, timeout_s=1)
            found = recognised(known(task), await changes.diff())
        assert found is not None
        assert found.content == script.read_bytes()


def test_with_tools_a_reviewer_looks_first_and_changes_nothing() -> None:
    task = task_named("tenant-billing")
    bash = Tool(COMMAND_TOOL, "", "command")
    answer = respond(PERSONAS["sim-claude-opus-5-5"], 1, CATALOGUE, asked(task, "", tools=(bash, VERDICT)))
    assert [call.tool for call in answer.calls] == [COMMAND_TOOL]


def test_rates_that_a_persona_does_not_give_follow_from_its_skill_and_wrong_ones_are_refused(tmp_path: Path) -> None:
    assert PERSONAS["sim-claude-opus-5-5"].reviewing.recall == 0.85
    assert PERSONAS["sim-deepseek-v4-flash"].reviewing == Reviewing(recall=0.6, false_reject=0.2)
    text = json.dumps(PERSONAS["sim-claude-opus-5-5"].model_dump(mode="json", exclude={"review"}, exclude_none=True))
    own = tmp_path / "own.yaml"
    own.write_text(text[:-1] + ', "review": {"recall": 0.7, "false_reject": 0.05}}')
    assert load_personas(own)["sim-claude-opus-5-5"].reviewing == Reviewing(recall=0.7, false_reject=0.05)
    own.write_text(text[:-1] + ', "review": {"recall": 1.7, "false_reject": 0.05}}')
    with pytest.raises(SimulatorError, match=r"own\.yaml: review\.recall"):
        load_personas(own)
