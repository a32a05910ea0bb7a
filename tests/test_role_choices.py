"""What an experiment may say of one role besides its model: prompt, tools and limits."""

from pathlib import Path

import pytest
import yaml

import topologies
from experiments.cli import main
from experiments.errors import SpecError
from experiments.loading import load
from experiments.runner import run_experiment
from experiments.store.reader import Reader
from tests.experiment_files import rows, small, write_spec
from tests.sandbox_tasks import needs_isolation

CHOSEN = "  - {{name: alone, topology: solo, roles: {{solo: {{model: sim-deepseek-v4-flash, {choice}}}}}}}\n"


@needs_isolation
async def test_a_roles_own_prompt_tools_and_limits_are_what_its_calls_are_made_with(tmp_path: Path) -> None:
    (tmp_path / "mine.md").write_text("Your role: solo.\n\nWork with care.\n")
    arms = CHOSEN.format(choice="prompt: mine.md, tools: [bash], max_turns: 3, max_output_tokens: 777")
    await run_experiment(small(tmp_path, arms), tmp_path / "x.duckdb")
    found = rows(tmp_path / "x.duckdb")
    [role] = found["trial_roles"]
    assert role["prompt"] == "Your role: solo.\n\nWork with care."
    assert {call["max_output_tokens"] for call in found["calls"]} == {777}
    assert [attempt["ended_by"] for attempt in found["attempts"]] == ["max_turns"]
    assert len({call["turn"] for call in found["calls"]}) == 3


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ("prompt: nowhere.md", "roles.solo.prompt: {folder}/nowhere.md cannot be read (No such file or directory)"),
        ("prompt: empty.md", "roles.solo.prompt: {folder}/empty.md is empty"),
        ("prompt: binary.md", "roles.solo.prompt: {folder}/binary.md cannot be read (it is not UTF-8 text)"),
        ("prompt: huge.md", "roles.solo.prompt: {folder}/huge.md is longer than 256 KiB"),
        ("prompt: .", "roles.solo.prompt: {folder} cannot be read (Is a directory)"),
        ("tools: [bash, hammer]", "roles.solo.tools[1]: unknown tool 'hammer'"),
        ("command_policy: {}", "roles.solo.command_policy: has no rule; expected deny, allow or read_only: true"),
        ('command_policy: {deny: ["rm \'x"]}', 'roles.solo.command_policy.deny[0]: "rm \'x" is no pattern'),
        ("command_policy: {allow: []}", "roles.solo.command_policy.allow:"),
        ("command_policy: {read_only: 1}", "roles.solo.command_policy.read_only:"),
        ("command_policy: {denied: [ls]}", "roles.solo.command_policy.denied:"),
        ("max_turns: 0", "roles.solo.max_turns:"),
        ("max_output_tokens: many", "roles.solo.max_output_tokens:"),
    ],
)
def test_a_choice_that_cannot_be_is_refused_in_one_line(choice: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "empty.md").write_text("  \n")
    (tmp_path / "binary.md").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "huge.md").write_text("x" * (256 * 1024 + 1))
    path = write_spec(tmp_path, CHOSEN.format(choice=choice))
    with pytest.raises(SpecError) as refused:
        load(path)
    assert message.format(folder=tmp_path) in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_choice_makes_another_arm_and_none_leaves_it_what_it_was(tmp_path: Path) -> None:
    def parts(choice: str) -> object:
        return load(write_spec(tmp_path, CHOSEN.format(choice=choice))).plan().arms[0].parts["roles"]

    (tmp_path / "mine.md").write_text("one")
    bare = parts("effort: null")
    assert not {"prompt", "tools", "max_turns", "max_output_tokens"} & set(bare["solo"])  # type: ignore[index]  # JSON
    first = parts("prompt: mine.md")
    (tmp_path / "mine.md").write_text("two")
    kinds = [bare, first, parts("prompt: mine.md"), parts("tools: [bash]"), parts("max_turns: 3")]
    assert len({str(kind) for kind in kinds}) == len(kinds)


