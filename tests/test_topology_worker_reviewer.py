"""worker_reviewer: who hears what, what a verdict must be, and what happens when nobody approves."""

import json
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import topologies
from agents import actions
from agents.arguments import Unfit, read, schema_of
from agents.clock import VirtualClock
from agents.crew import Limits, RoleModel, Seat, hire
from agents.errors import VisitEnded
from agents.handover import Handover
from agents.role import Role
from agents.simulated.judging import DIFF_HEADING as HEADING_OF_PERSONAS
from agents.transport import open_http
from agents.verdict import Finding, Verdict
from experiments.errors import SpecError
from experiments.runner import run_experiment
from experiments.store.reader import query
from tests.experiment_files import small
from tests.sandbox_tasks import needs_isolation
from tests.test_topologies import ScriptedRole
from tests.wire_answers import PIECES
from tests.wire_provider import EPOCH, NONCE, BareShell, Notes, Provider, Script, entry
from topologies.worker_reviewer import DIFF_HEADING, REVIEWER, VERDICT

FINDING = Finding(file="split.py", line=12, problem="The last cent is lost.")
REJECT = Verdict(verdict="reject", confidence=0.8, findings=[FINDING])
APPROVE = Verdict(verdict="approve", confidence=0.9, findings=[])
GIVEN = '{"verdict": "approve", "confidence": 0.9, "findings": []}'


def judged(verdict: Verdict) -> Handover:
    return VERDICT.handover(verdict, "c1")


def submit(text: str) -> Handover:
    return Handover("submit", "reviewer", text, "c2")


async def play(worker: ScriptedRole, reviewer: ScriptedRole, **parameters: object) -> str:
    topology = topologies.find("worker_reviewer")
    diffs = iter(f"+line {n}" for n in range(1, 30))

    async def diff() -> str:
        return next(diffs)

    roles = {"worker": worker, "reviewer": reviewer}
    stage = topologies.Stage(roles, topology.checked(parameters), "Make the tests pass.", diff=diff)
    return await topologies.play(topology, stage)


async def test_the_reviewer_hears_task_report_and_diff_and_the_worker_hears_the_findings() -> None:
    worker = ScriptedRole("worker", submit("done"), submit("mended"))
    reviewer = ScriptedRole("reviewer", judged(REJECT), judged(APPROVE))
    assert await play(worker, reviewer) == "The reviewer approves the work (confidence 0.90)."
    assert worker.heard == [
        "Make the tests pass.",
        "The reviewer rejects the work (confidence 0.80). Findings:\n1. split.py:12: The last cent is lost.",
    ]
    report = "The worker's report:\n\n{}\n\n" + DIFF_HEADING + "\n\n{}"
    assert reviewer.heard == [
        "Make the tests pass.\n\n" + report.format("done", "+line 1"),
        report.format("mended", "+line 2"),
    ]


@pytest.mark.parametrize("out_of_rounds", ["hand_in", "withhold"])
async def test_when_the_rounds_run_out_rejected_work_is_handed_in_or_withheld(out_of_rounds: str) -> None:
    worker = ScriptedRole("worker", *[submit("done")] * 9)
    reviewer = ScriptedRole("reviewer", *[judged(REJECT)] * 9)
    if out_of_rounds == "hand_in":
        assert "The last cent is lost." in await play(worker, reviewer, rounds=2)
    else:
        with pytest.raises(VisitEnded) as end:
            await play(worker, reviewer, rounds=2, out_of_rounds=out_of_rounds)
        assert end.value.ended_by == "no_handover"
    assert (len(worker.heard), len(reviewer.heard)) == (2, 2)


async def test_work_that_is_approved_in_the_last_round_is_handed_in() -> None:
    reviewer = ScriptedRole("reviewer", judged(APPROVE))
    assert "approves" in await play(
        ScriptedRole("worker", submit("done")), reviewer, rounds=1, out_of_rounds="withhold"
    )


def test_without_tools_the_reviewer_has_its_verdict_alone() -> None:
    topology = topologies.find("worker_reviewer")
    with_tools = topology.roles_for(topology.checked({}))
    without = topology.roles_for(topology.checked({"tools": False}))
    assert [(role.name, role.tools) for role in with_tools] == [("worker", ("bash",)), ("reviewer", ("bash",))]
    assert [(role.name, role.tools) for role in without] == [("worker", ("bash",)), ("reviewer", ())]
    assert [role.name for role in topology.roles] == [role.name for role in without]


def test_personas_look_for_the_heading_that_the_topology_writes() -> None:
    assert HEADING_OF_PERSONAS == DIFF_HEADING


