"""Models without native tool calls: one JSON object or one fenced block, over every protocol."""

import json
from pathlib import Path
from typing import Any, Literal

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents import actions
from agents.clock import VirtualClock
from agents.crew import Limits, RoleModel, Seat, hire
from agents.errors import VisitEnded
from agents.handover import HandoverTool, RoleDesign
from agents.role import NUDGES
from agents.tools import Tool, handover_tool
from agents.tools.bash import BASH
from agents.transport import open_http
from tests.wire_answers import PIECES
from tests.wire_provider import EPOCH, NONCE, BareShell, Notes, Provider, Script, entry

ENTRIES = {
    "anthropic": "sim-claude-opus-5-5",
    "chat": "sim-deepseek-v4-flash",
    "responses": "sim-gpt-6.1-sol",
}
ALL = pytest.mark.parametrize("protocol", list(ENTRIES))
Form = Literal["json_schema", "fenced"]
BOTH = pytest.mark.parametrize("form", ["json_schema", "fenced"])
SUBMIT = HandoverTool("submit", None, "Hands your work in.", "report", "What you did.")
PLANNER = RoleDesign(
    "planner", "planner", (HandoverTool("delegate", "worker", "Hands work over.", "brief", "What to do."), SUBMIT)
)
TOOLS = [BASH, handover_tool(SUBMIT)]


def act(form: str, tool: str, argument: str) -> str:
    if form == "fenced":
        return f"I do it.\n\n```{tool}\n{argument}\n```\n"
    return json.dumps({"thought": "I do it.", "tool": tool, "argument": argument})


class Played:
    def __init__(self, tmp_path: Path, protocol: str, form: str, *answers: str, reasons: tuple[Any, ...] = ()) -> None:
        model = entry(ENTRIES[protocol], actions=form)
        reasons = reasons + (None,) * (len(answers) - len(reasons))
        pieces = PIECES[model.protocol]
        self.provider = Provider(*(Script(pieces(a, (), r)) for a, r in zip(answers, reasons, strict=True)))
        self.notes, self.model, self.tmp_path = Notes(), model, tmp_path

    async def __aenter__(self) -> "Played":
        self._http = open_http(simulator=self.provider.app)
        limits = Limits(max_turns=9, command_timeout_s=10, max_output_tokens=1000, deadline=None)
        shell = BareShell(str(self.tmp_path))
        seat = Seat(
            "t1", 1, NONCE, VirtualClock(EPOCH), self.notes, self.notes, shell, limits, await self._http.__aenter__()
        )
        self.role = hire(
            [PLANNER], {"planner": RoleModel(self.model)}, seat, prompt_of=lambda _: "Your role: planner."
        )["planner"]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.__aexit__(None, None, None)

    def heard(self) -> list[str]:
        """The texts of the user's messages in the newest request."""
        body = self.provider.received[-1].json
        messages = body.get("messages") or body["input"]
        contents = [message["content"] for message in messages if message.get("role") == "user"]
        return [content if isinstance(content, str) else content[0]["text"] for content in contents]


@ALL
@BOTH
async def test_commands_and_hand_overs_are_acted_out_of_plain_text(tmp_path: Path, protocol: str, form: str) -> None:
    answers = [
        act(form, "bash", "echo hi > note\ncat note"),
        act(form, "delegate", "do the rest"),
        act(form, "submit", "all done"),
    ]
    async with Played(tmp_path, protocol, form, *answers) as played:
        first = await played.role.visit("do it")
        second = await played.role.visit("the rest is done")
    assert (first.kind, first.to_role, first.payload) == ("delegate", "worker", "do the rest")
    assert (second.kind, second.payload) == ("submit", "all done")
    assert (tmp_path / "note").read_text() == "hi\n"
    assert played.heard() == ["do it", "exit code 0\nhi\n", "the rest is done"]
    assert set(played.notes.validity.values()) == {True}
    [(_, _, _, prompt, _)] = played.notes.roles
    assert {"fenced": actions.FENCED_HEAD, "json_schema": actions.JSON_HEAD}[form] in prompt.split("\n")


@ALL
@BOTH
async def test_no_tools_are_sent_and_the_answers_form_is_asked_for(tmp_path: Path, protocol: str, form: str) -> None:
    async with Played(tmp_path, protocol, form, act(form, "submit", "done")) as played:
        await played.role.visit("do it")
    body = played.provider.received[0].json
    assert "tools" not in body
    schema = actions.answer_schema([BASH, *map(handover_tool, PLANNER.handovers)])
    assert schema["properties"]["tool"]["enum"] == ["bash", "delegate", "submit"]  # type: ignore[index]  # a schema
    asked = {
        "anthropic": body.get("output_config"),
        "chat": body.get("response_format"),
        "responses": body.get("text"),
    }[protocol]
    wanted = {
        "anthropic": {"format": {"type": "json_schema", "schema": schema}},
        "chat": {"type": "json_schema", "json_schema": {"name": "action", "strict": True, "schema": schema}},
        "responses": {"format": {"type": "json_schema", "name": "action", "strict": True, "schema": schema}},
    }[protocol]
    assert asked == (wanted if form == "json_schema" else None)
    head = orjson.dumps(body)
    assert (actions.FENCED_HEAD if form == "fenced" else actions.JSON_HEAD).encode() in head
    assert f"[run {NONCE}]\\nYour role: planner.".encode() in head


