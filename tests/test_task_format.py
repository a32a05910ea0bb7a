"""Loading task directories: both spellings of task.toml, and one line for whatever is wrong."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harbor_tasks.config import TaskConfig
from harbor_tasks.errors import TaskInvalid, TaskRefused
from harbor_tasks.format import TEXT_LIMIT, bundled_tasks, expand, load_task, load_tasks
from tests.task_directory import write_task

NEW = """
schema_version = "1.4"
source = "somewhere"
artifacts = ["/app/out", {source = "/app/log", destination = "log", exclude = ["*.tmp"]}]

[task]
name = "acme/sort-files"
version = "2"
description = "Sort them"
authors = [{name = "A", email = "a@example.com"}]
keywords = ["shell"]

[metadata]
category = "shell"
requires = ["python>=3.9", "git"]
anything = {goes = true}

[agent]
timeout_sec = 900
user = "root"

[verifier]
timeout_sec = 30.5
env = {MODE = "strict"}
network_mode = "no-network"

[environment]
build_timeout_sec = 60
cpus = 2
memory_mb = 2048
storage_mb = 10240
network_mode = "no-network"
env = {LEVEL = "${LEVEL:-3}"}

[solution]
env = {SPEED = "fast"}
"""

OLD = """
version = "1.0"

[metadata]
category = "shell"

[environment]
memory = "2G"
storage = "10G"
allow_internet = false
"""


def message(path: Path) -> str:
    with pytest.raises(TaskInvalid) as caught:
        load_task(path)
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_every_table_of_the_new_spelling_is_read(tmp_path: Path) -> None:
    task = load_task(write_task(tmp_path / "sort-files", NEW))
    config = task.config
    assert task.name == "sort-files"
    assert config.task is not None
    assert config.task.name == "acme/sort-files"
    assert config.verifier.timeout_sec == 30.5
    assert config.environment.memory_mb == 2048
    assert config.environment.network_mode == "no-network"
    assert config.solution.env == {"SPEED": "fast"}
    assert task.requires == ("python>=3.9", "git")
    assert task.category == "shell"
    assert task.unknown_fields == ()
    assert task.unsupported() == ()
    assert task.dockerfile == task.path / "environment" / "Dockerfile"
    assert not task.bundled


def test_the_old_spelling_means_the_same(tmp_path: Path) -> None:
    config = load_task(write_task(tmp_path / "t", OLD)).config
    assert config.schema_version == "1.0"
    assert config.environment.memory_mb == 2048
    assert config.environment.storage_mb == 10_240
    assert config.environment.network_mode == "no-network"


@given(st.integers(1, 999), st.sampled_from([("M", 1), ("G", 1024), ("g", 1024), ("T", 1024 * 1024)]))
def test_old_sizes_become_whole_megabytes(number: int, unit: tuple[str, int]) -> None:
    config = TaskConfig.model_validate({"environment": {"memory": f"{number}{unit[0]}"}})
    assert config.environment.memory_mb == number * unit[1]


def test_an_empty_task_toml_takes_harbors_defaults(tmp_path: Path) -> None:
    config = load_task(write_task(tmp_path / "t")).config
    assert config.agent.timeout_sec is None
    assert config.verifier.timeout_sec == 600
    assert config.environment.network_mode == "public"
    assert config.environment.build_timeout_sec == 600


def test_allow_internet_does_not_widen_an_allowlist() -> None:
    data = {"environment": {"allow_internet": True, "network_mode": "allowlist", "allowed_hosts": ["example.com"]}}
    assert TaskConfig.model_validate(data).environment.network_mode == "allowlist"


def test_unknown_keys_are_kept_by_name_and_metadata_is_free(tmp_path: Path) -> None:
    toml = """
