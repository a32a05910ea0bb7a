"""Keys and environments that are broken, and servers that mean harm: one clear line, a booking, and no key anywhere."""

import orjson
import pytest

from agents.errors import TryFailed
from agents.registry import ModelEntry
from tests.loopback_hearing import ALL, DEEPSEEK, GPT, KEY, ask, heard
from tests.wire_answers import PIECES
from tests.wire_provider import NONCE, Notes, Provider, Script, served


@ALL
async def test_a_key_that_the_transport_refuses_is_shown_in_no_spelling_and_booked_as_never_sent(
    model: ModelEntry,
) -> None:
    notes, provider = Notes(), Provider()
    async with served(provider.app) as url:
        with pytest.raises(TryFailed) as caught:
            await ask(model, url, notes, key="AIzaSECRETabc\ndef01234567")
    [ended] = notes.ends
    assert (ended.outcome, provider.received) == ("refused", [])
    for told in (str(caught.value), ended.error or ""):
        assert "SECRET" not in told
        assert "def0123" not in told


@ALL
async def test_a_key_that_a_server_echoes_is_kept_nowhere(model: ModelEntry) -> None:
    quoted = orjson.dumps(KEY)[1:-1]
    calls = [(f"c_{KEY}", "bash", orjson.dumps({"command": f"ls {KEY}"}).decode())]
    reason = None if model is GPT else KEY
    body = b"".join(PIECES[model.protocol](f"hello {KEY}", calls, reason)).replace(b"wire-model", quoted)
    body = body.replace(b'"usage":{', b'"usage":{"%s":{"x":["%s"]},' % (quoted, quoted))
    notes = Notes()
    script = Script([body], headers={"x-request-id": KEY})
    reply = await heard(model, script, notes)
    [ended] = notes.ends
    assert ended.outcome == "complete"
    assert ended.usage is not None
    assert "[key]" in ended.usage
    assert (ended.response_model, ended.request_id) == ("[key]", "[key]")
    kept = repr((reply, ended))
    assert "0123456789" not in kept.replace(NONCE, "")
    assert (reply.text, reply.tool_calls[0].arguments) == ("hello [key]", {"command": "ls [key]"})


async def test_a_placeholder_for_a_key_is_no_secret() -> None:
    notes = Notes()
    pieces = [piece.replace(b"wire-model", b"none-of-yours") for piece in PIECES["openai_chat"]("none")]
    async with served(Provider(Script(pieces)).app) as url:
        reply = await ask(DEEPSEEK, url, notes, key="none")
    assert (reply.text, notes.ends[0].response_model) == ("none", "none-of-yours")


SDK_ENVIRONMENT = {
    "ANTHROPIC_CUSTOM_HEADERS": "Authorization: Bearer OTHER\nX-Api-Key: OTHER\nX-Mine: OTHER\nanthropic-beta: OTHER",
    "OPENAI_CUSTOM_HEADERS": "authorization: Bearer OTHER\nX-Mine: OTHER",
    "ANTHROPIC_API_KEY": "OTHER",
    "ANTHROPIC_AUTH_TOKEN": "OTHER",
    "ANTHROPIC_PROFILE": "OTHER",
    "ANTHROPIC_BASE_URL": "http://127.0.0.1:9/OTHER",
    "ANTHROPIC_OPEN_TELEMETRY": "1",
    "OPENAI_API_KEY": "OTHER",
    "OPENAI_ADMIN_KEY": "OTHER",
    "OPENAI_ORG_ID": "OTHER",
    "OPENAI_PROJECT_ID": "OTHER",
    "OPENAI_BASE_URL": "http://127.0.0.1:9/OTHER",
    "OPENAI_WEBHOOK_SECRET": "OTHER",
}


@ALL
async def test_nothing_of_the_sdks_own_environment_reaches_a_provider(
    model: ModelEntry, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in SDK_ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    model = model.model_copy(update={"headers": {"x-mine": "of the entry", "OpenAI-Organization": "org-entry"}})
    provider = Provider(Script(PIECES[model.protocol]("hello")))
    async with served(provider.app) as url:
        assert (await ask(model, url, Notes())).text == "hello"
    headers = provider.received[0].headers
    assert "OTHER" not in repr(headers)
    assert (headers["x-mine"], headers["openai-organization"]) == ("of the entry", "org-entry")
    assert KEY in (headers.get("authorization", "").removeprefix("Bearer "), headers.get("x-api-key"))
    assert not {"traceparent", "baggage", "openai-project", "anthropic-beta"} & headers.keys()


@pytest.mark.parametrize(
    ("variable", "value", "mend"),
    [
        ("HTTPS_PROXY", "socks5h://u:hidden@127.0.0.1:1080", "pip install socksio"),
        ("all_proxy", "socks5://127.0.0.1:1080", "pip install socksio"),
        ("HTTP_PROXY", "http://u:hidden%40ss@127.0.0.1:notaport", "http://127.0.0.1:3128"),
        ("http_proxy", "ftp://u:hidden@x", "http://127.0.0.1:3128"),
        ("https_proxy", "http://u:hid\nden@x", "http://127.0.0.1:3128"),
    ],
)
@ALL
async def test_a_proxy_that_cannot_be_used_is_one_line_that_names_its_variable(
    model: ModelEntry, variable: str, value: str, mend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("https_proxy", "http_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setenv(variable, value)
    notes = Notes()
    with pytest.raises(TryFailed) as caught:
        await ask(model, "http://models.invalid", notes)
    error = caught.value
    assert (error.fault, error.retryable) == ("proxy", False)
    assert variable in f"{error}; {error.advice}"
    assert mend in error.advice
    assert "hid" not in f"{error}{error.advice}{notes.ends}"
    # It cannot have been billed.
    assert [end.outcome for end in notes.ends] == ["refused"]


async def test_certificates_that_are_not_there_are_one_line_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", "/nonexistent/certificates.pem")
    notes = Notes()
    with pytest.raises(TryFailed, match="SSL_CERT_FILE") as caught:
        await ask(GPT, "https://models.invalid", notes)
    assert (caught.value.fault, caught.value.retryable, notes.ends[0].outcome) == ("tls", False, "refused")


@pytest.mark.parametrize("host", ["127.0.0.1:99999", "a..b", "a" * 70 + ".invalid", ".invalid"])
@pytest.mark.parametrize("as_proxy", [False, True])
async def test_an_address_that_can_be_none_is_no_connection(
    host: str, as_proxy: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if as_proxy:
        monkeypatch.setenv("HTTP_PROXY", f"http://{host}")
    notes = Notes()
    with pytest.raises(TryFailed) as caught:
        await ask(GPT, "http://127.0.0.1:9" if as_proxy else f"http://{host}", notes)
    assert caught.value.fault in ("unreachable", "proxy", "address")
    assert [end.outcome for end in notes.ends] == ["refused"]