@ALL
@pytest.mark.parametrize(
    ("form", "broken", "mend"),
    [
        ("json_schema", '{"tool": "bash"}', "must have the strings"),
        ("json_schema", '{"thought": "I', "one JSON object"),
        ("json_schema", "Let me think about it.", "one JSON object"),
        ("fenced", "```bash\nls\n```\n```bash\npwd\n```", "exactly one"),
        ("fenced", "```bash\nls", "close it with a line of ```"),
    ],
)
async def test_an_action_that_cannot_be_read_is_told_how_to_be_mended(
    tmp_path: Path, protocol: str, form: str, broken: str, mend: str
) -> None:
    answers = [broken] * (NUDGES + 2) + [act(form, "submit", "done")]
    async with Played(tmp_path, protocol, form, *answers) as played:
        assert (await played.role.visit("do it")).payload == "done"
    assert all(mend in text for text in played.heard()[1:])
    assert len(played.heard()) == NUDGES + 3
    assert list(played.notes.validity.values()) == [False] * (NUDGES + 2) + [True]
    assert not played.notes.commands


@ALL
async def test_an_answer_that_was_cut_is_told_so(tmp_path: Path, protocol: str) -> None:
    reason = {"anthropic": "max_tokens", "chat": "length", "responses": "max_output_tokens"}[protocol]
    answers = ["```bash\nls", act("fenced", "submit", "done")]
    async with Played(tmp_path, protocol, "fenced", *answers, reasons=(reason,)) as played:
        await played.role.visit("do it")
    assert played.heard()[1].startswith("Your answer was cut at 1000 tokens.")


@ALL
async def test_words_without_a_block_are_nudged_and_then_end_the_visit(tmp_path: Path, protocol: str) -> None:
    async with Played(tmp_path, protocol, "fenced", *["```python\nprint()\n``` is nice"] * (NUDGES + 1)) as played:
        with pytest.raises(VisitEnded, match="no_handover"):
            await played.role.visit("do it")
    assert "exactly one fenced block" in played.heard()[1]
    assert "delegate or submit" in played.heard()[1]


@BOTH
async def test_a_tool_that_is_not_there_is_refused_by_name(tmp_path: Path, form: str) -> None:
    # No block of that language is an action, but a JSON object can name anything.
    answers = [act(form, "rm", "-rf"), act(form, "submit", "done")]
    async with Played(tmp_path, "chat", form, *answers) as played:
        await played.role.visit("do it")
    expected = "there is no tool 'rm'" if form == "json_schema" else "You did not act"
    assert expected in played.heard()[1]


@pytest.mark.parametrize(
    ("text", "argument"),
    [
        ("```bash\nls\n```", "ls"),
        ("so:\r\n```bash\r\nls\r\n```\r\n", "ls"),
        ("````bash\ncat > a.md <<'E'\n```sh\nx\n```\nE\n````", "cat > a.md <<'E'\n```sh\nx\n```\nE"),
        ("<think>maybe\n```bash\nrm x\n```\n</think>\n```bash\nls\n```", "ls"),
        ("```python\nx\n```\nand\n  ``` bash\nls\n  ```", "ls"),
        ("```bash\n```", ""),
        ("inline ```bash is talk\n```bash\nls\n```", "ls"),
    ],
)
def test_a_fenced_block_is_found_among_talk(text: str, argument: str) -> None:
    assert actions.read("fenced", text, TOOLS) == actions.Action("bash", argument)


@given(argument=st.text(st.characters(codec="utf-8", exclude_characters="\r")), talk=st.text(st.sampled_from("ab `\n")))
def test_whatever_is_fenced_with_more_backticks_than_it_holds_comes_out_as_it_is(argument: str, talk: str) -> None:
    fence = "`" * (3 + max((len(run) for run in argument.split() if set(run) == {"`"}), default=0))
    said = f"{talk.replace('```', '')}\n{fence}submit\n{argument}\n{fence}"
    assert actions.read("fenced", said, TOOLS) == actions.Action("submit", argument)


@given(argument=st.text(st.characters(codec="utf-8")), name=st.text(st.characters(codec="utf-8")))
def test_any_argument_survives_its_json_object(argument: str, name: str) -> None:
    said = json.dumps({"thought": "", "tool": name, "argument": argument})
    assert actions.read("json_schema", said, TOOLS) == actions.Action(name, argument)


@pytest.mark.parametrize("form", ["json_schema", "fenced"])
def test_the_worked_example_is_an_action(form: Form) -> None:
    told = actions.told(form, TOOLS)
    example = told.split("For example:\n\n")[1]
    assert actions.read(form, example, TOOLS) == actions.Action("bash", "ls -la")
    only: list[Tool] = [handover_tool(SUBMIT)]
    assert "bash" not in actions.told(form, only)


def test_the_first_lines_are_what_is_documented() -> None:
    assert actions.told("fenced", TOOLS).split("\n")[0] == "Actions: one fenced block."
    assert actions.told("json_schema", TOOLS).split("\n")[0] == "Actions: one JSON object."
