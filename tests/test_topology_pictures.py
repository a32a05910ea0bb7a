"""Pictures and lists of topologies: complete, drawn on this machine, and plain about what is missing."""

import json
import shutil
import struct
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

import topologies
from experiments.cli import main
from tests.own_topologies import EXAMPLE, copy_example, spoilt
from topologies.drawing import draw
from topologies.shelf import built_in

DOCS = Path(__file__).parents[1] / "docs" / "topologies"


def command(*arguments: str) -> int:
    with pytest.raises(SystemExit) as end:
        main(["topologies", *arguments])
    assert isinstance(end.value.code, int)
    return end.value.code


def words(svg: bytes) -> list[str]:
    return [(text.text or "").strip("\xa0 ") for text in ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]  # noqa: S314  (our own)


def edges(svg: bytes) -> int:
    return sum(part.get("class") == "edge" for part in ET.fromstring(svg).iter())  # noqa: S314  (our own)


@pytest.mark.parametrize("name", built_in())
def test_a_picture_has_every_node_and_edge_of_the_graph(name: str) -> None:
    topology = topologies.find(name)
    svg = draw(topology, "svg")
    assert {"start", "end", *topology.build().nodes} <= set(words(svg))
    assert edges(svg) == len(topology.build().compile().get_graph().edges)


@pytest.mark.parametrize("name", [*built_in(), "review_twice"])
def test_the_pictures_in_the_docs_are_of_the_graphs_as_they_are(name: str) -> None:
    topology = topologies.find(str(EXAMPLE / "review_twice.py") if name == "review_twice" else name)
    shown, drawn = (DOCS / f"{name}.svg").read_bytes(), draw(topology, "svg")
    assert (sorted(words(shown)), edges(shown)) == (sorted(words(drawn)), edges(drawn))


def test_each_edge_names_the_hand_over_that_takes_it() -> None:
    said = words(draw(topologies.find("planner_worker"), "svg"))
    assert sorted(word for word in said if word in ("delegate", "submit", "approve")) == [
        "approve", "approve", "delegate", "delegate", "submit",
    ]  # fmt: skip


def test_a_png_is_one_and_has_a_size(tmp_path: Path) -> None:
    assert command("draw", "planner_worker", "--out", str(tmp_path / "x.png")) == 0
    content = (tmp_path / "x.png").read_bytes()
    assert content.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", content[16:24])
    assert 200 < width < 2000
    assert 400 < height < 3000


def test_the_format_is_the_files_ending_unless_it_is_given(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command("draw", "solo", "--out", str(tmp_path / "x.svg")) == 0
    assert {"solve", "submit"} <= set(words((tmp_path / "x.svg").read_bytes()))
    assert command("draw", "solo", "--format", "mermaid", "--out", str(tmp_path / "x.svg")) == 0
    assert "graph TD;" in (tmp_path / "x.svg").read_text()
    assert command("draw", "solo", "--format", "svg") == 0
    assert "solve" in words(capsys.readouterr().out.encode())
    assert command("draw", "solo", "--out", str(tmp_path / "none" / "x.svg")) == 2
    assert "none/x.svg cannot be written (No such file or directory)" in capsys.readouterr().err


def test_names_that_mean_something_to_graphviz_are_drawn_as_they_are(tmp_path: Path) -> None:
    node = "<b>\"&'</b>];\\n→ä"
    entry = '    topology.add_edge(START, "write")'
    path = spoilt(tmp_path, entry, f"{entry}\n    topology.add_node({node!r}, write)")
    assert node in words(draw(topologies.find(str(path)), "svg"))


def test_without_graphviz_a_line_tells_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "pygraphviz", None)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert command("draw", "solo", "--format", "png") == 2
    said = capsys.readouterr().err
    assert "`pip install pygraphviz`" in said
    assert said.count("\n") == 1
    assert command("draw", "solo") == 0


def test_the_systems_graphviz_serves_where_the_library_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "pygraphviz", None)
    program = tmp_path / "dot"
    program.write_text(f"#!{shutil.which('sh')}\necho 'Error: no such layout' >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert command("draw", "solo", "--format", "svg") == 2
    assert "Graphviz did not draw 'solo': Error: no such layout" in capsys.readouterr().err


def test_the_list_tells_roles_tools_hand_overs_and_what_each_parameter_means(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert command("list", "planner_worker", "--json") == 0
    [told] = json.loads(capsys.readouterr().out)
    assert [(role["name"], role["tools"]) for role in told["roles"]] == [("planner", ["bash"]), ("worker", ["bash"])]
    ways = [(each["name"], each["to_role"]) for role in told["roles"] for each in role["handovers"]]
    assert ways == [("delegate", "worker"), ("approve", None), ("submit", "planner")]
    parameters = {each["name"]: each for each in told["parameters"]}
    assert (parameters["rounds"]["type"], parameters["rounds"]["default"]) == ("integer, 1 to 20", 3)
    assert parameters["rounds"]["meaning"].startswith("how often the worker may be sent to work")
    assert parameters["memory"]["type"] == "full | digest | fresh"
    assert parameters["memory"]["meaning"].startswith("what the planner knows when it checks.")
    assert command("list") == 0
    said = capsys.readouterr().out
    assert "parameter rounds: integer, 1 to 20; default 3" in said
    assert "delegate to worker, approve to nobody: it ends" in said


@pytest.mark.parametrize("name", built_in())
def test_every_parameter_of_a_shipped_topology_says_what_it_means(name: str) -> None:
    for parameter in topologies.describe(topologies.find(name))["parameters"]:
        assert parameter["meaning"], parameter["name"]


def test_types_and_meanings_of_a_users_parameters_are_told(tmp_path: Path) -> None:
    path = spoilt(
        tmp_path,
        "    fresh: bool = True\n",
        "    fresh: bool = True\n    share: float = Field(default=0.5, gt=0, le=1, description='of what')\n"
        "    least: int = Field(default=1, ge=1)\n    name: str | None = None\n    only: Literal['x'] = 'x'\n",
    )
    path.write_text(path.read_text().replace("BaseModel, ConfigDict", "BaseModel, ConfigDict, Field"))
    told = {each["name"]: each for each in topologies.describe(topologies.find(str(path)))["parameters"]}
    assert {name: each["type"] for name, each in told.items()} == {
        "fresh": "boolean", "share": "number, more than 0, at most 1", "least": "integer, at least 1",
        "name": "string or nothing", "only": "x",
    }  # fmt: skip
    assert told["share"]["meaning"] == "of what"
    assert told["fresh"]["meaning"].startswith("whether the second reading")


def test_a_file_of_ones_own_is_listed_and_drawn_by_its_path(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = copy_example(tmp_path)
    assert command("list", str(path)) == 0
    assert (
        f"review_twice: a cheap model writes, an expensive one reviews at most twice ({path})"
        in capsys.readouterr().out
    )
    assert command("draw", str(path)) == 0
    assert "first -.-> mend;" in capsys.readouterr().out
