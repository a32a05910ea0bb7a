"""fullchain models add: what it asks, what it writes, and that the entry is then checked."""

from pathlib import Path

import pytest
import yaml

from agents.registry import find_model, load_models
from experiments.cli import main

OURS = """\
# our models
models:
  first: {like: local, actions: fenced}   # keep this
"""


class _Typed:
    """What a person types, or nobody does."""

    def __init__(self, *lines: str) -> None:
        self.lines = [f"{line}\n" for line in lines]

    def isatty(self) -> bool:
        return bool(self.lines)

    def readline(self) -> str:
        return self.lines.pop(0) if self.lines else ""


@pytest.fixture(autouse=True)
def _nobody_types(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("sys.stdin", _Typed())
    monkeypatch.chdir(tmp_path)


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as end:
        main(["models", "add", *arguments])
    said = capsys.readouterr()
    assert isinstance(end.value.code, int)
    return end.value.code, said.out, said.err


def written(path: str = "models.yaml") -> dict[str, dict[str, object]]:
    models: dict[str, dict[str, object]] = yaml.safe_load(Path(path).read_text())["models"]
    return models


def test_a_known_provider_needs_its_name_and_the_models(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "haiku", "--provider", "anthropic", "--model", "claude-haiku-5-5", "--no-check")
    assert code == 0
    assert written() == {"haiku": {"provider": "anthropic", "model": "claude-haiku-5-5"}}
    assert "models: [models.yaml]" in out
    assert find_model(load_models([Path("models.yaml")]), "haiku").key_variable == "ANTHROPIC_API_KEY"


def test_a_gateway_takes_an_address_and_a_key_variable_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    house = ("--like", "gpt-5.5", "--base-url", "https://llm.example.com/v1/", "--no-check")
    code, _, err = run(capsys, "house", *house)
    assert code == 2
    assert "--key-variable: is missing" in err
    assert not Path("models.yaml").exists()
    assert run(capsys, "house", *house, "--key-variable", "HOUSE_KEY")[0] == 0
    assert written() == {
        "house": {"like": "gpt-5.5", "base_url": "https://llm.example.com/v1", "key_variable": "HOUSE_KEY"}
    }


def test_a_server_on_this_machine_is_self_hosted_and_needs_no_key(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("--provider", "mine", "--base-url", "http://127.0.0.1:9/v1", "--actions", "json_schema", "--no-check")
    assert run(capsys, "coder", *arguments, "--context-tokens", "8192")[0] == 0
    entry = find_model(load_models([Path("models.yaml")]), "coder")
    assert (entry.self_hosted, entry.key_variable, entry.cache) == (True, None, "prefix-16")
    assert (entry.actions, entry.limits.context_tokens) == ("json_schema", 8192)


def test_what_stands_in_the_file_stays_and_can_be_built_upon(capsys: pytest.CaptureFixture[str]) -> None:
    Path("ours.yaml").write_text(OURS)
    assert run(capsys, "second", "--to", "ours.yaml", "--like", "first", "--model", "other", "--no-check")[0] == 0
    assert Path("ours.yaml").read_text() == OURS + "  second:\n    like: first\n    model: other\n"
    code, _, err = run(capsys, "second", "--to", "ours.yaml", "--like", "first", "--no-check")
    assert code == 2
    assert "stands there already" in err


def test_another_model_has_no_price_of_the_one_that_it_is_like(capsys: pytest.CaptureFixture[str]) -> None:
    other = ("other", "--like", "claude-opus-5-5", "--model", "my-tuned-opus", "--no-check")
    code, _, err = run(capsys, *other)
    assert code == 2
    assert "--price: is missing" in err
    assert run(capsys, *other, "--price", "claude-opus-5-5")[0] == 0
    assert written() == {"other": {"like": "claude-opus-5-5", "model": "my-tuned-opus", "price": "claude-opus-5-5"}}


def test_the_entry_is_checked_after_it_was_written(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "mine", "--like", "sim-deepseek-v4-flash")
    assert code == 0
    assert written() == {"mine": {"like": "sim-deepseek-v4-flash"}}
    assert out.splitlines()[-1] == "all is well"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "NAME: is missing"),
        (("x",), "--provider: is missing"),
        (("x", "--provider", "house"), "--base-url: is missing"),
        (("x", "--provider", "local", "--base-url", "ftp://a", "--key-variable", "none"), "expected an http"),
        (("x", "--provider", "anthropic", "--model", "no-such"), "--price: is missing"),
        (("x", "--provider", "anthropic", "--price", "no-such"), "no price is known for 'no-such'"),
        (("x", "--like", "gpt-5.5", "--cache", "deep"), "unknown cache policy 'deep'"),
        (("x", "--like", "gpt-5.5", "--actions", "shout"), "actions"),
        (("x", "--like", "gpt-5.5", "--provider", "anthropic"), "leave --like or this out"),
        (("x", "--like", "gtp-5.5"), "unknown model 'gtp-5.5': did you mean"),
        (("a b", "--like", "gpt-5.5"), "name"),
    ],
)
def test_what_is_missing_or_wrong_is_one_line_and_nothing_is_written(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], words: str
) -> None:
    code, _, err = run(capsys, *arguments, "--no-check")
    assert code == 2
    assert words in err
    assert len(err.splitlines()) == 1
    assert list(Path().iterdir()) == []


def test_a_terminal_is_asked_with_defaults_and_asked_again_for_what_cannot_be(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = (
        "coder",
        "mine",
        "coder-7b",
        "",
        "http://127.0.0.1:9/v1",
        "",
        "",
        "",
        "shout",
        "fenced",
        "many",
        "100",
        "",
    )
    monkeypatch.setattr("sys.stdin", _Typed(*answers))
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    code, _, err = run(capsys, "--no-check")
    assert code == 0
    assert written() == {
        "coder": {
            "provider": "mine",
            "model": "coder-7b",
            "protocol": "openai_chat",
            "base_url": "http://127.0.0.1:9/v1",
            "self_hosted": True,
            "cache": "prefix-16",
            "actions": "fenced",
            "limits": {"max_output_tokens": 100, "context_tokens": 32768},
        }
    }
    assert "one of tools, json_schema, fenced" in err
    assert "a whole number of tokens" in err
    assert "API [openai_chat]: " in err


def test_a_terminal_that_closes_leaves_nothing_behind(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", _Typed("coder", "mine"))
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    code, _, err = run(capsys)
    assert code == 2
    assert "no answer: nothing was written" in err
    assert list(Path().iterdir()) == []
