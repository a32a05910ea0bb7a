"""What an experiment may say of one role besides its model: prompt, tools and limits."""

from pathlib import Path

import pytest

from experiments.errors import SpecError
from experiments.loading import load
from experiments.runner import run_experiment
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
