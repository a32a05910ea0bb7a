"""Which way a request takes (real models over plain HTTP, through proxies), and answers in any encoding."""

import asyncio
import gzip

import pytest

from agents.clients import connect
from agents.errors import TryFailed
from agents.registry import ModelEntry
from agents.tools.bash import BASH
from agents.transport import open_http
from agents.transport.call import CALL
from tests.wire_answers import OPENAI_USAGE, openai_pieces
from tests.wire_provider import NONCE, Notes, Provider, Script, current_call, entry, options, served


async def ask(model: ModelEntry, notes: Notes) -> str:
    async with open_http() as http:
        client = connect(model, key="test-key", options=options(), http=http)
        lane = client.open_lane("solo-0", "s", [BASH], NONCE)
        lane.append(client.user("begin"))
        return (await client.ask(lane, current_call(model, notes))).text


async def test_a_real_model_is_told_nothing_of_trials() -> None:
    notes, provider = Notes(), Provider(Script(openai_pieces("hello")))
    async with served(provider.app) as url:
        assert await ask(entry("local", base_url=f"{url}/v1"), notes) == "hello"
    assert not [name for name in provider.received[0].headers if "fullchain" in name]
    assert [(call.simulated, call.provider) for call in notes.calls] == [(False, "local")]
    assert (notes.ends[0].outcome, notes.ends[0].usage) == ("complete", OPENAI_USAGE)


async def test_a_real_model_is_reached_through_the_proxy_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bytes] = []

    async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readline())
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 9\r\nconnection: close\r\n\r\nnot here\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(proxy, "127.0.0.1", 0)
    for name in ("http_proxy", "HTTP_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    for name in ("no_proxy", "NO_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    notes = Notes()
    async with server:
        with pytest.raises(TryFailed, match="HTTP 403"):
            await ask(entry("local", base_url="http://models.example/v1"), notes)
    assert asked == [b"POST http://models.example/v1/chat/completions HTTP/1.1\r\n"]
    assert notes.ends[0].error == "not here"


async def test_a_simulated_model_without_a_simulator_is_a_bug_and_never_reaches_the_internet() -> None:
    with pytest.raises(RuntimeError, match="no simulated provider was opened"):
        await ask(entry("sim-deepseek-v4-flash"), Notes())


async def test_an_answer_that_comes_compressed_against_our_wish_is_read_all_the_same() -> None:
    body = gzip.compress(b'{"id":"c","usage":{"prompt_tokens":4},"choices":[]}')
    provider = Provider(Script(body=body, headers={"content-encoding": "gzip"}))
    notes, model = Notes(), entry("sim-deepseek-v4-flash")
    async with open_http(simulator=provider.app) as http:
        token = CALL.set(current_call(model, notes))
        response = await http.post("http://simulator.invalid/v1/chat/completions", content=b"{}")
        CALL.reset(token)
    assert response.json()["id"] == "c"
    assert provider.received[0].headers["accept-encoding"] == "identity"
    assert (notes.ends[0].outcome, notes.ends[0].usage) == ("complete", {"prompt_tokens": 4})


async def test_only_one_simulator_can_be_meant_and_it_must_have_an_address() -> None:
    with pytest.raises(ValueError, match="not both"):
        async with open_http(simulator=Provider().app, simulator_url="http://127.0.0.1:1"):
            pass
    with pytest.raises(ValueError, match="expected an address such as"):
        async with open_http(simulator_url="localhost:8000"):
            pass
