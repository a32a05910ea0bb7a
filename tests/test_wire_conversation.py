"""Thirty turns with tools and thinking, over every client, against the simulated provider with its rules enforced."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from agents.clients import ToolResult, connect
from agents.clock import VirtualClock
from agents.crew import load_prompt
from agents.errors import TryFailed
from agents.handover import HandoverTool
from agents.registry import ModelEntry
from agents.simulated.app import simulated_provider
from agents.tools import handover_tool
from agents.tools.bash import BASH
from agents.transport import open_http
from cost_model.policies import POLICIES
from cost_model.tokens import Tokens
from cost_model.usage import normalise
from harbor_tasks.format import bundled_tasks, load_tasks
from tests.simulated_client import persona_file
from tests.wire_provider import EPOCH, NONCE, Notes, current_call, entry, options

TURNS = 30
SUBMIT = handover_tool(HandoverTool("submit", None, "Hands your work in.", "report", "What you did."))
OUTPUT = "exit code 0\n" + "one line of output after the other\n" * 20
WRITES = {"5m": "cache_write_5m", "1h": "cache_write_1h", "30m": "cache_write_30m", "12h": "cache_write_12h"}


async def converse(model: ModelEntry, personas: Path | None = None, **chosen: Any) -> tuple[list[Tokens], set[str]]:
    """The tokens of each turn, and the kinds of what the model said."""
    tasks, _ = load_tasks(bundled_tasks())
    notes, clock, kinds = Notes(), VirtualClock(EPOCH), set[str]()
    async with open_http(simulator=simulated_provider(tasks=tasks, personas=personas)) as http, clock.lane("solo-0"):
        client = connect(model, key="none", options=options(max_output_tokens=8000, **chosen), http=http)
        lane = client.open_lane("solo-0", load_prompt("solo"), [BASH, SUBMIT], NONCE)
        lane.append(client.user(tasks[0].instruction))
        for turn in range(TURNS):
            reply = await client.ask(lane, current_call(model, notes, clock, turn=str(turn + 1)))
            assert reply.tool_calls
            assert reply.message is not None
            said = reply.message.get("items") or reply.message["content"]
            kinds |= {str(part["type"]) for part in said if isinstance(part, dict)} if isinstance(said, list) else set()
            kinds |= {"reasoning_content"} & set(reply.message)
            lane.append(reply.message)
            for message in client.results([ToolResult(call.id, OUTPUT) for call in reply.tool_calls]):
                lane.append(message)
    assert [end.outcome for end in notes.ends] == ["complete"] * TURNS
    return [normalise(client.flavour, end.usage or {}) for end in notes.ends], kinds


@pytest.mark.parametrize(
    ("name", "lifetime", "form"),
    [
        ("sim-claude-sonnet-5-5", None, "tools"),
        ("sim-claude-sonnet-5-5", "1h", "fenced"),
        ("sim-claude-sonnet-5-5", None, "json_schema"),
        ("sim-gpt-6.1-sol", None, "tools"),
        ("sim-gpt-6.1-sol", "12h", "json_schema"),
        ("sim-gpt-6.1-sol", None, "fenced"),
    ],
)
async def test_where_the_cache_is_asked_for_each_turn_reads_all_that_was_sent_before(
    name: str, lifetime: str | None, form: str
) -> None:
    model = entry(name, actions=form)
    turns, kinds = await converse(model, lifetime=lifetime)
    assert kinds >= ({"reasoning"} if "gpt" in name else {"thinking", "redacted_thinking"})
    policy = POLICIES[model.cache]
    write = WRITES[lifetime or policy.default_lifetime or ""]
    for before, after in pairwise(turns):
        cached = before.cache_read + before.of(write)
        # All of a prompt is written, unless it is still too short; and all that was written is read.
        assert cached == (before.prompt if before.prompt >= policy.minimum_tokens else 0)
        assert after.cache_read == cached
    assert turns[-1].cache_read > 10_000
    assert sum(turn.input for turn in turns) < 2 * policy.minimum_tokens
    assert all(turn.of(other) == 0 for turn in turns for other in WRITES.values() if other != write)


async def test_where_the_provider_caches_by_itself_each_turn_reads_the_units_of_the_one_before(tmp_path: Path) -> None:
    persona = tmp_path / "thinker.yaml"
    persona_file(persona, "sim-deepseek-v4-flash", "sim-thinker", thinking={"tokens": 150})
    model = entry("sim-deepseek-v4-flash", model="sim-thinker")
    turns, kinds = await converse(model, persona)
    assert kinds == {"reasoning_content"}
    unit = POLICIES[model.cache].multiple
    for before, after in pairwise(turns):
        assert after.cache_read >= before.prompt // unit * unit
        assert after.prompt == after.cache_read + after.input
    with pytest.raises(TryFailed, match="Missing `reasoning_content`"):
        await converse(model.model_copy(update={"reasoning": "drop"}), persona)
