"""fullchain.py: its names are a promise."""

import inspect
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest

import fullchain
from cost_model.errors import PriceMissing, UsageError
from experiments.errors import StoreMissing
from tests.sandbox_tasks import needs_isolation

AT = datetime(2026, 11, 24, 12, tzinfo=UTC)


def test_the_public_names_and_their_arguments_are_pinned() -> None:
    assert fullchain.__all__ == ["compare", "open_database", "price", "query", "run"]
    assert {name: list(inspect.signature(getattr(fullchain, name)).parameters) for name in fullchain.__all__} == {
        "compare": ["experiment", "db"],
        "open_database": ["db"],
        "price": ["flavour", "usage", "model", "at", "prices"],
        "query": ["sql", "db"],
        "run": [
            "spec", "db", "name", "concurrency", "simulator_url", "budget_usd", "no_budget", "pilot", "yes",
        ],
    }  # fmt: skip
    assert all(inspect.getdoc(getattr(fullchain, name)) for name in fullchain.__all__)


def test_a_usage_is_priced_exactly_by_class(tmp_path: Path) -> None:
    own = tmp_path / "prices.toml"
    own.write_text(
        '[[price]]\nmodel = "mine"\nsource = "a letter"\n'
        "usd_per_mtok = {input = 4, cache_read = 0.4, cache_write_5m = 5, cache_write_1h = 8, output = 20}\n"
    )
    usage = {
        "input_tokens": 3,
        "cache_read_input_tokens": 1000,
        "cache_creation_input_tokens": 500,
        "cache_creation": {"ephemeral_5m_input_tokens": 500, "ephemeral_1h_input_tokens": 0},
        "output_tokens": 7,
    }
    usd = fullchain.price("anthropic_messages", usage, "mine", AT, prices=[own])
    assert usd == Decimal("0.003052")


@pytest.mark.parametrize(
    ("told", "usd"),
    [
        ({}, "0.006"),
        ({"service_tier": "standard"}, "0.006"),
        ({"service_tier": "batch"}, "0.003"),
        ({"speed": "fast"}, "0.012"),
        ({"inference_geo": "us"}, "0.0066"),
        ({"service_tier": "batch", "inference_geo": "us"}, "0.0033"),
        ({"service_tier": "batch", "server_tool_use": {"web_search_requests": 2}}, "0.023"),
    ],
)
def test_what_a_usage_says_of_its_price_multiplies_as_everywhere_else(told: dict[str, object], usd: str) -> None:
    usage = {"input_tokens": 1000, "output_tokens": 100, **told}
    assert fullchain.price("anthropic_messages", usage, "claude-opus-5-5", AT) == Decimal(usd)


def test_a_tier_that_no_price_is_known_of_is_refused_in_words() -> None:
    usage = {"input_tokens": 3, "output_tokens": 7, "service_tier": "gold"}
    with pytest.raises(PriceMissing, match="service_tier is 'gold', and no price of claude-opus-5-5 is known for it"):
        fullchain.price("anthropic_messages", usage, "claude-opus-5-5", AT)


def test_dollars_that_are_not_known_are_never_nothing() -> None:
    usage = {"prompt_tokens": 3, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": None}}
    with pytest.raises(UsageError, match="cache_read is null") as refusal:
        fullchain.price("openai_chat", usage, "deepseek-v4-flash", AT)
    assert refusal.value.raw == usage


def test_a_write_of_untold_lifetime_is_priced_as_the_default_one() -> None:
    usage = {"input_tokens": 0, "cache_creation_input_tokens": 1000, "output_tokens": 0}
    split = {"ephemeral_5m_input_tokens": 1000, "ephemeral_1h_input_tokens": 0}
    untold, told = (
        fullchain.price("anthropic_messages", {**usage, **more}, "claude-opus-5-5", AT)
        for more in ({}, {"cache_creation": split})
    )
    assert untold == told == Decimal("0.005")


@needs_isolation
def test_a_run_can_be_asked_from_python(tmp_path: Path) -> None:
    spec, db = tmp_path / "spec.yaml", tmp_path / "x.duckdb"
    spec.write_text(
        "name: front\ntasks: [bundled/archive-intake]\narms:\n"
        "  - {name: alone, topology: solo, roles: {solo: sim-deepseek-v4-flash}}\n"
    )
    report = fullchain.run(spec, db=db, name="other")
    assert (report.experiment, report.planned, report.left) == ("other", 1, 0)
    (line,) = fullchain.compare("other", db=db)
    assert (line["arm"], line["trials"], line["simulated"]) == ("alone", 1, True)
    (total,) = fullchain.query("SELECT sum(cost_usd) AS usd FROM calls", db=db)
    assert total["usd"] == line["total_usd"] > 0
    with fullchain.open_database(db) as reader:
        assert reader.query("SELECT count(*) FROM trials").rows == [(1,)]


def test_a_database_that_is_not_there_is_never_created(tmp_path: Path) -> None:
    with pytest.raises(StoreMissing), fullchain.open_database(tmp_path / "none.duckdb"):
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("field", ["input_tokens", "service_tier"])
def test_a_number_of_thousands_of_digits_is_no_usage(field: str) -> None:
    usage = {"input_tokens": 10, "output_tokens": 1, field: 10**5000}
    with pytest.raises(UsageError, match="a number of thousands of digits"):
        fullchain.price("anthropic_messages", usage, "claude-opus-5-5", AT)
