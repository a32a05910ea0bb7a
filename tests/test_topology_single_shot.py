"""Single shot: one answer is carried out unseen, and what cannot be is the end of it."""

import json
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import topologies
from agents.clock import VirtualClock
from agents.crew import Limits, RoleModel, Seat, hire
from agents.errors import VisitEnded
from agents.simulated.attempt import RUN
from agents.transport import open_http
from experiments.errors import SpecError
from experiments.loading import load
from experiments.runner import run_experiment
from harbor_tasks.sandbox import Output
from tests.experiment_files import TASK, rows, scalar, small, write_spec
from tests.sandbox_tasks import needs_isolation
from tests.wire_answers import openai_pieces
from tests.wire_provider import EPOCH, NONCE, BareShell, Notes, Provider, Script, entry
from topologies.single_shot import LONGEST, MOST_COMMANDS

SHOT = "  - {{name: shot, topology: single_shot, roles: {{solver: {solver}}}{more}}}\n"
CHEAP = "sim-deepseek-v4-flash"
IN_WORDS = """\
models:
  in-blocks: {like: sim-deepseek-v4-flash, actions: fenced}
  in-json: {like: sim-claude-opus-5-5, actions: json_schema}
"""
TIME = {"x-fullchain-time": "first=1;end=3;tool=7"}
Call = tuple[str, str, str]
Play = Callable[..., Awaitable[tuple[str, Notes]]]


def plan(*commands: object) -> Call:
    return "c1", "plan", json.dumps({"commands": commands})


@pytest.fixture
def play(tmp_path: Path) -> Play:
    """Plays the topology with a scripted model that answers once, in a real bash."""

    async def played(*calls: Call, text: str = "", shell: Any = None, **parameters: object) -> tuple[str, Notes]:
        topology = topologies.find("single_shot")
        checked = topology.checked(parameters)
        notes, clock = Notes(), VirtualClock(EPOCH)
        provider = Provider(Script(openai_pieces(text, calls), headers=TIME))
        async with open_http(simulator=provider.app) as http:
            limits = Limits(max_turns=20, command_timeout_s=10, max_output_tokens=1000, deadline=None)
            shell = shell or BareShell(str(tmp_path))
            seat = Seat("t1", 1, NONCE, clock, notes, notes, shell, limits, http)
            roles = hire(topology.roles_for(checked), {"solver": RoleModel(entry(CHEAP))}, seat)
            try:
                return await topologies.play(topology, topologies.Stage(roles, checked, "Do it.")), notes
            except VisitEnded as end:
                return end.ended_by, notes

    return played


async def test_a_plan_is_run_in_order_in_one_shell_and_nothing_of_it_is_told(play: Play, tmp_path: Path) -> None:
    end, notes = await play(plan("echo one > a", "cat a a > b"))
    assert end == "2 of 2 commands ran; exit codes: 0, 0"
    assert (tmp_path / "b").read_text() == "one\none\n"
    assert len(notes.calls) == 1
    assert [message[3] for message in notes.messages] == ["system", "user", "assistant"]
    [(sender, handover, _)] = notes.handovers
    assert (sender, handover.kind, handover.to_role) == ("solver", "plan", None)
    assert json.loads(handover.payload) == {"commands": ["echo one > a", "cat a a > b"]}


async def test_each_command_is_recorded_and_timed_as_a_roles_own(play: Play) -> None:
    _, notes = await play(plan("true", "exit 3"))
    first, second = notes.commands
    assert (first["command"], first["turn"], first["exit_code"]) == ("true", 1, 0)
    assert (second["command"], second["turn"], second["exit_code"]) == ("exit 3", 1, 3)
    moments = [first["started_at"], first["ended_at"], second["started_at"], second["ended_at"]]
    assert moments == [EPOCH + timedelta(seconds=seconds) for seconds in (3, 10, 10, 17)]
    spans = [(kind, name) for kind, _, name, _, _ in notes.spans]
    assert spans[2:] == [("visit", "solver"), ("command", "bash"), ("command", "bash"), ("visit", "solver")]


async def test_one_command_is_as_good_as_a_plan(play: Play, tmp_path: Path) -> None:
    end, notes = await play(("c1", "command", '{"command": "echo hi > note"}'))
    assert end == "1 of 1 commands ran; exit codes: 0"
    assert (tmp_path / "note").read_text() == "hi\n"
    assert notes.handovers[0][1].kind == "command"


@pytest.mark.parametrize(("on_failure", "codes"), [("stop", "0, 4"), ("continue", "0, 4, 0")])
async def test_what_follows_a_failed_command_is_a_parameter(play: Play, on_failure: str, codes: str) -> None:
    end, _ = await play(plan("true", "exit 4", "true"), on_failure=on_failure)
    assert end.endswith(f"of 3 commands ran; exit codes: {codes}")


