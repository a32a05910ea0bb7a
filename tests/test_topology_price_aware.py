"""Price-aware: the lead hears its price, hands over or not, and a simulated one does so the more the dearer it is."""

from pathlib import Path
from typing import Any

import pytest

import topologies
from agents.crew import load_prompt
from agents.handover import Handover
from agents.simulated.catalogue import Catalogue
from agents.simulated.conversation import Answer, Request, Said, Tool, Transcript
from agents.simulated.persona import Persona, load_personas
from agents.simulated.play import respond
from agents.simulated.weighing import UNTOLD, told_ratio, willing
from experiments.errors import SpecError
from experiments.loading import load
from experiments.runner import run_experiment
from harbor_tasks.format import bundled_tasks, load_tasks
from tests.experiment_files import rows, scalar, small, write_spec
from tests.sandbox_tasks import needs_isolation
from tests.test_topologies import ScriptedRole, delegate
from topologies.price_aware import figure, opening

MODELS = "lead: sim-claude-opus-5-5, worker: sim-deepseek-v4-flash"
ARM = "  - {{name: lead, topology: price_aware, roles: {{{roles}}}, parameters: {{{parameters}}}}}\n"
AT = "prices_at: 2026-11-24T12:00:00Z\n"
SUBMIT = Handover("submit", None, "done", "c3")


def report(text: str) -> Handover:
    return Handover("submit", "lead", text, "c2")


async def play(lead: ScriptedRole, worker: ScriptedRole | None, **parameters: object) -> str:
    topology = topologies.find("price_aware")
    roles = {"lead": lead} if worker is None else {"lead": lead, "worker": worker}
    return await topologies.play(topology, topologies.Stage(roles, topology.checked(parameters), "Make it so."))


async def test_the_lead_hears_its_price_once_and_the_report_as_the_calls_result() -> None:
    lead = ScriptedRole("lead", delegate("first a, then b"), delegate("b is missing"), SUBMIT)
    worker = ScriptedRole("worker", report("a is done"), report("now b too"))
    assert await play(lead, worker) == "done"
    told = "Make it so.\n\nOne token that you write or read costs as much as 20 of the worker's."
    assert lead.heard == [told, "a is done", "now b too"]
    assert worker.heard == ["Make it so.\n\nThe lead's brief:\n\nfirst a, then b", "b is missing"]
    assert (lead.anew, worker.anew) == ([False] * 3, [False] * 2)


async def test_a_lead_that_does_it_alone_needs_nobody() -> None:
    worker = ScriptedRole("worker")
    assert await play(ScriptedRole("lead", SUBMIT), worker) == "done"
    assert worker.heard == []


@pytest.mark.parametrize("parameters", [{"ratio": False}, {"delegate": False}])
async def test_a_lead_that_is_told_nothing_hears_the_task_alone(parameters: dict[str, object]) -> None:
    lead = ScriptedRole("lead", SUBMIT)
    await play(lead, None, **parameters)
    assert lead.heard == ["Make it so."]


async def test_a_hand_over_after_the_last_round_is_the_end() -> None:
    lead = ScriptedRole("lead", *[delegate("again")] * 9)
    worker = ScriptedRole("worker", *[report("done")] * 9)
    assert await play(lead, worker, rounds=2) == "again"
    assert (len(lead.heard), len(worker.heard)) == (3, 2)


@pytest.mark.parametrize(
    ("ratio", "told"),
    [(20.0, "20"), (1.0, "1"), (33.333333, "33.3"), (0.25, "0.25"), (1234567.0, "1230000"), (0.001, "0.001")],
)
def test_a_ratio_is_told_in_three_digits_and_read_again_as_it_was_told(ratio: float, told: str) -> None:
    assert figure(ratio) == told
    assert told_ratio(opening("Do it.", ratio)) == float(told)


def test_without_delegate_the_lead_is_the_same_but_for_that_tool() -> None:
    topology = topologies.find("price_aware")
    whole, worker = topology.roles_for(topology.checked({}))
    [alone] = topology.roles_for(topology.checked({"delegate": False}))
    assert (whole.name, whole.prompt, whole.tools) == (alone.name, alone.prompt, alone.tools)
    assert [one.name for one in whole.handovers] == ["delegate", "submit"]
    assert alone.handovers == whole.handovers[1:]
    assert worker.name == "worker"


