"""Where a key comes from, what cannot be one, and that no text shows it."""

import json
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.errors import RegistryError
from agents.registry import PLACEHOLDER_KEY, find_model, key_of, load_models
from agents.wire_text import hidden, one_line, wire_text


def test_a_missing_key_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    models = load_models()
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    with pytest.raises(RegistryError, match="set the environment variable ANTHROPIC_API_KEY"):
        key_of(models["claude-opus-5-5"])
    monkeypatch.setenv("ANTHROPIC_API_KEY", " k1 ")
    assert key_of(models["claude-opus-5-5"]) == "k1"
    assert key_of(models["local"]) == key_of(models["sim-claude-opus-5-5"]) == PLACEHOLDER_KEY


@pytest.mark.parametrize(
    "key",
    [
        "AIzaSECRETabc\ndef01234567",
        "SECRETabc\rdef",
        "SECRET abc",
        "\u201cSECRET\u201d",
        "SECRET\udcff",
        "SECRET\x7f",
        "SECRET\t1",
    ],
)
def test_what_cannot_be_a_key_is_refused_with_its_variable_and_without_the_key(
    key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", key)
    with pytest.raises(RegistryError, match="what is in ANTHROPIC_API_KEY is no key") as refused:
        key_of(find_model(load_models(), "claude-opus-5-5"))
    assert "SECRET" not in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_line_break_at_the_end_of_a_key_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "\r\n sk-ant-!~\r\n")
    assert key_of(find_model(load_models(), "claude-opus-5-5")) == "sk-ant-!~"


@given(st.text(min_size=6, max_size=40))
def test_a_secret_is_hidden_however_it_is_written(secret: str) -> None:
    secret = f"A{wire_text(secret)}Z"
    spellings = (secret, repr(secret)[1:-1], f"{secret.encode()!r}"[2:-1], json.dumps(secret)[1:-1], quote(secret))
    for spelling in (*spellings, quote(secret, safe="")):
        assert hidden(f"before {spelling} after", [secret]) == "before [key] after"


def test_a_word_too_short_to_be_a_secret_stays_as_it_is() -> None:
    assert one_line("none of the models", [PLACEHOLDER_KEY, ""]) == "none of the models"


def test_a_secret_beyond_what_one_line_reads_is_not_cut_in_two() -> None:
    assert one_line(" " * 5_995 + "abcdefgh", ["abcdefgh"]).startswith("[key"[:4])


def test_one_line_is_one_bounded_line_without_keys() -> None:
    told = one_line("no\n\n  such key: abc123 or sk-ant-REDACTED " + "x" * 999, ["abc123", ""])
    assert told.startswith("no such key: [key] or [key] xxx")
    assert len(told) == 300


def test_wire_text_can_always_be_encoded() -> None:
    assert wire_text("a\0b\ud83d\ude00\udc00é").encode().decode() == "a\ufffdb😀\ufffdé"
