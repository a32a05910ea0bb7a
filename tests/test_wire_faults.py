"""What a person is told when a provider does not answer: one line that says what to mend."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest

from agents.clients import connect
from agents.clients.faults import fault_of_connection
from agents.errors import ProviderRefused, TryFailed
from agents.registry import ModelEntry
from agents.retry import with_retries
from agents.tools.bash import BASH
from agents.transport import open_http
from tests.wire_provider import NONCE, Notes, Provider, Script, current_call, entry, options, served

CLAUDE, DEEPSEEK, GPT = "claude-opus-5-5", "deepseek-v4-flash", "gpt-6.1-sol"
PROXIES = ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "NO_PROXY")


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*PROXIES, *map(str.lower, PROXIES)):
        monkeypatch.delenv(name, raising=False)


async def refusal(name: str, url: str, notes: Notes | None = None) -> ProviderRefused:
    """What comes of one call of a real model, over real HTTP, to `url`."""
    model = entry(name, base_url=url)
    async with open_http() as http:
        client = connect(model, key="sk-secret-key-0123456789", options=options(), http=http)
        lane = client.open_lane("solo-0", "You are tested.", [BASH], NONCE)
        lane.append(client.user("begin"))
        with pytest.raises(ProviderRefused) as caught:
            await with_retries(
                lambda: client.ask(lane, current_call(model, notes or Notes())), name=name, sleep=_not, tries=2
            )
    assert "\n" not in str(caught.value)
    assert "sk-secret" not in str(caught.value)
    return caught.value


async def _not(_: float) -> None:
    pass


def error(message: str, **more: object) -> bytes:
    return orjson.dumps({"error": {"message": message, **more}})


@pytest.mark.parametrize(
    ("model", "status", "body", "fault", "named"),
    [
        (CLAUDE, 401, error("invalid x-api-key", type="authentication_error"), "key", "ANTHROPIC_API_KEY"),
        (GPT, 401, error("Incorrect API key provided: sk-secret-key-0123456789."), "key", "OPENAI_API_KEY"),
        (GPT, 403, error("You have insufficient permissions for this operation."), "key", "OPENAI_API_KEY"),
        ("gemini-3.8-flash", 400, error("API key not valid. Please pass a valid API key."), "key", "GEMINI_API_KEY"),
        ("grok-4.7", 400, error("Incorrect API key provided: sk."), "key", "XAI_API_KEY"),
        (CLAUDE, 400, error("Your credit balance is too low to access the API."), "credit", "ANTHROPIC_API_KEY"),
        (GPT, 429, error("You exceeded your current quota", code="insufficient_quota"), "credit", "OPENAI_API_KEY"),
        (DEEPSEEK, 402, error("Insufficient Balance"), "credit", "DEEPSEEK_API_KEY"),
        ("kimi-k3", 429, error("suspended", type="exceeded_current_quota_error"), "credit", "MOONSHOT_API_KEY"),
        ("qwen3.8-max", 400, error("Access denied", code="Arrearage"), "credit", "DASHSCOPE_API_KEY"),
        (CLAUDE, 404, error("model: claude-opus-5-5", type="not_found_error"), "model", "claude-opus-5-5"),
        (GPT, 404, error("The model `gpt-6.1-sol` does not exist", code="model_not_found"), "model", GPT),
        (DEEPSEEK, 400, error("Model Not Exist"), "model", DEEPSEEK),
        (GPT, 403, error("Country, region, or territory not supported"), "region", "HTTPS_PROXY"),
        (DEEPSEEK, 400, error("User location is not supported for the API use."), "region", "HTTPS_PROXY"),
        (CLAUDE, 404, error("Not Found", type="not_found_error"), "address", "base_url"),
        (GPT, 404, b'{"detail":"Not Found"}', "address", "base_url"),
        (GPT, 404, error("Invalid URL (POST /v1/v1/responses)"), "address", "base_url"),
        (DEEPSEEK, 404, b"<!DOCTYPE html><html><body>404</body></html>", "address", "base_url"),
        (CLAUDE, 405, b"", "address", "base_url"),
        (CLAUDE, 301, b"", "address", "base_url"),
    ],
)
async def test_what_is_wrong_is_said_with_what_to_mend(
    model: str, status: int, body: bytes, fault: str, named: str
) -> None:
    notes, provider = Notes(), Provider(*[Script(status=status, body=body)] * 2)
    async with served(provider.app) as url:
        address = url if model == CLAUDE else f"{url}/v1"
        refused = await refusal(model, address, notes)
    assert refused.fault == fault
    assert named in refused.advice
    assert str(refused).endswith(refused.advice)
    # Trying again mends none of these.
    assert [end.outcome for end in notes.ends] == ["refused"]
    assert notes.ends[0].status == status


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (429, error("Rate limit reached", code="rate_limit_exceeded")),
        (400, error("Unsupported parameter: 'max_tokens' is not supported with this model.")),
        (502, b"<html><h1>502 Bad Gateway</h1></html>"),
        (503, error("The model is overloaded")),
        (529, error("Overloaded", type="overloaded_error")),
    ],
)
async def test_what_passes_or_is_our_own_mistake_is_no_fault_of_the_persons_set_up(status: int, body: bytes) -> None:
    async with served(Provider(*[Script(status=status, body=body)] * 2).app) as url:
        refused = await refusal(GPT, f"{url}/v1")
    assert (refused.fault, refused.advice) == (None, "")


@pytest.mark.parametrize("model", [CLAUDE, DEEPSEEK, GPT])
async def test_a_web_page_that_answers_with_success_is_a_wrong_address(model: str) -> None:
    page = Script(body=b"<html>data: welcome</html>", headers={"content-type": "text/html; charset=utf-8"})
    async with served(Provider(page).app) as url:
        refused = await refusal(model, url if model == CLAUDE else f"{url}/v1")
    assert refused.fault == "address"
    assert "text/html" in str(refused)
    assert "base_url" in refused.advice


async def test_a_server_that_is_not_there_is_to_be_started() -> None:
    refused = await refusal("local", "http://127.0.0.1:9/v1")
    assert refused.fault == "unreachable"
    assert "start the server at http://127.0.0.1:9/v1" in refused.advice


async def test_a_host_that_cannot_be_reached_is_told_with_base_url_and_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = await refusal(GPT, "http://no-such-host.invalid/v1")
    assert refused.fault == "unreachable"
    assert "http://no-such-host.invalid/v1" in refused.advice
    assert "set HTTPS_PROXY" in refused.advice
    monkeypatch.setenv("HTTP_PROXY", "http://user:hidden@127.0.0.1:9")
    refused = await refusal(GPT, "http://no-such-host.invalid/v1")
    assert "the proxy in HTTP_PROXY" in refused.advice
    assert "hidden" not in str(refused)


async def test_a_proxy_that_refuses_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    async with _one_answer(b"HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n") as port:
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{port}")
        refused = await refusal(GPT, "https://api.example.invalid/v1")
    assert refused.fault == "proxy"
    assert "HTTPS_PROXY" in refused.advice
    assert "NO_PROXY" in refused.advice


async def test_a_server_without_tls_behind_https_is_a_matter_of_certificates() -> None:
    async with _one_answer(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n") as port:
        refused = await refusal(GPT, f"https://127.0.0.1:{port}/v1")
    assert refused.fault == "tls"
    assert "SSL_CERT_FILE" in refused.advice


def test_a_certificate_that_cannot_be_verified_is_found_at_the_bottom_of_the_causes() -> None:
    import httpx2
    import openai

    request = httpx2.Request("POST", "https://x.invalid")
    outer = openai.APIConnectionError(request=request)
    outer.__cause__ = httpx2.ConnectError("")
    outer.__cause__.__cause__ = ssl.SSLCertVerificationError("CERTIFICATE_VERIFY_FAILED")
    assert fault_of_connection(outer) == "tls"
    outer.__cause__.__cause__ = socket.gaierror(-2, "Name or service not known")
    assert fault_of_connection(outer) == "unreachable"
    outer.__cause__ = httpx2.ReadError("reset")
    assert fault_of_connection(outer) is None


async def test_a_local_server_behind_an_environments_proxy_is_told_how_to_go_around(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    refused = await refusal("local", "http://127.0.0.1:10/v1")
    assert "NO_PROXY=127.0.0.1" in refused.advice


async def test_a_fault_travels_with_the_failed_try_too() -> None:
    model: ModelEntry = entry("sim-deepseek-v4-flash")
    provider = Provider(Script(status=401, body=error("no")))
    async with open_http(simulator=provider.app) as http:
        client = connect(model, key="none", options=options(), http=http)
        lane = client.open_lane("solo-0", "s", [BASH], NONCE)
        with pytest.raises(TryFailed) as caught:
            await client.ask(lane, current_call(model, Notes()))
    assert (caught.value.fault, str(caught.value)) == ("key", "HTTP 401: no")
    assert "key_variable" in caught.value.advice


@asynccontextmanager
async def _one_answer(answer: bytes) -> AsyncIterator[int]:
    """A server that says the same to everyone."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(answer)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        port: Any = server.sockets[0].getsockname()[1]
        yield port
    finally:
        server.close()