def test_neither_prompt_nor_tools_tell_the_price() -> None:
    topology = topologies.find("price_aware")
    told = [load_prompt(role.prompt) for role in topology.roles]
    told += [tool.description for role in topology.roles for tool in role.handovers]
    assert [text for text in told if "cheap" in text or told_ratio(text) or "price" in text] == []


# The simulated lead.

PERSONA = load_personas()["sim-claude-opus-5-5"]
TASKS, _ = load_tasks(bundled_tasks() / "tenant-billing")
CATALOGUE = Catalogue(TASKS)
TOOLS = tuple(Tool(name, "", name) for name in ("bash", "delegate", "submit"))
NONCES = [f"{number:016x}" for number in range(400)]


def answers(nonce: str, message: str, persona: Persona = PERSONA, visits: int = 1, prompt: str = "") -> list[Answer]:
    """What the lead says in its first visits, when every command prints the same and every report is the same."""
    transcript = Transcript()
    transcript.add(Said("user", message))
    said: list[Answer] = []
    while len(transcript.handed_over) < visits and len(said) < 200:
        system = f"[run {nonce}]\n{prompt or load_prompt('lead')}"
        answer = respond(persona, 0, CATALOGUE, Request(system, TOOLS, transcript, 8000))
        said.append(answer)
        calls = tuple((f"c{len(said)}-{number}", call.tool) for number, call in enumerate(answer.calls))
        transcript.add(Said("assistant", answer.text, calls))
        for call, _ in calls:
            transcript.add(Said("tool", "exit code 0\n./notes.md\n", answers=call))
        if calls[-1][1] == "submit":
            break
    return said


def told(ratio: float | None) -> str:
    return opening(TASKS[0].instruction, False if ratio is None else ratio)


def hands_over(nonce: str, ratio: float | None) -> bool:
    return answers(nonce, told(ratio))[-1].calls[0].tool == "delegate"


@pytest.mark.parametrize("ratio", [None, 1.0, 20.0, 200.0])
def test_a_simulated_lead_hands_over_as_often_as_its_price_makes_it_willing(ratio: float | None) -> None:
    rate = sum(hands_over(nonce, ratio) for nonce in NONCES) / len(NONCES)
    expected = willing(ratio)
    # Four standard errors: what is drawn is fixed, so that this holds always or never.
    assert abs(rate - expected) < 4 * (expected * (1 - expected) / len(NONCES)) ** 0.5


def test_who_hands_over_at_one_ratio_does_so_at_every_greater_one() -> None:
    ratios = (0.5, 2.0, 10.0, 33.3, 500.0)
    for nonce in NONCES[:60]:
        choices = [hands_over(nonce, ratio) for ratio in ratios]
        assert choices == sorted(choices)


def test_a_dearer_lead_looks_less_before_it_hands_over_and_less_after() -> None:
    content = PERSONA.model_copy(update={"rework_rates": ()})

    def turns(ratio: float) -> tuple[float, float]:
        before, after = [], []
        for nonce in NONCES[:80]:
            said = answers(nonce, told(ratio), content, visits=2)
            ends = [number for number, answer in enumerate(said) if answer.calls[0].tool == "delegate"]
            if ends:
                before.append(ends[0])
                after.append(sum(answer.calls[0].tool == "bash" for answer in said[ends[0] :]))
        return sum(before) / len(before), sum(after) / len(after)

    cheap, dear = turns(5), turns(500)
    assert dear[0] < cheap[0] - 2
    assert dear[1] < cheap[1] - 1


def test_without_the_sentence_the_simulated_lead_behaves_differently() -> None:
    with_it = told(200)
    without = with_it.rsplit("\n\n", 1)[0]
    assert with_it.startswith(without)
    differing = [nonce for nonce in NONCES[:40] if answers(nonce, with_it) != answers(nonce, without)]
    assert len(differing) > 20
    assert willing(None) == UNTOLD


