"""Graphs route hand-overs, draw completely, and tell nobody about the run."""

import http.server
import operator
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Literal, TypedDict

import pytest
from langgraph.graph import START, StateGraph
from langgraph.runtime import Runtime
from langgraph.types import Command

import topologies
from agents.clock import VirtualClock
from agents.handover import Handover
from experiments.cli import main
from topologies.shelf import built_in
from topologies.soundness import check


class ScriptedRole:
    """A role that hands over as a script says and keeps what it was told."""

    def __init__(self, name: str, *handovers: Handover) -> None:
        self.name = name
        self.heard: list[str] = []
        self.anew: list[bool] = []
        self._handovers = iter(handovers)

    async def visit(self, message: str, *, anew: bool = False) -> Handover:
        self.heard.append(message)
        self.anew.append(anew)
        return next(self._handovers)

    async def execute(self, commands: Sequence[str], *, stop: bool) -> list[int]:
        raise AssertionError("these topologies have nothing executed")


def delegate(text: str) -> Handover:
    return Handover("delegate", "worker", text, "c1")


def submit(text: str) -> Handover:
    return Handover("submit", "planner", text, "c2")


APPROVE = Handover("approve", None, "done", "c3")


async def play(planner: ScriptedRole, worker: ScriptedRole, **parameters: object) -> str:
    topology = topologies.find("planner_worker")
    stage = topologies.Stage(
        {"planner": planner, "worker": worker}, topology.checked(parameters), "Make the tests pass."
    )
    return await topologies.play(topology, stage)


async def test_the_worker_hears_the_task_and_the_brief_and_the_planner_hears_the_report() -> None:
    planner = ScriptedRole("planner", delegate("first a, then b"), APPROVE)
    worker = ScriptedRole("worker", submit("a and b are done"))
    assert await play(planner, worker) == "done"
    assert planner.heard == ["Make the tests pass.", "a and b are done"]
    assert worker.heard == ["Make the tests pass.\n\nThe planner's brief:\n\nfirst a, then b"]


async def test_a_worker_that_is_sent_back_hears_only_what_is_wrong() -> None:
    planner = ScriptedRole("planner", delegate("do it"), delegate("b is missing"), APPROVE)
    worker = ScriptedRole("worker", submit("done"), submit("now b too"))
    assert await play(planner, worker) == "done"
    assert worker.heard[1] == "b is missing"


async def test_rounds_end_the_chain_although_the_planner_wants_more() -> None:
    planner = ScriptedRole("planner", *[delegate("again")] * 9)
    worker = ScriptedRole("worker", *[submit("done")] * 9)
    assert await play(planner, worker, rounds=2) == "again"
    assert len(worker.heard) == 2
    assert len(planner.heard) == 3


@pytest.mark.parametrize("memory", ["digest", "fresh"])
async def test_a_forgetful_planner_checks_on_new_lanes_and_knows_what_its_memory_says(memory: str) -> None:
    planner = ScriptedRole("planner", delegate("first a, then b"), delegate("b is missing"), APPROVE)
    worker = ScriptedRole("worker", submit("a is done"), submit("now b too"))
    assert await play(planner, worker, memory=memory) == "done"
    assert planner.anew == [False, True, True]
    assert worker.anew == [False, False]
    assert ("put into the brief" in planner.heard[0]) is (memory == "digest")
    for rounds, heard in enumerate(planner.heard[1:], 1):
        assert heard.startswith("Make the tests pass.\n\nYou have sent the worker to work on this")
        assert f"to work on this {rounds} times" in heard
    last = planner.heard[-1]
    told = {text: text in last for text in ("first a, then b", "a is done", "b is missing", "now b too")}
    assert told == dict.fromkeys(told, memory == "digest") | {"now b too": True}


async def test_a_planner_that_approves_at_once_needs_no_worker() -> None:
    worker = ScriptedRole("worker")
    assert await play(ScriptedRole("planner", APPROVE), worker) == "done"
    assert worker.heard == []


@pytest.mark.parametrize("name", topologies.names())
def test_every_role_and_every_edge_is_in_the_drawing(name: str) -> None:
    drawing = topologies.mermaid(topologies.find(name))
    nodes = topologies.find(name).build().nodes
    for node in nodes:
        assert f"\t{node}({node})" in drawing
        assert f"--> {node};" in drawing or f"-.-> {node};" in drawing
        assert f"\t{node} -" in drawing


