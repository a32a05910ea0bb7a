from pathlib import Path

import pytest

from agents.errors import RegistryError
from agents.registry import PLACEHOLDER_KEY, find_model, key_of, load_models
from agents.wire_text import one_line, wire_text

FINE = """
models:
  mine:
    provider: example
    protocol: openai_chat
    model: m-1
    base_url: https://api.example.com/v1/
    key_variable: EXAMPLE_KEY
    price: gpt-6.1-sol
    cache: none
    limits: {max_output_tokens: 1000, context_tokens: 8000}
"""


def load(tmp_path: Path, text: str) -> None:
    (tmp_path / "models.yaml").write_text(text)
    load_models([tmp_path / "models.yaml"])


def test_the_shipped_models_are_there_and_say_whether_they_are_simulated() -> None:
    models = load_models()
    assert {name for name, model in models.items() if model.simulated} == {
        "sim-claude-opus-5-5",
        "sim-deepseek-v4-flash",
    }
    assert models["local"].self_hosted
    assert models["gpt-6.1-sol"].output_limit_parameter == "max_completion_tokens"
    assert models["deepseek-v4-flash"].output_limit_parameter == "max_tokens"
    assert all(model.model == name for name, model in models.items())


def test_a_file_of_the_user_adds_models_and_replaces_shipped_ones(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(FINE)
    (tmp_path / "b.yaml").write_text(FINE.replace("mine:", "local:"))
    models = load_models([tmp_path / "a.yaml", tmp_path / "b.yaml"])
    assert models["mine"].base_url == "https://api.example.com/v1"
    assert not models["local"].self_hosted
    assert len(models) == len(load_models()) + 1


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (("price:", "prize:"), "models.mine.prize: unknown field, did you mean price?"),
        (("    price: gpt-6.1-sol\n", ""), "models.mine: give either `price`"),
        (("price: gpt-6.1-sol", "price: x\n    self_hosted: true"), "models.mine: give either `price`"),
        (
            ("openai_chat", "openai_responses"),
            "models.mine.protocol: Input should be 'anthropic_messages' or 'openai_chat'",
        ),
        (("https://api", "api"), "models.mine.base_url: expected an http(s) address"),
        (("cache: none", "cache: nome"), "models.mine.cache: unknown cache policy 'nome'; there are anthropic-1024"),
        (("max_output_tokens: 1000", "max_output_tokens: -1"), "models.mine.limits.max_output_tokens: "),
        (("    model: m-1\n", ""), "models.mine.model: Field required"),
        (("  mine:", "  mine: 3\n  other:"), "models.mine: expected fields"),
        (("models:", "model:"), "expected one key `models:`"),
        (("provider:", "provider: ["), "line 5: no valid YAML"),
        (("    cache: none", "    cache: none\n    cache: none"), "'cache' stands twice"),
        (
            ("    cache: none", "    ? [a]\n    : b\n    cache: none"),
            "line 10: no valid YAML: a key must be",
        ),
        (("max_output_tokens: 1000", "max_output_tokens: 2026-13-01"), "models.mine.limits.max_output_tokens: Input"),
        (("cache: none", "cache: 2026-13-01"), "models.mine.cache: unknown cache policy '2026-13-01'; there are"),
        (("cache: none", f"cache: {'[' * 1500}{']' * 1500}"), "nested too deep; give each model its fields"),
    ],
)
def test_a_mistake_is_told_in_one_line_with_file_and_field(tmp_path: Path, change: tuple[str, str], told: str) -> None:
    assert change[0] in FINE
    with pytest.raises(RegistryError) as caught:
        load(tmp_path, FINE.replace(*change))
    message = str(caught.value)
    assert told in message
    assert message.startswith(str(tmp_path / "models.yaml"))
    assert "\n" not in message


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(RegistryError, match=r"gone\.yaml: cannot be read: No such file"):
        load_models([tmp_path / "gone.yaml"])


def test_an_unknown_model_is_answered_with_near_names() -> None:
    with pytest.raises(RegistryError, match="did you mean claude-opus-5-5"):
        find_model(load_models(), "claude-opus-5.5")


def test_a_missing_key_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    models = load_models()
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    with pytest.raises(RegistryError, match="set the environment variable ANTHROPIC_API_KEY"):
        key_of(models["claude-opus-5-5"])
    monkeypatch.setenv("ANTHROPIC_API_KEY", " k1 ")
    assert key_of(models["claude-opus-5-5"]) == "k1"
    assert key_of(models["local"]) == key_of(models["sim-claude-opus-5-5"]) == PLACEHOLDER_KEY


def test_one_line_is_one_bounded_line_without_keys() -> None:
    told = one_line("no\n\n  such key: abc123 or sk-ant-REDACTED " + "x" * 999, ["abc123", ""])
    assert told.startswith("no such key: [key] or [key] xxx")
    assert len(told) == 300


def test_wire_text_can_always_be_encoded() -> None:
    assert wire_text("a\0b\ud83d\ude00\udc00é").encode().decode() == "a\ufffdb😀\ufffdé"
