"""Hears one answer of a real model's entry over real HTTP on loopback, by the way that calls to providers take."""

from typing import Any

import pytest

from agents.clients import Reply, connect
from agents.errors import TryFailed
from agents.registry import ModelEntry
from agents.tools.bash import BASH
from agents.transport import open_http
from tests.wire_provider import NONCE, Notes, Provider, Script, current_call, entry, options, served

CLAUDE, DEEPSEEK, GPT = entry("claude-opus-5-5"), entry("deepseek-v4-flash"), entry("gpt-6.1-sol")
ALL = pytest.mark.parametrize("model", [CLAUDE, DEEPSEEK, GPT], ids=["anthropic", "chat", "responses"])
KEY = "sk-house\"key'\\0123456789"
"""Of visible characters, but one that JSON and Python write differently."""


def at(model: ModelEntry, url: str) -> ModelEntry:
    return model.model_copy(update={"base_url": url if model.protocol == "anthropic_messages" else f"{url}/v1"})


async def ask(model: ModelEntry, url: str, notes: Notes, key: str = KEY, **way: Any) -> Reply:
    model = at(model, url)
    async with open_http(**way) as http:
        client = connect(model, key=key, options=options(), http=http)
        lane = client.open_lane("solo-0", "You are tested.", [BASH], NONCE)
        lane.append(client.user("begin"))
        reply = await client.ask(lane, current_call(model, notes))
        if reply.message is not None:
            lane.append(reply.message)
        return reply


async def heard(model: ModelEntry, script: Script, notes: Notes | None = None) -> Reply:
    async with served(Provider(script).app) as url:
        return await ask(model, url, notes or Notes())


async def failed(model: ModelEntry, script: Script, notes: Notes) -> TryFailed:
    with pytest.raises(TryFailed) as caught:
        await heard(model, script, notes)
    assert "\n" not in str(caught.value)
    return caught.value
