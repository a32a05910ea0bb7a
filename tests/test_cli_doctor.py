"""fullchain doctor: what it looks at, what it calls off, and that it tells no key."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from agents.registry import load_models
from experiments.cli import main
from experiments.doctor.disk import disks
from experiments.doctor.names import names

ROOT = Path(__file__).parent.parent
KEY = "sk-ant-abcdefghijklmnopqrstuvwxyz"
MINE = """models:
  mine:
    provider: anthropic
    model: claude-opus-5-5
    base_url: {url}
    key_variable: HOUSE_KEY
"""


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever tests with keys in the environment sends nothing to where they belong."""
    for entry in load_models().values():
        if entry.key_variable is not None:
            monkeypatch.delenv(entry.key_variable, raising=False)


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    with pytest.raises(SystemExit) as end:
        main(["doctor", *arguments])
    assert isinstance(end.value.code, int)
    return end.value.code, capsys.readouterr().out


def of(said: str, what: str) -> list[str]:
    return [line for line in said.splitlines() if line[6:].startswith(what)]


@contextmanager
def answering(date: str | None) -> Iterator[tuple[str, list[dict[str, str]]]]:
    """A server on loopback that refuses everyone, with this time of day, and what it was sent."""
    asked: list[dict[str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(dict(self.headers))
            self.send_response_only(404)
            if date is not None:
                self.send_header("date", date)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}", asked
        finally:
            server.shutdown()


def registry(folder: Path, url: str) -> str:
    path = folder / "mine.yaml"
    path.write_text(MINE.format(url=url), encoding="utf-8")
    return str(path)


def test_each_thing_is_told_in_one_line_without_any_key_or_network(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    code, said = run(capsys, "--offline", "--db", str(tmp_path / "x.duckdb"))
    for what in ("python", "names", "docker", "bubblewrap", "sandbox", "database", "cache", "key", "models", "clock"):
        assert of(said, what), what
    assert of(said, "key")[0] == "ok    key              OPENAI_API_KEY is set"
    assert "ANTHROPIC_API_KEY" in of(said, "key")[1]
    assert KEY not in said
    assert code == int("\nOFF " in said)


def test_an_address_that_answers_is_told_and_gets_no_key(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOUSE_KEY", KEY)
    with answering(format_datetime(datetime.now(UTC), usegmt=True)) as (url, asked):
        _, said = run(capsys, "--models", registry(tmp_path, url))
    assert f"ok    models           anthropic answers at {url}" in said
    assert of(said, "clock")[0].endswith(f"that of {url}")
    assert len(asked) == 1
    assert KEY not in f"{asked} {said}"


@pytest.mark.parametrize(
    ("hours", "side"), [(-2, "7,200 s ahead of"), (2, "behind")], ids=["ours goes fast", "ours goes slow"]
)
def test_a_clock_that_goes_wrong_is_off(
    hours: int, side: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOUSE_KEY", KEY)
    theirs = datetime.now(UTC) + timedelta(hours=hours)
    with answering(format_datetime(theirs, usegmt=True)) as (url, _):
        code, said = run(capsys, "--models", registry(tmp_path, url))
    (line,) = of(said, "clock")
    assert line.startswith("OFF")
    assert side.split(" ")[-1] in line
    assert "NTP" in line
    assert code == 1


@pytest.mark.parametrize("date", [None, "yesterday", "Mon, 99 Foo 20x6"])
def test_a_server_without_a_time_says_nothing_of_the_clock(
    date: str | None, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOUSE_KEY", KEY)
    with answering(date) as (url, _):
        _, said = run(capsys, "--models", registry(tmp_path, url))
    assert of(said, "clock")[0].startswith("note")


def test_an_address_that_does_not_answer_is_off_where_its_key_is_set(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOUSE_KEY", KEY)
    with answering(None) as (url, _):
        gone = url
    code, said = run(capsys, "--models", registry(tmp_path, gone))
    assert any(line.startswith("OFF") and gone in line and "base_url" in line for line in of(said, "models"))
    assert code == 1


def test_a_key_that_is_none_is_off_without_its_words(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk two\nlines")
    code, said = run(capsys, "--offline")
    assert of(said, "key")[0].startswith("OFF")
    assert "copy the key anew" in said
    assert "two" not in of(said, "key")[0]
    assert code == 1


def test_a_package_that_owns_one_of_our_names_is_off() -> None:
    owners = {"agents": ["fullchain", "openai-agents"], "experiments": ["fullchain"]}
    (line,) = [line for line in names(owners) if line.standing == "off"]
    assert line.told.startswith("the package openai-agents owns the name agents too: `pip uninstall openai-agents`")
    assert not [line for line in names({}) if line.standing == "off"]


def test_a_package_that_was_really_installed_beside_is_found(tmp_path: Path) -> None:
    told = tmp_path / "other_agents-1.0.dist-info"
    told.mkdir()
    (told / "METADATA").write_text("Metadata-Version: 2.1\nName: other-agents\nVersion: 1.0\n")
    (told / "top_level.txt").write_text("agents\n")
    (told / "RECORD").write_text("agents/__init__.py,,\n")
    said = subprocess.run(
        [sys.executable, "-m", "experiments.cli", "doctor", "--offline"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{tmp_path}"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "the package other-agents owns the name agents too" in said.stdout
    assert said.returncode == 1


def test_a_folder_that_cannot_hold_a_database_is_off(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    first = next(disks(tmp_path / "file" / "x.duckdb"))
    assert first.standing == "off"
    assert first.told == f"{tmp_path / 'file'} is a file where a folder is needed: move it away"
    assert next(disks(tmp_path / "not yet" / "x.duckdb")).standing == "ok"


def test_a_registry_that_cannot_be_read_is_refused_in_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "bad.yaml").write_text("models: 3\n")
    with pytest.raises(SystemExit) as end:
        main(["doctor", "--models", str(tmp_path / "bad.yaml")])
    assert end.value.code == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
