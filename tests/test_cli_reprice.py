"""`fullchain reprice`: what it prints, that it changes nothing, and what it refuses in one line."""

import asyncio
import hashlib
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from experiments.repricing.prices import NewPrices
from experiments.repricing.repricing import reprice
from experiments.store.journal import Journal, journal_folder
from experiments.store.reader import Reader
from experiments.store.store import Store
from experiments.store.trial import TrialJournal
from tests.experiment_files import TABLES
from tests.store_trials import EPOCH, MODELS, ended, play, sent, small_plan, usage_of_turn, written
from tests.test_cli_whatif import refused, row, said

PLAN = small_plan(repeats=1, tasks=("alpha",))
SOLO, CHAIN = (trial.id for arm in ("solo", "chain") for trial in PLAN.trials if trial.arm == arm)
DOUBLE = """
[[price]]
model = "claude-opus-5-5"
source = "ours"
usd_per_mtok = { input = 8, cache_read = 0.4, cache_write_5m = 10, cache_write_1h = 16, output = 40 }
"""


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two arms of one trial: `solo` waits 400 s before each turn and writes its prompt again, `chain` 20 s."""
    store = Store(tmp_path_factory.mktemp("reprice") / "test.duckdb")
    store.register(PLAN, MODELS)
    for trial, idle_s in ((SOLO, 400.0), (CHAIN, 20.0)):
        asyncio.run(written(journal_folder(store.path) / f"{trial}.jsonl", [(trial, 1, "submitted")], idle_s=idle_s))
    store.recover()
    return store.path


@pytest.fixture
def double(tmp_path: Path) -> str:
    path = tmp_path / "double.toml"
    path.write_text(DOUBLE)
    return str(path)


def contents(database: Path) -> str:
    """A digest of every row of every table."""
    digest = hashlib.sha256()
    with Reader(database) as reader:
        for table in TABLES:
            digest.update(repr(sorted(map(repr, reader.query(f"SELECT * FROM {table}").rows))).encode())  # noqa: S608
    return digest.hexdigest()


def test_dollars_at_other_prices_stand_beside_the_measured_ones(
    capsys: pytest.CaptureFixture[str], database: Path, double: str
) -> None:
    before, content = database.read_bytes(), contents(database)
    text = said(capsys, "reprice", "demo", "--prices", double, "--db", str(database))
    assert "[simulated: measured on simulated models" in text.splitlines()[0]
    assert text.splitlines()[1] == f"prices of {double}"
    solo, chain = text.split("arm chain")
    assert row(solo, "solo", "dear") == ["0.0735", "0.1470", "+0.0735", "2.0000"]
    assert row(chain, "all", "arms:")[1:4] == ["$0.1062,", "repriced", "$0.2124,"]
    assert (database.read_bytes(), contents(database)) == (before, content)


def test_causes_follow_the_new_prices_and_so_does_what_rebuilds_cost_over_reads(
    capsys: pytest.CaptureFixture[str], database: Path, double: str
) -> None:
    asked = ("reprice", "demo", "--prices", double, "--by", "cause", "--arms", "solo", "--db", str(database))
    text = said(capsys, *asked)
    # 4,000 and 4,500 tokens rebuilt: written at $10 instead of read at $0.4 a million.
    assert row(text, "solo", "dear", "expiry_rebuild") == ["0.0425", "0.0850", "+0.0425", "2.0000", "0.0408", "0.0816"]
    found = json.loads(said(capsys, *asked, "--json"))
    rebuilt = next(line for line in found["rows"] if line["cause"] == "expiry_rebuild")
    assert Decimal(rebuilt["repriced_excess_usd"]) == Decimal("0.0816")
    assert Decimal(found["all"]["repriced_usd_low"]) == sum(Decimal(line["repriced_usd_low"]) for line in found["rows"])


def test_classes_and_tasks_split_the_same_dollars(
    capsys: pytest.CaptureFixture[str], database: Path, double: str
) -> None:
    for by, parts in (("class", {"cache_write_5m", "output"}), ("task", {"alpha"})):
        found = json.loads(
            said(
                capsys,
                "reprice",
                "demo",
                "--prices",
                double,
                "--by",
                by,
                "--arms",
                "solo",
                "--json",
                "--db",
                str(database),
            )
        )
        assert {line[by] for line in found["rows"]} == parts
        for side in ("measured_usd_low", "repriced_usd_high"):
            assert Decimal(found["all"][side]) == sum(Decimal(line[side]) for line in found["rows"])
        assert found["all"]["ratio"] == "2.000000"


def test_other_processes_price_the_same(database: Path, double: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("experiments.repricing.repricing.SPREAD_CALLS", 1)
    monkeypatch.setattr("experiments.repricing.repricing.BATCH_CALLS", 3)
    prices = NewPrices((Path(double),))
    with Reader(database) as reader:
        spread = reprice(reader, "demo", prices, causes=True, processes=2)
        alone = reprice(reader, "demo", prices, causes=True, processes=1)
    assert spread == alone


async def test_calls_that_only_a_journal_holds_are_priced_too(tmp_path: Path, double: str) -> None:
    store = Store(tmp_path / "live.duckdb")
    store.register(PLAN, MODELS)
    async with Journal(journal_folder(store.path) / "run.jsonl") as journal:
        await play(TrialJournal(journal, SOLO, 1), ended_by=None)
        with Reader(store.path) as reader:
            found = reprice(reader, "demo", NewPrices((Path(double),)))
    (measured,), (repriced,) = found.measured.cost.values(), found.repriced.cost.values()
    assert repriced.low == 2 * measured.low > 0
    assert [(each.calls, each.in_flight) for each in found.repriced.counts.values()] == [(2, 1)]


async def one_call(database: Path, usage: dict[str, Any] | None, outcome: str = "complete") -> None:
    store = Store(database)
    store.register(PLAN, MODELS)
    async with Journal(journal_folder(store.path) / "run.jsonl") as journal:
        book = TrialJournal(journal, SOLO, 1)
        await book.attempt_started(started_at=EPOCH, wall_started_at=EPOCH, backend="bubblewrap")
        book.message("solo", 0, 0, "system", "x", "head", 10)
        call = sent(book.trial_id, 1, 0, EPOCH, blocks=1)
        await book.sent(call)
        book.ended(ended(call, usage, outcome=outcome))
    store.recover()


async def test_unknown_usage_keeps_its_range_at_the_new_prices(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, double: str
) -> None:
    await one_call(tmp_path / "x.duckdb", None, "cut")
    text = said(capsys, "reprice", "demo", "--prices", double, "--db", str(tmp_path / "x.duckdb"))
    # 2,000 tokens read at $0.4 at the least; 8,001 written for an hour at $16, and 1,000 of output, at the most.
    assert "0.0008 to 0.1680" in text
    assert "of 1 calls 1 have no exact measured cost and 1 none at these prices" in text


async def test_a_bill_is_repriced_in_proportion_to_the_list(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, double: str
) -> None:
    await one_call(tmp_path / "x.duckdb", {**usage_of_turn(0), "cost": 0.125})
    database = ("--arms", "solo", "--db", str(tmp_path / "x.duckdb"))
    asked = ("reprice", "demo", "--prices", double, "--by", "class", *database)
    text = said(capsys, *asked)
    assert row(text, "solo", "dear", "cache_write_5m")[:2] == ["0.0200", "0.0400"]
    assert row(text, "all")[:2] == ["0.1250", "0.2500"]
    assert "1 calls have a provider's bill" in text
    same_as_whatif = said(capsys, "whatif", "demo", "--prices", double, *database)
    assert row(same_as_whatif, "all")[:2] == ["0.1250", "0.2500"]


async def test_a_tier_that_has_a_price_now_makes_an_unknown_call_known(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    await one_call(tmp_path / "x.duckdb", {**usage_of_turn(0), "service_tier": "exotic"})
    prices = tmp_path / "exotic.toml"
    prices.write_text('[[modifier]]\nmodels = ["claude-*"]\nservice_tier = "exotic"\nsource = "ours"\ntimes = 3\n')
    asked = ("reprice", "demo", "--by", "cause", "--db", str(tmp_path / "x.duckdb"))
    text = said(capsys, *asked, "--prices", str(prices))
    assert row(text, "solo", "dear", "first_write")[:2] == ["0.0000", "0.0600"]
    assert "1 attempts were explained anew" in text
    assert "1 have no exact measured cost and 1 none" in said(capsys, *asked, "--at", "2026-11-24")


async def test_it_works_where_the_blocks_of_prompts_are_gone(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, double: str
) -> None:
    import duckdb

    database = tmp_path / "x.duckdb"
    await one_call(database, {**usage_of_turn(0), "service_tier": "batch"})
    with duckdb.connect(str(database)) as connection:
        connection.execute("DELETE FROM messages")
    for by in ("class", "cause"):
        text = said(capsys, "reprice", "demo", "--prices", double, "--by", by, "--arms", "solo", "--db", str(database))
        assert row(text, "all")[:2] == ["0.0110", "0.0220"]


def test_charges_that_do_not_fit_the_usage_are_refused(
    capsys: pytest.CaptureFixture[str], database: Path, double: str, tmp_path: Path
) -> None:
    import duckdb

    copy = tmp_path / "copy.duckdb"
    copy.write_bytes(database.read_bytes())
    with duckdb.connect(str(copy)) as connection:
        connection.execute("UPDATE charges SET units = units + 1 WHERE token_class = 'output'")
    assert "do not add up to the usage" in refused(
        capsys, "reprice", "demo", "--prices", double, "--by", "cause", "--db", str(copy)
    )


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ([], "say which prices"),
        (["--at", "yesterday"], "--at yesterday: expected a date"),
        (["--at", "2026-11-24", "--by", "lane"], "--by lane: expected class, cause, task"),
        (["--at", "2026-11-24", "--arms", "none"], "has no arm 'none'; its arms: solo, chain"),
        (["--prices", "nowhere.toml"], "nowhere.toml: cannot be read"),
    ],
)
def test_what_cannot_be_asked_is_refused_in_one_line(
    capsys: pytest.CaptureFixture[str], database: Path, options: list[str], complaint: str
) -> None:
    assert complaint in refused(capsys, "reprice", "demo", *options, "--db", str(database))


@pytest.mark.parametrize(
    "content",
    [
        b"\x00\xff", b"{}", b"[[price]]",
        b"[[price]]\nmodel = 'x'\nsource = 'y'\nusd_per_mtok = { input = nan, output = 1 }",
        b"[[price]]\nmodel = 'x'\nsource = 'y'\nusd_per_mtok = { input = -1, output = 1 }",
        b"[[price]]\nmodel = 'x'\nsource = 'y'\nusd_per_mtok = { input = 1e400, output = 1 }",
    ],
)  # fmt: skip
def test_a_price_file_that_is_none_is_refused_by_name(
    capsys: pytest.CaptureFixture[str], database: Path, tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "bad.toml"
    path.write_bytes(content)
    assert "bad.toml" in refused(capsys, "reprice", "demo", "--prices", str(path), "--db", str(database))


async def test_a_model_without_any_price_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """No such price can be stored by a run; the book that is asked later may lack it."""
    import duckdb

    database = tmp_path / "x.duckdb"
    await one_call(database, usage_of_turn(0))
    with duckdb.connect(str(database)) as connection:
        connection.execute("UPDATE experiments SET models = replace(models::VARCHAR, 'claude-opus-5-5', 'gone-9')")
    told = refused(capsys, "reprice", "demo", "--at", "2026-11-24", "--db", str(database))
    assert "no price is known for model 'gone-9'" in told


def test_an_unknown_experiment_is_named_with_the_known_ones(capsys: pytest.CaptureFixture[str], database: Path) -> None:
    assert "known: demo" in refused(capsys, "reprice", "other", "--at", "2026-11-24", "--db", str(database))


def test_an_experiment_without_calls_says_so(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    Store(tmp_path / "x.duckdb").register(PLAN, MODELS)
    told = refused(capsys, "reprice", "demo", "--at", "2026-11-24", "--db", str(tmp_path / "x.duckdb"))
    assert "has no calls yet" in told
