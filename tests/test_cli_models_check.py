"""fullchain models check: what it says, when it asks, and its exit codes."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from experiments.cli import main

ROOT = Path(__file__).parent.parent
KEY = "sk-ant-abcdefghijklmnopqrstuvwxyz"


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as end:
        main(["models", "check", *arguments])
    said = capsys.readouterr()
    assert isinstance(end.value.code, int)
    return end.value.code, said.out, said.err


@contextmanager
def refusing(status: int, body: bytes, kind: str = "application/json") -> Iterator[str]:
    """A server on loopback that answers everything alike."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join(10)


def models_file(folder: Path, base_url: str) -> str:
    path = folder / "mine.yaml"
    path.write_text(f"models:\n  mine: {{like: claude-opus-5-5, base_url: '{base_url}', key_variable: MINE_KEY}}\n")
    return str(path)


def error(kind: str, message: str) -> bytes:
    return json.dumps({"type": "error", "error": {"type": kind, "message": message}}).encode()


def test_a_simulated_model_is_told_in_a_small_table(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "sim-claude-opus-5-5")
    rows = {line[:18].strip(): line[18:].split() for line in out.splitlines()}
    assert code == 0
    assert rows["answered"] == ["yes", "yes"]
    assert rows["action"][0] == "valid"
    assert rows["cache_read"][1] == rows["predicted"][1] == rows["cache_write_5m"][0] != "0"
    assert "cache_creation.ephemeral_5m_input_tokens" in out
    assert "simulated: nothing is paid" in out
    assert out.splitlines()[-1] == "all is well"
    assert max(len(line) for line in out.splitlines() if not line.startswith(("usage of", "sim-"))) <= 120


def test_an_answer_that_is_cut_is_off_and_exits_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "sim-claude-opus-5-5", "--output-tokens", "20")
    assert code == 1
    assert "OFF: the answer was cut at 20 tokens" in out
    assert "--output-tokens 4000" in out


def test_a_served_simulator_can_be_checked_too(capsys: pytest.CaptureFixture[str]) -> None:
    command = [sys.executable, "-m", "experiments.cli", "simulate", "--port", "0"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as provider:
        try:
            assert provider.stdout is not None
            url = provider.stdout.readline().split()[3]
            code, out, err = run(capsys, "sim-gpt-6.1-sol", "--simulator", url)
            assert (code, err) == (0, "")
            assert "all is well" in out
        finally:
            provider.kill()


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (401, error("authentication_error", "invalid x-api-key"), "check the key in MINE_KEY"),
        (400, error("invalid_request_error", "Your credit balance is too low"), "has no credit left"),
        (404, error("not_found_error", "model: claude-opus-5-5"), "check `model: claude-opus-5-5` of mine"),
        (403, error("forbidden", "unsupported_country_region_territory"), "does not serve this region"),
        (404, b"404 page not found", "check the base_url"),
        (200, b"<html>Welcome</html>", "check the base_url"),
    ],
)
def test_no_answer_is_one_clear_line_without_the_key_and_exits_with_2(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    status: int,
    body: bytes,
    words: str,
) -> None:
    monkeypatch.setenv("MINE_KEY", KEY)
    kind = "application/json" if body.startswith(b"{") else "text/html"
    with refusing(status, body, kind) as url:
        code, _, err = run(capsys, "mine", "--models", models_file(tmp_path, url), "--yes")
    assert code == 2
    assert words in err
    assert len(err.splitlines()) == 1
    assert KEY not in err


def test_an_address_where_nobody_listens_exits_with_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MINE_KEY", KEY)
    monkeypatch.setattr("agents.retry.FIRST_WAIT_S", 0.0)
    with refusing(500, b"") as url:
        pass
    code, _, err = run(capsys, "mine", "--models", models_file(tmp_path, url), "--yes")
    assert code == 2
    assert f"start the server at {url}" in err


@pytest.mark.parametrize("key", ["AIzaSECRETabc\ndef01234567", "SECRETabc\rdef", "\u201cSECRETabcdef\u201d"])
def test_a_key_that_was_pasted_badly_is_refused_before_anything_is_said_or_sent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    monkeypatch.setenv("MINE_KEY", key)
    code, out, err = run(capsys, "mine", "--models", models_file(tmp_path, "http://127.0.0.1:9"), "--yes")
    assert (code, out) == (2, "")
    assert "what is in MINE_KEY is no key" in err
    assert len(err.splitlines()) == 1
    assert "SECRET" not in err


def test_a_proxy_that_cannot_be_used_is_one_line_and_exits_with_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MINE_KEY", KEY)
    monkeypatch.setenv("HTTPS_PROXY", "socks5h://127.0.0.1:1080")
    code, _, err = run(capsys, "mine", "--models", models_file(tmp_path, "http://127.0.0.1:9"), "--yes")
    assert code == 2
    assert "HTTPS_PROXY names a SOCKS proxy" in err
    assert len(err.splitlines()) == 1


def test_a_key_that_is_not_set_is_found_before_anything_is_said_or_sent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MINE_KEY", raising=False)
    code, out, err = run(capsys, "mine", "--models", models_file(tmp_path, "http://127.0.0.1:9"), "--yes")
    assert (code, out) == (2, "")
    assert "set the environment variable MINE_KEY" in err


def test_what_can_cost_more_than_a_cent_is_not_sent_without_yes_or_a_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MINE_KEY", KEY)
    code, out, err = run(capsys, "mine", "--models", models_file(tmp_path, "http://127.0.0.1:9"))
    assert code == 2
    assert "worst case: $0." in out
    assert "no terminal to ask on; add --yes" in err


def test_a_terminal_is_asked_and_no_is_taken_for_an_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MINE_KEY", KEY)
    monkeypatch.setattr("sys.stdin", _Typed("\n"))
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    code, _, err = run(capsys, "mine", "--models", models_file(tmp_path, "http://127.0.0.1:9"))
    assert code == 1
    assert "send? [y/N] " in err
    assert "nothing was sent" in err


def test_an_unknown_model_and_a_real_one_at_a_simulator_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "sim-claude-opus")[0] == 2
    code, _, err = run(capsys, "local", "--simulator", "http://127.0.0.1:9")
    assert code == 2
    assert "local is a real model" in err


class _Typed:
    """What a person types."""

    def __init__(self, text: str) -> None:
        self._lines = text.splitlines(keepends=True)

    def isatty(self) -> bool:
        return True

    def readline(self) -> str:
        return self._lines.pop(0) if self._lines else ""