@needs_isolation
async def test_a_role_with_file_tools_plays_through_bash_alone_and_its_refused_commands_are_stored(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A persona takes no file tool for a hand-over, and hears of each refusal."""
    choice = "tools: [bash, read_file, write_file, replace_in_file], command_policy: {deny: ['cat *', 'bash *']}"
    database = tmp_path / "x.duckdb"
    await run_experiment(small(tmp_path, CHOSEN.format(choice=choice)), database)
    found = rows(database)
    assert [attempt["ended_by"] for attempt in found["attempts"]] == ["submitted"]
    assert [attempt["changed"] for attempt in found["attempts"]] == [False]
    [role] = found["trial_roles"]
    assert '"read_file"' in role["tools"]
    refused = [command for command in found["commands"] if command["refused"] is not None]
    assert refused
    assert all(command["exit_code"] is None and command["output"] == "" for command in refused)
    assert any(command["exit_code"] == 0 for command in found["commands"])
    assert {call["tool_calls_valid"] for call in found["calls"]} == {True}
    with Reader(database) as reader:
        [(counted,)] = reader.query("SELECT count(*) FROM command_timeline WHERE refused IS NOT NULL").rows
    assert counted == len(refused)
    with pytest.raises(SystemExit) as ended:
        main(["show", found["trials"][0]["id"], "--db", str(database)])
    assert ended.value.code == 0
    assert "[refused: matches the denied pattern" in capsys.readouterr().out


def test_a_command_policy_makes_another_arm(tmp_path: Path) -> None:
    def parts(choice: str) -> str:
        return str(load(write_spec(tmp_path, CHOSEN.format(choice=choice))).plan().arms[0].parts["roles"])

    bare = parts("effort: null")
    assert "command_policy" not in bare
    kinds = [f"command_policy: {{{rule}}}" for rule in ("read_only: true", "deny: [ls]", "deny: [rm]")]
    assert len({bare, *(parts(kind) for kind in kinds)}) == 4


IDLE = """\
  - name: arm
    topology: {topology}
    roles: {{{roles}}}
    parameters: {{{parameters}}}
"""


@pytest.mark.parametrize(
    ("topology", "parameters", "role", "choice", "message"),
    [
        ("worker_reviewer", "tools: false", "reviewer", "tools: [bash]", "has no tools under these parameters"),
        ("worker_reviewer", "tools: false", "reviewer", "command_policy: {read_only: true}", "no tools that it could"),
        ("single_shot", "", "solver", "tools: [bash]", "answers once and would never read what a tool tells"),
        ("single_shot", "", "solver", "context: {policy: clear, above_tokens: 9}", "answers once and has nothing to f"),
    ],
)
def test_what_a_role_could_never_use_is_refused(
    topology: str, parameters: str, role: str, choice: str, message: str, tmp_path: Path
) -> None:
    chosen = f"{role}: {{model: sim-deepseek-v4-flash, {choice}}}"
    roles = f"worker: sim-deepseek-v4-flash, {chosen}" if topology == "worker_reviewer" else chosen
    with pytest.raises(SpecError, match=message) as refused:
        load(write_spec(tmp_path, IDLE.format(topology=topology, roles=roles, parameters=parameters)))
    assert f"roles.{role}.{choice.partition(':')[0]}" in str(refused.value)


@pytest.mark.parametrize(
    ("topology", "parameters"),
    [
        ("planner_worker", "rounds: true"),
        ("planner_worker", "rounds: '2'"),
        ("worker_reviewer", "tools: 'false'"),
        ("worker_reviewer", "tools: 1"),
        ("worker_reviewer", "rounds: true"),
        ("price_aware", "delegate: false, rounds: 3"),
    ],
)
def test_a_parameter_of_another_kind_or_without_effect_is_refused(topology: str, parameters: str) -> None:
    given = yaml.safe_load(f"{{{parameters}}}")
    with pytest.raises(topologies.ParametersInvalid, match=topology):
        topologies.find(topology).checked(given)


@pytest.mark.parametrize("number", ["1:30", "010", "0x10", "1:30.5"])
def test_a_number_that_yaml_reads_as_another_is_refused_by_its_field(number: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"max_turns"):
        load(write_spec(tmp_path, CHOSEN.format(choice=f"max_turns: {number}")))
    with pytest.raises(SpecError, match=r"limits\.max_tokens"):
        load(write_spec(tmp_path, more=f"limits: {{max_tokens: {number}}}\n"))


@pytest.mark.parametrize("limit", ["command_timeout_s: true", "command_timeout_s: '5'"])
def test_a_limit_of_another_kind_is_refused(limit: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"limits\.command_timeout_s"):
        load(write_spec(tmp_path, more=f"limits: {{{limit}}}\n"))