def test_the_ratio_of_an_own_prompt_is_read_as_well() -> None:
    sentence = told(500.0).rsplit("\n\n", 1)[1]
    own = f"{load_prompt('lead')}\n{sentence}"
    for nonce in NONCES[:40]:
        assert answers(nonce, told(None), prompt=own) == answers(nonce, told(500.0))


def test_the_skill_that_is_drawn_does_not_hang_on_the_ratio() -> None:
    for nonce in NONCES[:40]:
        cheap, free = answers(nonce, told(0.001)), answers(nonce, told(None))
        if cheap[-1].calls[0].tool == free[-1].calls[0].tool == "submit":
            assert cheap == free


def test_a_lead_that_mends_what_its_worker_left_writes_and_hands_in() -> None:
    """It checks, and then does the work itself without exploring again."""
    persona = PERSONA.model_copy(update={"rework_rates": (1.0,)})
    mended = 0
    for nonce in NONCES[:60]:
        said = answers(nonce, told(10.0), persona, visits=2)
        tools = [answer.calls[0].tool for answer in said]
        if tools.count("delegate") == 1 and tools[-1] == "submit":
            mended += 1
            after = [answer.calls[0].text for answer in said[tools.index("delegate") + 1 :]]
            first = next(number for number, text in enumerate(after) if "/tmp/attempt.sh <<" in text)
            assert 1 <= first <= 5
    assert mended > 5


# Whole runs.


@needs_isolation
async def test_a_run_books_each_role_its_costs_and_shows_who_handed_over_to_whom(tmp_path: Path) -> None:
    database = tmp_path / "x.duckdb"
    await run_experiment(small(tmp_path, ARM.format(roles=MODELS, parameters="ratio: 1000000"), repeats=2), database)
    found = rows(database)
    sequences: dict[str, list[tuple[int, str, str | None]]] = {}
    for one in found["handovers"]:
        sequences.setdefault(one["trial_id"], []).append((one["seq"], one["from_role"], one["to_role"]))
    assert len(sequences) == 2
    for sequence in sequences.values():
        steps = [step[1:] for step in sorted(sequence)]
        rounds = (len(steps) - 1) // 2
        assert rounds >= 1
        assert steps == [("lead", "worker"), ("worker", "lead")] * rounds + [("lead", None)]
    assert {attempt["ended_by"] for attempt in found["attempts"]} == {"submitted"}
    assert {(call["role"], call["model"]) for call in found["calls"]} == {
        ("lead", "sim-claude-opus-5-5"),
        ("worker", "sim-deepseek-v4-flash"),
    }
    both = "SELECT sum(usd_low) FROM charges JOIN calls ON key = call WHERE role = "
    lead, worker = (scalar(database, f"{both}'{role}'") for role in ("lead", "worker"))
    assert lead > worker > 0
    assert lead + worker == scalar(database, "SELECT sum(usd_low) FROM charges")


@needs_isolation
async def test_a_lead_alone_is_a_run_of_one_role_that_cannot_delegate(tmp_path: Path) -> None:
    arms = ARM.format(roles="lead: sim-claude-opus-5-5", parameters="delegate: false")
    await run_experiment(small(tmp_path, arms), tmp_path / "x.duckdb")
    found = rows(tmp_path / "x.duckdb")
    [role] = found["trial_roles"]
    assert "delegate" not in str(role["tools"])
    assert [(one["from_role"], one["to_role"]) for one in found["handovers"]] == [("lead", None)]
    assert [attempt["ended_by"] for attempt in found["attempts"]] == ["submitted"]


