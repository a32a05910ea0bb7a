"""fullchain models: every entry at a glance, and one in full."""

from pathlib import Path

import pytest

from agents.registry import load_models
from experiments.cli import main

HOUSE = """
models:
  house-gpt: {like: gpt-5.5, base_url: https://llm.example.com/v1, key_variable: HOUSE_KEY, price: house-gpt}
  house-json: {like: local, actions: json_schema, headers: {X-Team: chain}, extra_body: {seed: 7}}
"""
PRICES = """
[[price]]
model = "house-gpt"
source = "our contract"
usd_per_mtok = { input = 3.5, cache_read = 0.35, output = 21 }
tiers = [{ above = 100000, usd_per_mtok = { input = 7 } }]
"""


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    with pytest.raises(SystemExit) as end:
        main(["models", *arguments])
    assert end.value.code == 0
    return capsys.readouterr().out.splitlines()


@pytest.fixture
def house(tmp_path: Path) -> tuple[str, ...]:
    (tmp_path / "house.yaml").write_text(HOUSE)
    (tmp_path / "house.toml").write_text(PRICES)
    return "--models", str(tmp_path / "house.yaml"), "--prices", str(tmp_path / "house.toml")


def test_the_list_has_every_model_once_and_fits_120_columns(capsys: pytest.CaptureFixture[str]) -> None:
    lines = said(capsys, "list")
    names = [line.split()[0] for line in lines[2:-1]]
    assert names == list(load_models())
    assert max(map(len, lines)) <= 120
    told = [" ".join(line.split()) for line in lines]
    assert "claude-haiku-5-5 messages 1M anthropic-512 low..max 0.1 / 0.01 / 0.5 ANTHROPIC_API_KEY" in told


def test_the_list_shows_a_users_models_and_whether_a_price_is_known(
    capsys: pytest.CaptureFixture[str], house: tuple[str, ...]
) -> None:
    priced = [" ".join(line.split()) for line in said(capsys, "list", *house)]
    assert "house-gpt responses 1M openai-24h none..xhigh 3.5 / 0.35 / 21 HOUSE_KEY" in priced
    assert "house-json chat json 32k prefix-16 self-hosted, $0 none" in priced
    unpriced = [" ".join(line.split()) for line in said(capsys, "list", *house[:2])]
    assert "house-gpt responses 1M openai-24h none..xhigh none known HOUSE_KEY" in unpriced


def test_one_model_is_shown_with_all_that_it_inherits_and_its_prices(
    capsys: pytest.CaptureFixture[str], house: tuple[str, ...]
) -> None:
    shown = dict(line.strip().split("  ", 1) for line in said(capsys, "show", "house-gpt", *house))
    facts = {heading: text.strip() for heading, text in shown.items()}
    assert facts["API"] == "openai_responses at https://llm.example.com/v1"
    assert facts["asked for as"] == "gpt-5.5"
    assert facts["key"] == "in HOUSE_KEY"
    assert facts["temperature"] == "is not taken"
    assert facts["lifetimes"] == "24h"
    assert facts["asked for by"] == "retention and a cache key"
    assert facts["input"] == "3.5, 7 above 100,000 prompt tokens"
    assert facts["cache_read"] == "0.35"
    assert "NOT PRICED" not in facts


def test_a_model_without_a_price_is_shown_and_says_so(
    capsys: pytest.CaptureFixture[str], house: tuple[str, ...]
) -> None:
    lines = said(capsys, "show", "house-gpt", *house[:2])
    assert lines[-1].startswith("NOT PRICED")
    assert "house-gpt" in lines[-1]


def test_what_is_laid_over_requests_is_shown(capsys: pytest.CaptureFixture[str], house: tuple[str, ...]) -> None:
    lines = said(capsys, "show", "house-json", *house)
    told = [" ".join(line.split()) for line in lines]
    assert 'extra body {"seed": 7}' in told
    assert "headers X-Team" in told
    assert not any("chain" in line for line in told)
    assert "prices self-hosted: tokens cost nothing" in told


def test_a_price_card_that_lacks_what_the_cache_bills_is_told(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "m.yaml").write_text("models: {mine: {like: claude-opus-5-5, price: openai:gpt-5.5}}")
    lines = said(capsys, "show", "mine", "--models", str(tmp_path / "m.yaml"))
    assert lines[-1].split(maxsplit=2)[2].startswith("cache_write_5m, cache_write_1h: add a price file")


def test_an_unknown_model_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["models", "show", "claude-opus-5.5"])
    assert end.value.code == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "did you mean claude-opus-5-5" in error