colour = 1
[metadata]
mine = 1
[environment]
ram = 5
[environment.healthcheck]
command = "true"
every = 3
[[steps]]
name = "one"
shoe = 1
"""
    task = load_task(write_task(tmp_path / "t", toml))
    assert task.unknown_fields == ("colour", "environment.healthcheck.every", "environment.ram", "steps.0.shoe")


@pytest.mark.parametrize(
    ("toml", "wanted"),
    [
        (
            "[agent\ntimeout_sec = 1",
            "task t: task.toml is no TOML: Expected ']' at the end of a table declaration (at line 1",
        ),
        ("a = 1\nb = = 2", "at line 2"),
        ("a = " + "[" * 50_000, "task t: task.toml is no TOML"),
        ("a = " + "9" * 10_000, "task t: task.toml is no TOML"),
        ("[environment]\nmemory_mb = 'lots'", "task.toml: environment.memory_mb: expected a whole number, got 'lots'"),
        ("[environment]\nmemory = '2 elephants'", 'environment: expected memory = a size such as "512M" or "2G"'),
        ("[environment]\nmemory = '2G'\nmemory_mb = 5", "memory and memory_mb to agree"),
        ("[environment]\nallow_internet = 'no'", "environment: expected allow_internet = true or false, got 'no'"),
        (
            "[environment]\nallow_internet = true\nnetwork_mode = 'no-network'",
            "allow_internet and network_mode to agree",
        ),
        ("[environment]\nworkdir = 'app'", "environment.workdir: expected an absolute path"),
        ("[environment]\nnetwork_mode = 'open'", "expected 'public', 'no-network' or 'allowlist', got 'open'"),
        ("[agent]\ntimeout_sec = -1", "agent.timeout_sec: expected greater than 0, got -1"),
        ("[agent]\ntimeout_sec = inf", "agent.timeout_sec: expected a finite number"),
        (
            "[agent]\ntimeout_sec = 'x'\nuser = 1.5",
            "agent.timeout_sec: expected a number, got 'x': mend this value (and 1 more)",
        ),
        ("agent = 3", "agent: expected"),
        ("[task]\nname = 'no-slash'", "task.name: expected match pattern"),
        ("[task]", "task.name: expected a value (the key is missing)"),
        ("[metadata]\nrequires = 'git'", "metadata.requires: expected a list of programs"),
        ("[metadata]\nrequires = ['git; rm -rf /']", "metadata.requires: expected a list of programs"),
        ("[[steps]]\nname='a'\n[[steps]]\nname='a'", "steps with names of their own"),
    ],
)
def test_a_wrong_task_toml_is_named_in_one_line(tmp_path: Path, toml: str, wanted: str) -> None:
    assert wanted in message(write_task(tmp_path / "t", toml))


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("task.toml", "task t: task.toml is missing: write it"),
        ("instruction.md", "task t: instruction.md is missing: "),
        ("tests/test.sh", "task t: tests/test.sh is missing: "),
        ("environment/Dockerfile", "task t: environment/Dockerfile is missing: "),
        ("solution/solve.sh", "task t: solution/solve.sh is missing: "),
    ],
)
def test_a_missing_file_is_named(tmp_path: Path, name: str, wanted: str) -> None:
    path = write_task(tmp_path / "t")
    (path / name).unlink()
    assert message(path).startswith(wanted)


@pytest.mark.parametrize(
    "name", ["task.toml", "instruction.md", "tests/test.sh", "environment/Dockerfile", "solution/solve.sh"]
)
def test_a_directory_in_the_place_of_a_file_is_called_one(tmp_path: Path, name: str) -> None:
    path = write_task(tmp_path / "t")
    (path / name).unlink()
    (path / name).mkdir()
    assert message(path).startswith(f"task t: {name} is a directory, expected a file: ")


@pytest.mark.skipif(os.geteuid() == 0, reason="no mode closes a folder to root")
@pytest.mark.parametrize("name", ["solution", "tests", "environment"])
def test_a_closed_folder_of_a_task_is_named(tmp_path: Path, name: str) -> None:
    path = write_task(tmp_path / "t")
    (path / name).chmod(0)
    try:
        said = message(path)
    finally:
        (path / name).chmod(0o755)
    assert said.startswith(f"task t: {path / name}")
    assert "cannot be read (Permission denied): mend its mode" in said


def test_a_path_that_no_system_can_look_up_is_no_traceback(tmp_path: Path) -> None:
    with pytest.raises(TaskInvalid, match=r"cannot be read \(File name too long\)|found none: check the path"):
        load_tasks(tmp_path / ("x" * 5000))


def test_an_empty_instruction_is_refused(tmp_path: Path) -> None:
    path = write_task(tmp_path / "t")
    (path / "instruction.md").write_text(" \n")
    assert message(path) == "task t: instruction.md is empty: write there what the agent is to do"


def test_text_that_is_no_utf8_or_endless_is_refused(tmp_path: Path) -> None:
    path = write_task(tmp_path / "t")
    (path / "instruction.md").write_bytes(b"ok \xff")
    assert message(path) == "task t: instruction.md is not UTF-8 (byte 3): save it as UTF-8"
    (path / "instruction.md").write_bytes(b"x" * (TEXT_LIMIT + 1))
    assert "larger than" in message(path)


@pytest.mark.parametrize("name", ["a b", "-x", ".hidden", "a\nb", "a;b", "x" * 129])
def test_a_directory_name_that_is_no_safe_id_is_refused(tmp_path: Path, name: str) -> None:
    assert "the directory's name must be" in message(write_task(tmp_path / name))


def test_a_link_anywhere_in_the_task_is_refused(tmp_path: Path) -> None:
    path = write_task(tmp_path / "t")
    (path / "environment" / "secret").symlink_to("/etc/passwd")
    assert "environment/secret: expected a file or a directory, found a link" in message(path)


def test_a_prebuilt_image_needs_no_dockerfile(tmp_path: Path) -> None:
    path = write_task(tmp_path / "t", '[environment]\ndocker_image = "acme/image:1"')
    (path / "environment" / "Dockerfile").unlink()
    assert load_task(path).dockerfile is None


@pytest.mark.parametrize(
    ("toml", "wanted"),
    [
        ('[[steps]]\nname = "one"', "steps: "),
        ('[verifier]\nenvironment_mode = "separate"', "verifier.environment_mode: "),
        ("[verifier.environment]", "verifier.environment_mode: "),
        ('[[verifier.collect]]\ncommand = "true"', "verifier.collect: "),
        ('[environment]\nos = "windows"', "environment.os: windows"),
        ("[environment]\ngpus = 2", "environment.gpus: 2"),
        ('[environment]\ntpu = {kind = "v5"}', "environment.tpu: "),
        ('[[environment.mcp_servers]]\nname = "x"', "environment.mcp_servers: "),
        ('[verifier]\nenv = {KEY = "${SOME_KEY}"}', "verifier.env.KEY: the host's variable SOME_KEY"),
    ],
)
def test_what_cannot_be_run_yet_loads_and_says_so(tmp_path: Path, toml: str, wanted: str) -> None:
    (found,) = load_task(write_task(tmp_path / "t", toml)).unsupported()
    assert found.startswith(wanted)


def test_a_compose_file_is_unsupported(tmp_path: Path) -> None:
    path = write_task(tmp_path / "t")
    (path / "environment" / "docker-compose.yaml").write_text("services: {}\n")
    assert load_task(path).unsupported() == ("environment/docker-compose.yaml: several services (a Dockerfile only)",)


def test_variables_expand_to_their_defaults_and_never_to_the_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "hunter2")
    assert expand({"A": "${SECRET:-none}/${B:-}x", "C": "$SECRET"}, table="verifier") == {"A": "none/x", "C": "$SECRET"}
    with pytest.raises(TaskRefused, match=r"verifier\.env\.A: the host's variable SECRET"):
        expand({"A": "${SECRET}"}, table="verifier")


def test_a_directory_of_tasks_gives_the_valid_ones_and_names_the_others(tmp_path: Path) -> None:
    write_task(tmp_path / "b")
    write_task(tmp_path / "a")
    write_task(tmp_path / "broken", "x = [")
    (tmp_path / "empty").mkdir()
    (tmp_path / ".git").mkdir()
    (tmp_path / "README.md").write_text("no task")
    tasks, invalid = load_tasks(tmp_path)
    assert [task.name for task in tasks] == ["a", "b"]
    assert [str(error).split(":")[0] for error in invalid] == ["task broken", "task empty"]


def test_a_single_task_directory_is_one_task(tmp_path: Path) -> None:
    tasks, invalid = load_tasks(write_task(tmp_path / "t"))
    assert [task.name for task in tasks] == ["t"]
    assert invalid == []


def test_a_path_without_tasks_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TaskInvalid, match="expected a task directory"):
        load_tasks(tmp_path / "nowhere")
    with pytest.raises(TaskInvalid, match=r"no task\.toml here"):
        load_tasks(tmp_path)


def test_only_children_of_the_packages_own_directory_are_bundled(tmp_path: Path) -> None:
    tasks, invalid = load_tasks(bundled_tasks())
    assert invalid == []
    assert tasks
    assert all(task.bundled for task in tasks)
    outside = tmp_path / "tasks"
    outside.mkdir()
    (outside / "linked").symlink_to(write_task(tmp_path / "elsewhere"))
    assert not load_task(outside / "linked").bundled