@pytest.mark.parametrize(
    ("roles", "more", "said"),
    [
        ("{worker: sim-deepseek-v4-flash}", "", "reviewer"),
        ("{worker: sim-deepseek-v4-flash, reviewer: sim-deepseek-v4-flash, judge: sim-deepseek-v4-flash}", "", "judge"),
        ("{worker: sim-deepseek-v4-flash, reviewer: sim-deepseek-v4-flash}", "{rounds: 0}", "rounds"),
        ("{worker: sim-deepseek-v4-flash, reviewer: sim-deepseek-v4-flash}", "{out_of_rounds: no}", "out_of_rounds"),
        ("{worker: sim-deepseek-v4-flash, reviewer: sim-deepseek-v4-flash}", "{round: 2}", "parameters.round: "),
    ],
)
def test_a_spec_that_does_not_fit_is_told_in_one_line(tmp_path: Path, roles: str, more: str, said: str) -> None:
    arm = f"  - {{name: r, topology: worker_reviewer, roles: {roles}, parameters: {more or '{}'}}}\n"
    with pytest.raises(SpecError) as wrong:
        small(tmp_path, arm)
    assert said in str(wrong.value)
    assert "\n" not in str(wrong.value)


class Reviewed:
    """A reviewer over the wire that says what the answers say."""

    def __init__(self, role: Role, notes: Notes, provider: Provider) -> None:
        self.role, self.notes, self.provider = role, notes, provider

    def told(self) -> str:
        return json.dumps(self.provider.received[-1].json["messages"][-1])


async def reviewer(stack: AsyncExitStack, folder: Path, *answers: Any, form: str = "tools") -> Reviewed:
    model = entry("sim-deepseek-v4-flash", actions=form)
    pieces = PIECES[model.protocol]
    scripts = [Script(pieces(a) if isinstance(a, str) else pieces("", a)) for a in answers]
    provider, notes = Provider(*scripts), Notes()
    http = await stack.enter_async_context(open_http(simulator=provider.app))
    limits = Limits(9, command_timeout_s=10, max_output_tokens=1000, deadline=None)
    seat = Seat("t1", 1, NONCE, VirtualClock(EPOCH), notes, notes, BareShell(str(folder)), limits, http)
    return Reviewed(hire([REVIEWER], {"reviewer": RoleModel(model)}, seat)["reviewer"], notes, provider)


def call(arguments: str) -> list[tuple[str, str, str]]:
    return [("c1", "verdict", arguments)]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("I approve.", "must be a JSON object"),
        (f"```json\n{GIVEN}\n```", "must be a JSON object"),
        ('{"verdict": "approve", "confidence": 1.5, "findings": []}', "less than or equal to 1"),
        ('{"verdict": "perhaps", "confidence": 0.5, "findings": []}', "'approve' or 'reject'"),
        ('{"verdict": "approve", "confidence": true, "findings": []}', "valid number"),
        ('{"verdict": "approve", "confidence": NaN, "findings": []}', "must be a JSON object"),
        ('{"verdict": "approve", "confidence": 0.5}', "findings"),
        ('{"verdict": "approve", "confidence": 0.5, "findings": "none"}', "valid list"),
        ('{"verdict": "reject", "confidence": 0.5, "findings": [{"file": "a"}]}', "problem"),
        ('{"verdict": "reject", "confidence": 0.5, "findings": [{"file": "a", "line": 0, "problem": "b"}]}', "line"),
        (json.dumps({"verdict": "reject", "confidence": 1, "findings": [FINDING.model_dump()] * 51}), "at most 50"),
    ],
)
async def test_an_invalid_verdict_is_answered_and_counted_and_a_mended_one_taken(
    tmp_path: Path, arguments: str, said: str
) -> None:
    async with AsyncExitStack() as stack:
        seen = await reviewer(stack, tmp_path, call(arguments), call(GIVEN))
        handover = await seen.role.visit("judge it")
        assert said in seen.told()
        assert handover.form == APPROVE
        assert handover.to_role is None
        assert list(seen.notes.validity.values()) == [False, True]


@pytest.mark.parametrize("form", ["fenced", "json_schema"])
@pytest.mark.parametrize("argument", [GIVEN, f"```json\n{GIVEN}\n```", f"````\n{GIVEN}\n````"])
async def test_a_verdict_in_words_is_a_json_object_with_or_without_a_code_fence(
    tmp_path: Path, form: str, argument: str
) -> None:
    said = json.dumps({"thought": "Good.", "tool": "verdict", "argument": argument})
    if form == "fenced":
        said = f"Good.\n\n`````verdict\n{argument}\n`````"
    async with AsyncExitStack() as stack:
        seen = await reviewer(stack, tmp_path, said, form=form)
        handover = await seen.role.visit("judge it")
        assert handover.form == APPROVE
        assert list(seen.notes.validity.values()) == [True]