async def test_a_command_whose_time_was_up_has_failed_whatever_its_exit_code(play: Play) -> None:
    class Slow:
        async def run(self, command: str, *, timeout_s: float, keep: bool = True) -> Output:
            return Output(0, "", 0, True, timeout_s)

    end, _ = await play(plan("first", "second"), shell=Slow())
    assert end == "1 of 2 commands ran; exit codes: 0"


async def test_a_plan_that_says_the_same_ten_times_is_no_loop(play: Play) -> None:
    end, _ = await play(plan(*["echo same"] * 10))
    assert end.startswith("10 of 10 commands ran")


@pytest.mark.parametrize(
    "call",
    [
        ("c1", "plan", '{"commands": ["ls"'),
        ("c1", "plan", '["ls"]'),
        ("c1", "plan", "{}"),
        plan(),
        plan(""),
        plan("ls", 7),
        plan("x" * (LONGEST + 1)),
        plan(*["true"] * (MOST_COMMANDS + 1)),
        ("c1", "command", '{"command": ""}'),
        ("c1", "bash", '{"command": "ls"}'),
        None,
    ],
)
async def test_an_answer_without_a_fit_plan_is_the_end_and_runs_nothing(play: Play, call: Call | None) -> None:
    end, notes = await play(*([] if call is None else [call]), text="I would look first.")
    assert end == "no_handover"
    assert (len(notes.calls), notes.commands, notes.handovers) == (1, [], [])
    assert list(notes.validity.values()) == ([] if call is None else [False])


async def test_the_first_of_two_plans_counts(play: Play) -> None:
    end, notes = await play(plan("echo first"), ("c2", "plan", '{"commands": ["echo second"]}'))
    assert end.startswith("1 of 1 commands ran")
    assert [one["command"] for one in notes.commands] == ["echo first"]


@needs_isolation
async def test_a_simulated_model_writes_and_runs_its_script_in_one_answer_on_every_protocol(tmp_path: Path) -> None:
    database = tmp_path / "x.duckdb"
    (tmp_path / "models.yaml").write_text(IN_WORDS)
    models = {"cheap": CHEAP, "thinking": "sim-gpt-6.1-sol", "blocks": "in-blocks", "json": "in-json"}
    arms = "".join(
        SHOT.replace("name: shot", f"name: {name}").format(solver=model, more="") for name, model in models.items()
    )
    await run_experiment(small(tmp_path, arms, more="models: [models.yaml]\n"), database)
    found = rows(database)
    assert [call["role"] for call in found["calls"]] == ["solver"] * 4
    assert {attempt["ended_by"] for attempt in found["attempts"]} == {"submitted"}
    assert [(one["from_role"], one["to_role"], one["kind"]) for one in found["handovers"]] == [
        ("solver", None, "plan")
    ] * 4
    commands = [one["command"] for one in found["commands"]]
    assert sum(one.startswith("cat > /tmp/attempt.sh <<") for one in commands) == 4
    assert sum(one == RUN for one in commands) == 4
    assert {one["turn"] for one in found["commands"]} == {1}
    assert all(attempt["changed"] for attempt in found["attempts"])
    assert scalar(database, "SELECT count(DISTINCT calls.role) FROM charges JOIN calls ON key = call") == 1


@needs_isolation
async def test_a_plan_that_was_cut_is_verified_and_paid_for_all_the_same(tmp_path: Path) -> None:
    arms = SHOT.format(solver=f"{{model: {CHEAP}, max_output_tokens: 60}}", more="")
    await run_experiment(small(tmp_path, arms), tmp_path / "x.duckdb")
    found = rows(tmp_path / "x.duckdb")
    [attempt] = found["attempts"]
    assert (attempt["ended_by"], attempt["outcome"], attempt["reward"]) == ("no_handover", "failed", 0)
    assert len(found["calls"]) == 1
    assert scalar(tmp_path / "x.duckdb", "SELECT sum(usd_low) FROM charges") > 0
    assert found["commands"] == []


@pytest.mark.parametrize(
    ("solver", "more", "message"),
    [
        (CHEAP, ", parameters: {on_failure: retry}", "parameters.on_failure: Input should be 'stop' or 'continue'"),
        (CHEAP, ", parameters: {rounds: 2}", "parameters.rounds: Extra inputs are not permitted"),
        (
            f"{{model: {CHEAP}, tools: [bash]}}",
            "",
            "roles.solver.tools: the role 'solver' of topology 'single_shot' answers",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(solver: str, more: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError) as refused:
        load(write_spec(tmp_path, SHOT.format(solver=solver, more=more), tasks=TASK))
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)
