"""Simulated models that act in words, call two tools at once, or find their cache forgotten."""

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.simulated.acting import FENCED_HEAD, JSON_HEAD, Act, Form, form_of, heard, say, tools_told
from agents.simulated.app import simulated_provider
from agents.simulated.attempt import RUN, SCRIPT
from harbor_tasks.format import Task, load_task
from tests.simulated_client import (
    DEEPSEEK,
    EPOCH,
    GPT,
    HANDOVERS,
    SONNET,
    AnthropicLane,
    ChatLane,
    Client,
    Lane,
    ResponsesLane,
    persona_file,
    said,
    system_text,
)

SOLVE = "#!/bin/bash\ncat > notes.md <<'EOF'\n```bash\necho no\n```\n````\nEOF\necho done\n"
HEADS: dict[Form, str] = {"fenced": FENCED_HEAD, "json": JSON_HEAD}
ACTION = {
    "type": "object",
    "properties": {name: {"type": "string"} for name in ("thought", "tool", "argument")},
    "required": ["thought", "tool", "argument"],
    "additionalProperties": False,
}


@pytest.fixture
def task(tmp_path: Path) -> Task:
    root = tmp_path / "little-task"
    files = {
        "task.toml": "",
        "instruction.md": "Write notes about fences.\n",
        "environment/Dockerfile": "FROM debian:bookworm-slim\nWORKDIR /app\n",
        "tests/test.sh": "#!/bin/bash\necho 1 > /logs/verifier/reward.txt\n",
        "solution/solve.sh": SOLVE,
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return load_task(root)


def told(form: Form, role: str) -> str:
    lines = "\n".join(f"- {name}: does it. Its text: the text." for name in ("bash", *(h for h, _ in HANDOVERS[role])))
    return f"{system_text(role)}\n\n{HEADS[form]}\nAct by it:\n{lines}\n"


def request(protocol: str, form: Form, role: str, turns: list[tuple[str, str]]) -> tuple[str, dict[str, Any]]:
    """A request of a conversation in plain text, without tools."""
    system = told(form, role)
    schema = {"name": "action", "strict": True, "schema": ACTION}
    if protocol == "anthropic":
        messages = [{"role": speaker, "content": text} for speaker, text in turns]
        body: dict[str, Any] = {"model": SONNET, "max_tokens": 8000, "system": system, "messages": messages}
        by_schema: dict[str, Any] = {"output_config": {"format": {"type": "json_schema", "schema": ACTION}}}
        path = "/v1/messages"
    elif protocol == "chat":
        messages = [{"role": "system", "content": system}, *({"role": who, "content": text} for who, text in turns)]
        body, path = {"model": DEEPSEEK, "messages": messages}, "/v1/chat/completions"
        by_schema = {"response_format": {"type": "json_schema", "json_schema": schema}}
    else:
        items = [said("developer", system), *({"role": speaker, "content": text} for speaker, text in turns)]
        body, path = {"model": GPT, "input": items}, "/v1/responses"
        by_schema = {"text": {"format": {"type": "json_schema", **schema}}}
    return path, body | (by_schema if form == "json" else {})


def text_of(body: dict[str, Any]) -> str:
    if "choices" in body:
        return str(body["choices"][0]["message"]["content"])
    parts = body.get("content") or [part for item in body["output"] for part in item.get("content", [])]
    return "".join(part["text"] for part in parts if part["type"] in ("text", "output_text"))


@pytest.mark.parametrize("form", ["fenced", "json"])
@pytest.mark.parametrize("protocol", ["anthropic", "chat", "responses"])
async def test_a_visit_is_played_in_words_to_its_hand_over(task: Task, protocol: str, form: Form) -> None:
    turns, script, acts = [("user", task.instruction)], "", []
    async with Client(simulated_provider(tasks=[task])) as client:
        for _ in range(60):
            path, body = request(protocol, form, "solo", turns)
            reply = await client.post(path, body)
            assert reply.status == 200, reply.body
            text = text_of(reply.body)
            act = heard(form, text)
            assert act is not None
            if form == "json":
                assert set(json.loads(text)) == {"thought", "tool", "argument"}
            acts.append(act)
            if act.tool != "bash":
                break
            if act.argument.startswith("cat >"):
                lines = act.argument.split("\n")
                script += "\n".join(lines[1:-1]) + "\n"
            turns += [("assistant", text), ("user", "exit code 0\n./notes.md\n")]
    assert acts[-1].tool == "submit"
    commands = [act.argument for act in acts[:-1]]
    assert commands[0] == "pwd; ls -1A"
    assert script in ("", SOLVE)
    assert (RUN in commands) == (script != "")
    assert any(SCRIPT in command for command in commands) == (script != "")


async def test_a_planner_in_words_delegates_and_then_approves_or_delegates_again(task: Task) -> None:
    turns, handed = [("user", task.instruction)], []
    async with Client(simulated_provider(tasks=[task])) as client:
        for _ in range(80):
            path, body = request("responses", "fenced", "planner", turns)
            text = text_of((await client.post(path, body)).body)
            act = heard("fenced", text)
            assert act is not None
            turns += [("assistant", text), ("user", "The work is done.")]
            if act.tool != "bash":
                handed.append(act.tool)
            if act.tool == "approve":
                break
    assert handed[0] == "delegate"
    assert handed[-1] == "approve"
    assert set(handed) == {"delegate", "approve"}


async def test_a_schema_without_a_word_about_actions_is_refused(task: Task) -> None:
    path, body = request("chat", "json", "solo", [("user", "hello")])
    body["messages"][0]["content"] = "Be brief."
    async with Client(simulated_provider(tasks=[task])) as client:
        reply = await client.post(path, body)
    assert (reply.status, "only when its system text says how it acts" in reply.message) == (400, True)


@given(
    text=st.text(max_size=80).filter(lambda text: "```" not in text),
    tool=st.from_regex(r"[a-z][a-z_]{0,12}", fullmatch=True),
    argument=st.lists(st.sampled_from(["```", "````bash", "echo `x`", "", "  ```", '"', "\\"]), max_size=6).map(
        "\n".join
    ),
    form=st.sampled_from(["fenced", "json"]),
)
def test_what_is_said_is_heard_again(text: str, tool: str, argument: str, form: Form) -> None:
    assert heard(form, say(form, text, Act(tool, argument))) == (tool, argument)


def test_text_without_an_act_in_its_form_is_none() -> None:
    for text in ("", "plain", "```\nls\n```", "```bash\nls", '{"tool": 5, "argument": "x"}', "[1]"):
        assert heard("fenced", text) is None
        assert heard("json", text) is None


def test_the_form_and_the_tools_are_read_from_the_system_text() -> None:
    assert form_of("Be brief.\nActions: one of many.") == "tools"
    assert form_of(told("json", "planner")) == "json"
    assert tools_told(told("fenced", "planner"), "bash") == ["bash", "delegate", "approve"]
    unlisted = f"You may approve.\n{FENCED_HEAD}\nUse bash, or submit:\n```hand_in\n...\n```\n"
    assert tools_told(unlisted, "bash") == ["bash", "submit", "hand_in"]


def doubling(folder: Path) -> Path:
    folder.mkdir()
    for base in (SONNET, DEEPSEEK, GPT):
        persona_file(folder / f"{base}.yaml", base, f"{base}-two", parallel_calls=1.0)
    return folder


LANES: list[tuple[Callable[[], Lane], dict[str, Any]]] = [
    (lambda: AnthropicLane(f"{SONNET}-two"), {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}}),
    (lambda: ChatLane(f"{DEEPSEEK}-two"), {"parallel_tool_calls": False}),
    (lambda: ResponsesLane(f"{GPT}-two"), {"parallel_tool_calls": False}),
]