def test_draw_prints_the_drawing_as_mermaid(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["topologies", "draw", "planner_worker"])
    drawn = capsys.readouterr().out
    assert end.value.code == 0
    assert drawn.rstrip() == topologies.mermaid(topologies.find("planner_worker")).rstrip()
    assert "graph TD;" in drawn
    assert [edge for edge in ("plan -.-> work;", "work -.-> check;", "check -.-> work;") if edge not in drawn] == []


class SlowRole:
    """A role whose visit takes 200 s of the trial's time."""

    def __init__(self, name: str, clock: VirtualClock) -> None:
        self.name, self.clock = name, clock

    async def visit(self, message: str, *, anew: bool = False) -> Handover:
        async with self.clock.lane(f"{self.name}-0"):
            await self.clock.sleep(200)
        return submit(message)

    async def execute(self, commands: Sequence[str], *, stop: bool) -> list[int]:
        raise AssertionError("these topologies have nothing executed")


class Fan(TypedDict):
    message: str
    reports: Annotated[list[str], operator.add]


async def split(state: Fan, runtime: Runtime[topologies.Stage]) -> Command[Literal["left", "right"]]:
    runtime.context.announce(2)
    return Command(goto=["left", "right"])


async def left(state: Fan, runtime: Runtime[topologies.Stage]) -> Fan:
    return {"message": "", "reports": [(await runtime.context.roles["left"].visit("l")).payload]}


async def right(state: Fan, runtime: Runtime[topologies.Stage]) -> dict[str, list[str]]:
    return {"reports": [(await runtime.context.roles["right"].visit("r")).payload]}


def fan() -> "StateGraph[Fan, topologies.Stage, Fan, Fan]":
    graph = StateGraph(Fan, context_schema=topologies.Stage)
    graph.add_node(split)
    graph.add_node(left)
    graph.add_node(right)
    graph.add_edge(START, "split")
    return graph


def test_an_ending_that_no_drawing_has_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["topologies", "draw", "solo", "--out", str(tmp_path / "x.gif")])
    assert end.value.code == 2
    assert "x.gif: its ending says none of .svg, .png" in capsys.readouterr().err
    assert not (tmp_path / "x.gif").exists()


async def test_two_parallel_visits_of_200_s_take_200_s_of_the_trial() -> None:
    epoch = datetime(2026, 11, 24, 12, tzinfo=UTC)
    clock = VirtualClock(epoch)
    topology = replace(topologies.find("solo"), name="fan", build=fan)
    roles = {name: SlowRole(name, clock) for name in ("left", "right")}
    await topologies.play(topology, topologies.Stage(roles, topology.checked({}), "go", clock.expect))
    assert clock.now() - epoch == timedelta(seconds=200)


def test_an_unknown_topology_is_answered_with_those_there_are() -> None:
    with pytest.raises(topologies.UnknownTopology, match=r"did you mean 'planner_worker'.*planner_worker.*, solo"):
        topologies.find("planner-worker")


def test_a_wrong_parameter_names_topology_parameter_and_expectation() -> None:
    with pytest.raises(topologies.ParametersInvalid, match=r"'planner_worker': parameters\.rounds: .*greater than"):
        topologies.find("planner_worker").checked({"rounds": 0})
    with pytest.raises(topologies.ParametersInvalid, match=r"parameters\.round: .*this topology's parameters: rounds"):
        topologies.find("planner_worker").checked({"round": 2})


@pytest.fixture
def listener() -> Iterator[tuple[str, list[str]]]:
    """A loopback server that notes every request it gets."""
    requests: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            requests.append(self.path)
            self.send_response(200)
            self.end_headers()

        do_GET = do_POST  # noqa: N815

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", requests
    server.shutdown()
    server.server_close()
    thread.join(5)


PLAY_AND_FLUSH = """
import asyncio
from langchain_core.tracers.langchain import wait_for_all_tracers
from tests.test_topologies import APPROVE, ScriptedRole, delegate, play, submit

asyncio.run(play(ScriptedRole("planner", delegate("x"), APPROVE), ScriptedRole("worker", submit("y"))))
wait_for_all_tracers()
"""


def test_a_run_is_not_traced_although_the_environment_asks_for_it(listener: tuple[str, list[str]]) -> None:
    url, requests = listener
    environment = os.environ | {"LANGSMITH_TRACING": "true", "LANGSMITH_ENDPOINT": url, "LANGSMITH_API_KEY": "k"}
    subprocess.run([sys.executable, "-c", PLAY_AND_FLUSH], env=environment, check=True, timeout=60)
    assert requests == []


@pytest.mark.parametrize("name", built_in())
def test_what_is_asked_of_a_users_topology_holds_of_the_shipped_ones(name: str) -> None:
    assert check(topologies.find(name)).name == name