async def test_a_code_fence_in_a_block_of_as_many_backticks_is_read_all_the_same(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        said = f"Good.\n\n```verdict\n```json\n{GIVEN}\n```\n```"
        seen = await reviewer(stack, tmp_path, said, form="fenced")
        assert (await seen.role.visit("judge it")).form == APPROVE


async def test_rubbish_in_words_is_answered_and_counted(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        seen = await reviewer(stack, tmp_path, "```verdict\napprove\n```", f"```verdict\n{GIVEN}\n```", form="fenced")
        assert (await seen.role.visit("judge it")).to_role is None
        assert "must be a JSON object" in seen.told()
        assert list(seen.notes.validity.values()) == [False, True]


async def test_a_reviewer_that_gives_no_verdict_ends_without_a_hand_over(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        seen = await reviewer(stack, tmp_path, *["It looks good to me."] * 3)
        with pytest.raises(VisitEnded) as end:
            await seen.role.visit("judge it")
        assert end.value.ended_by == "no_handover"
        assert len(seen.notes.calls) == 3


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=12,
)


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "verdict": st.sampled_from(["approve", "reject"]) | JSON,
            "confidence": st.floats() | JSON,
            "findings": JSON
            | st.lists(st.fixed_dictionaries({"file": JSON, "problem": JSON}, optional={"line": JSON})),
        },
    )
)
def test_whatever_a_model_writes_is_a_verdict_or_unfit(given_arguments: dict[str, object]) -> None:
    try:
        verdict = read(Verdict, given_arguments)
    except Unfit:
        return
    assert isinstance(verdict, Verdict)
    assert 0 <= verdict.confidence <= 1
    assert verdict.receiver("worker") == ("worker" if verdict.verdict == "reject" else None)
    assert all(finding.problem in verdict.told() for finding in verdict.findings)


@given(st.text(alphabet="`json{}\n ", max_size=40))
def test_taking_a_fence_off_never_fails_and_leaves_bare_text_alone(text: str) -> None:
    bare = actions.bare(text)
    assert bare in text
    if not text.lstrip().startswith("```"):
        assert bare == text


def test_the_schema_names_every_part_with_its_bounds() -> None:
    schema: Any = schema_of(Verdict)
    assert schema["required"] == ["verdict", "confidence", "findings"]
    assert schema["properties"]["verdict"]["enum"] == ["approve", "reject"]
    assert schema["properties"]["findings"]["maxItems"] == 50
    finding = schema["properties"]["findings"]["items"]
    assert (finding["required"], list(finding["properties"])) == (["file", "problem"], ["file", "line", "problem"])


ARM = """\
  - name: {name}
    topology: worker_reviewer
    roles: {{worker: sim-deepseek-v4-flash, reviewer: {reviewer}}}
    parameters: {{rounds: {rounds}, tools: {tools}, out_of_rounds: {out}}}
"""
ARMS = ARM.format(name="r", reviewer="sim-claude-opus-5-5", rounds=3, tools="true", out="hand_in") + ARM.format(
    name="notools", reviewer="sim-claude-opus-5-5", rounds=1, tools="false", out="withhold"
)


@needs_isolation
async def test_whole_trials_end_by_approval_after_findings_and_without_one_and_every_dollar_has_its_role(
    tmp_path: Path,
) -> None:
    database = tmp_path / "x.duckdb"
    report = await run_experiment(small(tmp_path, ARMS, repeats=2), database)
    assert report.broken == 0
    assert report.bill is not None
    assert report.bill.equal, report.bill.sentence
    assert query(database, "SELECT role, sum(cost_usd) > 0 FROM calls GROUP BY role ORDER BY role").rows == [
        ("reviewer", True),
        ("worker", True),
    ]
    ends = query(
        database,
        "SELECT trials.arm, ended_by, list(verdict ORDER BY number) AS verdicts FROM trials "
        "JOIN reviews ON trial_id = trials.id GROUP BY trials.id, trials.arm, ended_by",
    ).rows
    assert len(query(database, "SELECT DISTINCT trial_id FROM reviews").rows) == 4
    for arm, ended_by, verdicts in ends:
        assert verdicts[:-1] == ["reject"] * (len(verdicts) - 1)
        assert (ended_by == "no_handover") is (arm == "notools" and verdicts == ["reject"])
    found = {(arm, tuple(verdicts)) for arm, _, verdicts in ends}
    assert {("r", ("reject", "approve")), ("r", ("approve",)), ("notools", ("reject",))} <= found
    looked = "SELECT list(DISTINCT arm) FROM commands JOIN trials ON trials.id = trial_id WHERE lane = 'reviewer-0'"
    assert query(database, looked).rows == [(["r"],)]