@pytest.mark.parametrize(("lane_of", "single"), LANES)
async def test_two_calls_in_one_answer_when_the_persona_says_so_and_the_request_allows_it(
    task: Task, tmp_path: Path, lane_of: Callable[[], Lane], single: dict[str, Any]
) -> None:
    lane, numbers, ids = lane_of(), [], []
    async with Client(simulated_provider(tasks=[task], personas=doubling(tmp_path / "two"))) as client:
        lane.hear(task.instruction)
        for _ in range(60):
            _, calls = await lane.turn(client, EPOCH)
            numbers.append(len(calls))
            ids += [call for call, _, _ in calls]
            assert len({text for _, _, text in calls}) == len(calls)
            if calls[0][1] == "submit":
                break
            lane.results("exit code 0\n./notes.md\n")
        assert set(numbers) == {1, 2}
        assert len(set(ids)) == len(ids)
        assert numbers[-1] == 1
        alone = lane_of()
        alone.hear(task.instruction)
        alone.more |= single
        _, calls = await alone.turn(client, EPOCH)
        assert len(calls) == 1


async def reads(folder: Path, rate: float, base: str, lane_of: Callable[[str], Lane]) -> list[int]:
    """What each of 12 turns reads from the cache."""
    path = persona_file(folder / f"{rate}.yaml", base, "sim-losing", evicts=rate)
    lane, found = lane_of("sim-losing"), []
    async with Client(simulated_provider(tasks=[], personas=path)) as client:
        lane.hear("hello")
        for turn in range(12):
            reply, _ = await lane.turn(client, EPOCH + timedelta(seconds=20 * turn))
            found.append(lane.tokens(reply.usage)[0])
            lane.results("exit code 0\n")
    return found


@pytest.mark.parametrize(("base", "lane_of"), [(SONNET, AnthropicLane), (DEEPSEEK, ChatLane), (GPT, ResponsesLane)])
async def test_an_evicting_persona_forgets_before_its_time_and_the_same_again(
    tmp_path: Path, base: str, lane_of: Callable[[str], Lane]
) -> None:
    never = await reads(tmp_path, 0.0, base, lane_of)
    assert never[0] == 0 < min(never[1:])
    assert set(await reads(tmp_path, 1.0, base, lane_of)) == {0}
    some = await reads(tmp_path, 0.4, base, lane_of)
    assert some.count(0) > 1
    assert all(one in (0, other) for one, other in zip(some, never, strict=True))
    assert 0 < sum(some) < sum(never)
    assert await reads(tmp_path, 0.4, base, lane_of) == some
