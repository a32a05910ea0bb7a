"""Forty-three usage objects of all APIs come to the tokens and the dollars of their bills, to the last digit."""

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cost_model.tokens import CLASSES
from experiments.cli import app
from tests.usage_vectors import VECTORS, document_text, expected_tokens, models, price_file, wrong_answers

OFF_LIST = {
    "ant-07-compat-start-inclusive",  # a model that no list holds
}


def answered(vector: dict[str, Any], *options: str) -> dict[str, Any]:
    """What `fullchain usage` prints for the vector's document."""
    context = vector.get("context", {})
    arguments = ["usage", "-", "--model", models(vector)[0], *options]
    if "cache_held_hours" in context:
        arguments += ["--cache-hours", str(context["cache_held_hours"])]
    arguments += ["--at", context.get("request_ts", "2026-11-24T12:00:00Z")]
    ran = CliRunner().invoke(app, arguments, input=document_text(vector), catch_exceptions=False)
    assert ran.exit_code == 0, ran.output
    told: dict[str, Any] = json.loads(ran.stdout)
    return told


def check(vector: dict[str, Any], told: dict[str, Any]) -> None:
    if vector["expected_cost_usd"] is None:
        assert told["cost_usd"] is None
        assert set(told["tokens"].values()) == {None}
        assert any("not known" in warning for warning in told["warnings"])
        return
    tokens = {name: count for name, count in told["tokens"].items() if count}
    assert tokens == {name: count for name, count in expected_tokens(vector).items() if count}
    usd = Decimal(told["cost_usd"])
    assert usd == Decimal(vector["expected_cost_usd"])
    assert usd not in wrong_answers(vector)
    if told["list_usd"] is not None:
        assert sum(Decimal(line["usd"]) for line in told["lines"]) == Decimal(told["list_usd"])
        assert sum(Decimal(each) for each in told["cost"].values()) == Decimal(told["list_usd"])


def test_there_are_forty_three_vectors() -> None:
    assert len({vector["id"] for vector in VECTORS}) == len(VECTORS) == 43


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["id"])
def test_a_usage_comes_to_the_tokens_and_dollars_of_its_bill(vector: dict[str, Any], tmp_path: Path) -> None:
    check(vector, answered(vector, "--prices", str(price_file(vector, tmp_path / "prices.toml"))))


@pytest.mark.parametrize("vector", [v for v in VECTORS if v["id"] not in OFF_LIST], ids=lambda vector: vector["id"])
def test_the_price_book_alone_comes_to_the_same_dollars(vector: dict[str, Any]) -> None:
    check(vector, answered(vector))


def test_an_advisor_is_billed_at_its_own_model_s_price(tmp_path: Path) -> None:
    vector = next(v for v in VECTORS if v["id"] == "ant-10-advisor")
    lines = answered(vector, "--prices", str(price_file(vector, tmp_path / "prices.toml")))["lines"]
    advisor = {line["class"]: line["quantity"] for line in lines if line["model"] == models(vector)[1]}
    assert advisor == {"input": 823, "output": 531}
    assert all(name in CLASSES for name in advisor)


def test_storage_is_billed_by_tokens_and_hours() -> None:
    vector = next(v for v in VECTORS if v["id"] == "gem-06-explicit-storage")
    storage = next(line for line in answered(vector)["lines"] if line["class"] == "storage")
    assert (storage["quantity"], storage["unit"], Decimal(storage["usd"])) == (200_000, "token-hour", Decimal("0.1"))
