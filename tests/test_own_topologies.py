"""Topologies that are a file of the user's or come with an installed package: found, checked, run and told apart."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import topologies
from experiments.cli import main
from experiments.errors import PlanChanged, SpecError
from experiments.loading import load
from experiments.runner import run_experiment
from tests.experiment_files import rows, small, write_spec
from tests.own_topologies import ARMS, EXAMPLE, copy_example, install_package, offer, spoilt
from tests.sandbox_tasks import needs_isolation

SHORT = "limits: {max_turns: 2}\n"
"""Enough to see what a role is told, and no more."""

REPOSITORY = Path(__file__).parents[1]


def parts(folder: Path, arms: str = ARMS) -> dict[str, object]:
    return dict(load(write_spec(folder, arms)).plan().arms[0].parts)


@needs_isolation
async def test_a_file_is_run_with_its_own_prompts_and_each_call_booked_to_its_own_roles(tmp_path: Path) -> None:
    copy_example(tmp_path)
    database = tmp_path / "x.duckdb"
    report = await run_experiment(small(tmp_path, ARMS), database)
    found = rows(database)
    assert [each["topology"] for each in found["arms"]] == ["review_twice"]
    assert [attempt["ended_by"] for attempt in found["attempts"]] == ["submitted"]
    handed = sorted(found["handovers"], key=lambda each: int(each["seq"]))
    assert [(each["from_role"], each["kind"]) for each in handed] == [("writer", "submit"), ("critic", "reject")] * 2
    assert {role["role"]: role["prompt"] for role in found["trial_roles"]} == {
        name: (tmp_path / f"{name}.md").read_text().strip() for name in ("writer", "critic")
    }
    assert {call["role"] for call in found["calls"]} == {"writer", "critic"}
    assert {call["lane"] for call in found["calls"]} == {"writer-0", "critic-0", "critic-1"}
    assert report.bill is not None
    assert report.bill.equal


@needs_isolation
async def test_a_changed_file_or_prompt_is_another_arm_and_is_named_when_a_run_refuses(tmp_path: Path) -> None:
    path = copy_example(tmp_path)
    await run_experiment(small(tmp_path, ARMS, more=SHORT), tmp_path / "x.duckdb")
    source = path.read_text()
    path.write_text(source + "\n# changed\n")
    with pytest.raises(PlanChanged, match=r"arm reviewed: topology_code\.file \w{16} -> \w{16};"):
        await run_experiment(small(tmp_path, ARMS, more=SHORT), tmp_path / "x.duckdb")
    path.write_text(source)
    (tmp_path / "writer.md").write_text("Your role: writer.\n\nHurry.\n")
    with pytest.raises(PlanChanged, match=r"arm reviewed: prompts\.writer\.md \w{16} -> \w{16};"):
        await run_experiment(small(tmp_path, ARMS, more=SHORT), tmp_path / "x.duckdb")


def test_a_file_in_another_place_under_another_name_is_the_same_arm(tmp_path: Path) -> None:
    first = tmp_path / "first"
    second = tmp_path / "second" / "below"
    for folder in (first, second):
        folder.mkdir(parents=True)
        copy_example(folder)
    (second / "review_twice.py").rename(second / "renamed.py")
    assert parts(first) == parts(second, ARMS.replace("review_twice", "renamed"))


def test_what_a_graph_of_another_module_does_is_part_of_the_arm(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from dataclasses import replace\nfrom topologies.solo import TOPOLOGY as SOLO\n"
        "TOPOLOGY = replace(SOLO, name='mine')\n"
    )
    arms = "  - {name: a, topology: mine.py, roles: {solo: sim-deepseek-v4-flash}}\n"
    found = parts(tmp_path, arms)
    assert isinstance(found["topology_code"], dict)
    assert set(found["topology_code"]) == {"file", "graph"}
    assert set(found["prompts"]) == {"solo"}  # type: ignore[call-overload]  # JSON


def test_the_documentation_shows_the_example_that_is_tested() -> None:
    assert (EXAMPLE / "review_twice.py").read_text().rstrip() in (EXAMPLE.parent / "topologies.md").read_text()


def test_two_arms_that_name_one_file_load_it_once(tmp_path: Path) -> None:
    path = copy_example(tmp_path)
    path.write_text(
        path.read_text() + f"\nwith open({str(tmp_path / 'loaded')!r}, 'a') as seen:\n    seen.write('x')\n"
    )
    found = load(write_spec(tmp_path, ARMS + ARMS.replace("name: reviewed", "name: again")))
    assert (tmp_path / "loaded").read_text() == "x"
    assert found.arms["reviewed"].topology.build is found.arms["again"].topology.build
    assert not (tmp_path / "__pycache__").exists()


def test_two_files_of_one_name_do_not_take_each_others_place(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        path = spoilt(tmp_path / name, "reviews at most twice", f"reviews as {name}")
        assert topologies.find(str(path)).summary.endswith(f"reviews as {name}")
    assert topologies.find(str(tmp_path / "a" / "review_twice.py")).summary.endswith("reviews as a")


def test_a_file_is_looked_for_beside_the_spec_and_not_where_the_command_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "specs").mkdir()
    copy_example(tmp_path)
    monkeypatch.chdir(tmp_path)
    path = write_spec(tmp_path / "specs", ARMS)
    with pytest.raises(SpecError, match=r"specs/review_twice\.py cannot be read \(No such file"):
        load(path)


WRITER = 'RoleDesign("writer", "writer.md", (SUBMIT,))'
GRAPH = "    topology = StateGraph(State, context_schema=Stage)\n"

FIRST_VISIT = 'roles["writer"].visit(state["message"])\n    return Command(goto="first"'
EDGE = 'topology.add_edge(START, "write")'

BROKEN = [
    ("class State(", "class State[[", ":28: SyntaxError: "),
    ("import Literal", "import Litteral", ":9: ImportError: cannot import name 'Litteral'"),
    ("from pydantic import", "import nowhere_installed\nfrom pydantic import", "install what it imports into the env"),
    ("from pydantic import", "from .beside import X\nfrom pydantic import", "a topology's file stands alone"),
    ("from pydantic import", "import beside\nfrom pydantic import", ":14: ModuleNotFoundError: No module named 'bes"),
    ("from pydantic import", "import beside\nfrom pydantic import", "make both a package with an entry point"),
    ("TOPOLOGY = ", "TOPOLOGIE = ", ": holds no TOPOLOGY; expected TOPOLOGY = Topology("),
    ("TOPOLOGY = Topology(", "TOPOLOGY = dict(", ":{topology}: TOPOLOGY is of type dict; expected a topol"),
    ("TOPOLOGY = ", "raise SystemExit('bye')\nTOPOLOGY = ", ":67: SystemExit: bye"),
    ("TOPOLOGY = ", "1 / 0\nTOPOLOGY = ", ":67: ZeroDivisionError: division by zero"),
    ("build=graph,", "build=graph, colour='red'", ":{topology}: TypeError: Topology.__init__() got an unexp"),
    ('"review_twice"', '"review twice"', "the name 'review twice' is no name"),
    ('"review_twice"', '"solo"', "the name 'solo' is taken"),
    (GRAPH, GRAPH + "    [][1]\n", ":57: IndexError: list index out of range"),
    ("    return topology", "    return topology.compile()", "build() returns a CompiledStateGraph; expected a State"),
    ("    return topology", "    return None", "build() returns a NoneType; expected a StateGraph"),
    (EDGE, "pass", ":{topology}: the graph does not compile: Graph must have an entrypoint"),
    (EDGE, EDGE.replace("write", "wrote"), "the graph does not compile: Found edge"),
    ("    message: str", "    text: str", "the graph's state has no key 'message'"),
    (FIRST_VISIT, FIRST_VISIT.replace("writer", "scribe"), ":33: node 'write' visits the role 'scribe', which is none"),
    ('"critic", "critic.md"', '"writer", "critic.md"', "two roles are named 'writer'"),
    ('"reject", "writer"', '"reject", "scribe"', "role 'critic', hand-over 'reject': there is no role 'scribe'"),
    ('"reject", "writer"', '"approve", "writer"', "role 'critic' has two tools named 'approve'"),
    ('"reject", "writer"', '"re ject", "writer"', "hand-over 're ject': is no name"),
    (', "findings", "What', ', "", "What', "hand-over 'reject': takes nothing; name its text"),
    (WRITER, 'RoleDesign("writer", "writer.md", ())', "role 'writer' has no hand-over, so its visits could never end"),
    (WRITER, 'RoleDesign("writer", "writer.md", SUBMIT)', "role 'writer': handovers must be a tuple of HandoverTool"),
    (WRITER, 'RoleDesign("writer", "writer.md", (SUBMIT,), ("hammer",))', "tools must be a tuple of these names: bash"),
    (WRITER, 'RoleDesign("wri ter", "writer.md", (SUBMIT,))', "the role's name 'wri ter' is no name"),
    (WRITER, "'writer'", "roles holds something of type str"),
    ('"writer.md"', '"nowhere.md"', "prompt 'nowhere.md': {folder}/nowhere.md cannot be read (No such file or dire"),
    ('"writer.md"', '"empty.md"', "role 'writer': prompt 'empty.md' is empty"),
    ('"writer.md"', '"binary.md"', "role 'writer': prompt 'binary.md': it cannot be read as UTF-8 text"),
    ('"writer.md"', '"folder.md"', "prompt 'folder.md': {folder}/folder.md is no file"),
    ('"writer.md"', '"writer"', None),
    ('"writer.md"', '"scribe"', "no shipped prompt is called 'scribe'; for a file of your own write 'scribe.md'"),
    ("fresh: bool = True", "fresh: bool", "the parameter 'fresh' has no default"),
    ('extra="forbid", ', "", "Parameters overlooks misspelt parameters; add model_config"),
    ("parameters=Parameters", "parameters=Parameters()", "parameters must be a class that inherits from pydantic"),
    ("fresh: bool = True", "fresh: object = object()", "Parameters must hold what a spec can say"),
    ("    fresh: bool = True", "    fresh: type = bool\n    other: bool = True", "must hold what a spec can say"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "expected"), BROKEN)
def test_a_broken_file_is_one_line_that_names_it_and_what_is_wrong(
    tmp_path: Path, old: str, new: str, expected: str | None
) -> None:
    path = spoilt(tmp_path, old, new)
    (tmp_path / "beside.py").touch()
    (tmp_path / "empty.md").write_text(" \n")
    (tmp_path / "binary.md").write_bytes(b"\xff\xfe")
    (tmp_path / "folder.md").mkdir()
    spec = write_spec(tmp_path, ARMS)
    if expected is None:
        # A name without an ending is a shipped prompt, and there is one for a worker only.
        with pytest.raises(SpecError, match="no shipped prompt is called 'writer'"):
            load(spec)
        return
    with pytest.raises(SpecError) as refused:
        load(spec)
    said = str(refused.value)
    assert said.startswith(f"{spec}:7: arms[0].topology: {path}:")
    bound = 1 + path.read_text()[: path.read_text().find("TOPOLOGY = ")].count("\n")
    assert expected.format(folder=tmp_path, topology=bound) in said
    assert "\n" not in said


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "holds no TOPOLOGY"),
        (b"\x00\x01\x02", "null bytes"),
        (b"\xff\xfe\xfa", "SyntaxError"),
        (b"x = 1\n" * 200_000, "is longer than 1024 KiB"),
        (b"(" * 100_000, "Error"),
        (b"def f(): f()\nf()\n", "RecursionError"),
        (b"import sys; sys.exit(3)", ":1: SystemExit: 3"),
        (b"raise Exception('one\\ntwo\\x1b[31m')", ":1: Exception: one two"),
        (b"TOPOLOGY = 1", ":1: TOPOLOGY is of type int"),
        (None, "cannot be read (No such file or directory)"),
    ],
    ids=["empty", "nulls", "no text", "huge", "deep", "endless", "exits", "two lines", "number", "missing"],
)
def test_rubbish_instead_of_a_file_is_one_line_and_exit_2(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], content: bytes | None, expected: str
) -> None:
    path = tmp_path / "mine.py"
    if content is not None:
        path.write_bytes(content)
    for command in (["draw", str(path)], ["list", str(path)]):
        with pytest.raises(SystemExit) as end:
            main(["topologies", *command])
        said = capfd.readouterr().err
        assert end.value.code == 2
        assert said.startswith(f"fullchain: {path}")
        assert expected in said
        assert said.count("\n") == 1
        assert "\x1b" not in said


def test_a_directory_or_a_pipe_is_no_topology(tmp_path: Path) -> None:
    (tmp_path / "folder.py").mkdir()
    os.mkfifo(tmp_path / "pipe.py")
    for name in ("folder.py", "pipe.py"):
        with pytest.raises(topologies.TopologyInvalid, match=f"{name} is no file"):
            topologies.find(name, tmp_path)


def test_a_name_of_endless_length_is_cut_in_what_is_said() -> None:
    for name in ("x" * 5_000, "x" * 5_000 + ".py"):
        with pytest.raises(topologies.UnknownTopology) as refused:
            topologies.find(name)
        assert len(str(refused.value)) < 200


def test_a_parameter_check_of_the_users_that_fails_itself_is_one_line(tmp_path: Path) -> None:
    path = spoilt(
        tmp_path,
        "    fresh: bool = True\n",
        "    fresh: bool = True\n\n    def model_post_init(self, context: object) -> None:\n"
        "        if not self.fresh:\n            raise KeyError('no\\nway')\n",
    )
    with pytest.raises(SpecError, match=r"parameters cannot be checked \(KeyError: 'no"):
        load(write_spec(tmp_path, ARMS + "    parameters: {fresh: false}\n"))
    assert topologies.find(str(path)).name == "review_twice"


async def test_a_node_that_computes_a_role_that_is_not_there_is_told_which_there_are() -> None:
    topology = topologies.find("solo")
    stage = topologies.Stage({}, topology.checked({}), "go")
    with pytest.raises(topologies.UnknownRole, match="topology 'solo' has no role 'solo'"):
        await topologies.play(topology, stage)


async def test_a_node_that_goes_where_none_is_ends_the_trial_and_says_where() -> None:
    from langgraph.graph import START, StateGraph
    from langgraph.types import Command

    solo = topologies.find("solo")

    def lost(way: str) -> topologies.Topology:
        async def begin(state: Any) -> Command[str]:
            return Command(goto=way, update={"message": "told"})

        def graph() -> StateGraph[Any, Any, Any, Any]:
            made: StateGraph[Any, Any, Any, Any] = StateGraph(dict, context_schema=topologies.Stage)
            made.add_node("begin", begin)
            made.add_edge(START, "begin")
            return made

        return replace(solo, name="lost", build=graph)

    stage = topologies.Stage({}, solo.checked({}), "go")
    with pytest.raises(
        topologies.TopologyError, match="'lost': a node goes to 'nowhere', which is no node of its graph"
    ):
        await topologies.play(lost("nowhere"), stage)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install_package(tmp_path_factory.mktemp("package"))


def fullchain(site: Path, *arguments: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    """The command as one runs it that has installed the package."""
    environment = os.environ | {"PYTHONPATH": f"{REPOSITORY}{os.pathsep}{site}"}
    command = [sys.executable, "-P", "-m", "experiments.cli", *arguments]
    return subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, timeout=100)


def test_an_installed_package_is_listed_under_its_entry_points_name(site: Path, tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": f"{REPOSITORY}{os.pathsep}{site}"}
    command = [sys.executable, "-P", "-m", "experiments.cli", "topologies", "list", "--json"]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stderr) == (0, "")
    [mine] = [each for each in json.loads(done.stdout) if each["name"] == "review_twice"]
    assert mine["place"] == "review-kit 1.0"


@needs_isolation
async def test_an_installed_package_is_run_with_the_prompts_that_it_brings(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(site))
    experiment = small(tmp_path, ARMS.replace("./review_twice.py", "review_twice"), more=SHORT)
    await run_experiment(experiment, tmp_path / "x.duckdb")
    found = rows(tmp_path / "x.duckdb")
    prompts = {role["role"]: role["prompt"] for role in found["trial_roles"]}
    assert prompts["critic"] == (site / "review_kit" / "critic.md").read_text().strip()
    assert [attempt["ended_by"] for attempt in found["attempts"]] == ["max_turns"]
    assert [arm["topology"] for arm in found["arms"]] == ["review_twice"]


def test_an_installed_packages_version_code_and_prompts_are_part_of_the_arm(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(site))
    arms = ARMS.replace("./review_twice.py", "review_twice")
    before = parts(tmp_path, arms)
    code = before["topology_code"]
    assert isinstance(code, dict)
    assert code["package"] == "review-kit 1.0"
    beside = site / "review_kit" / "further.py"
    beside.write_text("x = 1\n")
    after = parts(tmp_path, arms)["topology_code"]
    beside.unlink()
    assert isinstance(after, dict)
    assert after["source"] != code["source"]
    assert parts(tmp_path, arms) == before
    prompt = site / "review_kit" / "writer.md"
    text = prompt.read_text()
    prompt.write_text(text + "More.\n")
    assert parts(tmp_path, arms)["prompts"] != before["prompts"]
    prompt.write_text(text)


def test_two_topologies_of_one_name_are_refused_and_both_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    offer(tmp_path, "a-kit", "solo", "a_kit:TOPOLOGY")
    offer(tmp_path, "b-kit", "twin", "b_kit:TOPOLOGY")
    offer(tmp_path, "c-kit", "twin", "c_kit:TOPOLOGY")
    monkeypatch.syspath_prepend(str(tmp_path))
    both = r"2 topologies are named 'solo', of fullchain itself \(topologies/solo\.py\) and of a-kit 1\.0; uninstall"
    with pytest.raises(topologies.TopologyInvalid, match=both):
        topologies.find("solo")
    with pytest.raises(topologies.TopologyInvalid, match=r"named 'twin', of b-kit 1\.0 and of c-kit 1\.0"):
        topologies.find("twin")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (
            "broken_kit:TOPOLOGY",
            r"mine' of broken-kit 1\.0 \(broken_kit:TOPOLOGY\): .*broken_kit\.py:1: ZeroDivisionEr",
        ),
        ("missing_kit:TOPOLOGY", r"ModuleNotFoundError: No module named 'missing_kit'"),
        ("other_kit:TOPOLOGY", r"AttributeError: .*TOPOLOGY"),
        ("other_kit", r"TOPOLOGY is of type module; expected a topologies\.Topology"),
        ("topologies.solo:TOPOLOGY", r"its name is 'solo'; the entry point must be called like it"),
    ],
)
def test_a_broken_package_is_one_line_and_hides_no_other_topology(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], value: str, expected: str
) -> None:
    (tmp_path / "broken_kit.py").write_text("1 / 0\n")
    (tmp_path / "other_kit.py").write_text("x = 1\n")
    offer(tmp_path, "broken-kit", "mine", value)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(topologies.TopologyInvalid, match=expected) as refused:
        topologies.find("mine")
    assert "\n" not in str(refused.value)
    with pytest.raises(SystemExit) as end:
        main(["topologies", "list"])
    said = capsys.readouterr()
    assert end.value.code == 1
    assert "solo: one model does the whole task" in said.out
    assert said.err.startswith("warning: topology 'mine' of broken-kit 1.0")
    sys.modules.pop("other_kit", None)