@needs_isolation
async def test_a_worker_that_never_reports_ends_the_trial_with_its_costs_kept(tmp_path: Path) -> None:
    roles = "lead: sim-claude-opus-5-5, worker: {model: sim-deepseek-v4-flash, max_turns: 2}"
    await run_experiment(small(tmp_path, ARM.format(roles=roles, parameters="ratio: 1000000")), tmp_path / "x.duckdb")
    found = rows(tmp_path / "x.duckdb")
    [attempt] = found["attempts"]
    assert (attempt["ended_by"], attempt["outcome"]) == ("max_turns", "failed")
    handed = [(one["from_role"], one["to_role"], one["kind"], one["reason"]) for one in found["handovers"]]
    assert handed == [("lead", "worker", "delegate", "delegate"), ("worker", None, None, "max_turns")]
    assert {call["role"] for call in found["calls"]} == {"lead", "worker"}
    assert scalar(tmp_path / "x.duckdb", "SELECT count(*) FROM calls WHERE outcome <> 'complete'") == 0


# What a spec says.


def parts(folder: Path, parameters: str, more: str = AT, roles: str = MODELS) -> Any:
    arms = ARM.format(roles=roles, parameters=parameters)
    return load(write_spec(folder, arms, more=more)).plan().arms[0].parts


def test_the_true_ratio_is_that_of_the_output_prices_and_part_of_what_the_arm_is(tmp_path: Path) -> None:
    assert parts(tmp_path, "ratio: true")["parameters"]["ratio"] == 33.3
    dearer = "input = 4, cache_read = 0.2, cache_write_5m = 5, cache_write_1h = 8, output = 40"
    entry = f'[[price]]\nmodel = "claude-opus-5-5"\nsource = "own"\nusd_per_mtok = {{ {dearer} }}\n'
    (tmp_path / "own.toml").write_text(entry)
    more = f"{AT}prices: [own.toml]\n"
    assert parts(tmp_path, "ratio: true", more)["parameters"]["ratio"] == 66.7
    assert parts(tmp_path, "ratio: 20", more) == parts(tmp_path, "ratio: 20")
    assert parts(tmp_path, "ratio: true") == parts(tmp_path, "ratio: 33.3")


@pytest.mark.parametrize(
    ("roles", "parameters", "more", "message"),
    [
        ("lead: sim-claude-opus-5-5", "", "", "roles: the role 'worker' of topology 'price_aware' has no model"),
        (
            MODELS,
            "delegate: false",
            "",
            "roles.worker: topology 'price_aware' has no role 'worker' under these parameters",
        ),
        (MODELS + ", boss: sim-claude-opus-5-5", "", "", "has no role 'boss'; its roles: lead, worker"),
        (MODELS, "ratio: true", "", "parameters: a true price ratio is that of one moment"),
        (MODELS, "delegate: false, ratio: 20", AT, "leave `ratio` out"),
        (MODELS, "delegate: false, ratio: true", AT, "leave `ratio` out"),
        (MODELS, "delegate: maybe", "", "parameters.delegate: Input should be a valid boolean"),
        (MODELS, "rounds: 0", "", "parameters.rounds: "),
        (MODELS, "rounds: true", "", "parameters.rounds: "),
        (MODELS, "price: 20", "", "parameters.price: Extra inputs are not permitted"),
        *(
            (MODELS, f"ratio: {wrong}", AT, "parameters.ratio: expected a number from 0.001 to 1000000, true")
            for wrong in ("0", "-20", ".nan", ".inf", "1e400", "'20'", "[20]", "null", f"1{'0' * 400}", "{a: 1}")
        ),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(
    roles: str, parameters: str, more: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(SpecError) as refused:
        load(write_spec(tmp_path, ARM.format(roles=roles, parameters=parameters), more=more))
    assert message in str(refused.value)
    assert "spec.yaml:" in str(refused.value)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 500


FREE = """\
models:
  free:
    provider: own
    protocol: openai_chat
    model: m
    base_url: http://127.0.0.1:1/v1
    self_hosted: true
    cache: none
    limits: {max_output_tokens: 9000, context_tokens: 100000}
"""


def test_a_worker_that_costs_nothing_has_no_true_ratio(tmp_path: Path) -> None:
    (tmp_path / "models.yaml").write_text(FREE)
    arms = ARM.format(roles="lead: free, worker: free", parameters="ratio: true")
    with pytest.raises(SpecError, match=r"arms\[0\]\.parameters: no true price ratio: the output of model 'free'"):
        load(write_spec(tmp_path, arms, more=f"{AT}models: [models.yaml]\n"))
