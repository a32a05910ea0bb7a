"""`fullchain whatif` and `fullchain breakeven`: what they print, and what they refuse in one line."""

import asyncio
from pathlib import Path

import pytest

from experiments.cli import main
from experiments.store.journal import journal_folder
from experiments.store.reader import query
from experiments.store.store import Store
from tests import store_trials
from tests.store_trials import EPOCH, MODELS, small_plan, usage_of_turn, written

PLAN = small_plan(repeats=1, tasks=("alpha",))
SOLO, CHAIN = (trial.id for arm in ("solo", "chain") for trial in PLAN.trials if trial.arm == arm)


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two arms of one trial, with the role solo only: `solo` waits 400 s before each of its turns, `chain` 20 s."""
    store = Store(tmp_path_factory.mktemp("whatif") / "test.duckdb")
    store.register(PLAN, MODELS)
    for trial, idle_s in ((SOLO, 400.0), (CHAIN, 20.0)):
        segment = journal_folder(store.path) / f"{trial}.jsonl"
        asyncio.run(written(segment, [(trial, 1, "submitted")], idle_s=idle_s))
    store.recover()
    return store.path


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as end:
        main([*arguments])
    found = capsys.readouterr()
    assert end.value.code == 0, found.err
    return found.out


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as end:
        main([*arguments])
    found = capsys.readouterr()
    assert end.value.code == 2
    assert found.out == ""
    assert found.err.count("\n") == 1
    return found.err


def row(text: str, *begins: str) -> list[str]:
    (line,) = [line for line in text.splitlines() if line.split()[: len(begins)] == list(begins)]
    return line.split()[len(begins) :]


def test_a_lifetime_is_replayed_by_role_and_class_beside_what_was_measured(
    capsys: pytest.CaptureFixture[str], database: Path
) -> None:
    text = said(capsys, "whatif", "demo", "--role", "solo", "--ttl", "1h", "--arms", "solo", "--db", str(database))
    assert "[simulated: measured on simulated models" in text.splitlines()[0]
    assert text.splitlines()[1] == "what if: solo asks for a lifetime of 1h"
    assert "arm solo [simulated]" in text
    assert row(text, "solo", "cache_write_5m") == ["0.0675", "0.0000", "-0.0675", "(-100.0%)"]
    assert row(text, "solo", "cache_write_1h") == ["0.0000", "0.0400", "+0.0400"]
    assert row(text, "solo", "cache_read") == ["0.0000", "0.0017", "+0.0017"]
    assert row(text, "solo", "output") == ["0.0060", "0.0060", "-"]
    assert row(text, "all") == ["0.0735", "0.0477", "-0.0258", "(-35.1%)"]
    assert "all 3 calls read what the policy of their cache lets them read" in text
    assert "taken as measured: how the lanes grow" in text


def test_pings_are_counted_and_every_arm_is_replayed(capsys: pytest.CaptureFixture[str], database: Path) -> None:
    text = said(capsys, "whatif", "demo", "--role", "solo", "--keep-alive", "280", "--db", str(database))
    solo, chain = text.split("arm chain")
    assert "2 pings were added" in solo
    assert "pings were added" not in chain
    # 5,000 tokens written once, 4,000 and 4,500 read by a ping and by a call each.
    assert row(solo, "all")[1] == "0.0344"
    assert row(chain, "all")[2] == "-"


def test_the_best_of_each_role_is_named(capsys: pytest.CaptureFixture[str], database: Path) -> None:
    text = said(capsys, "whatif", "demo", "--best", "--db", str(database))
    assert "solo: cheapest for solo: lifetime 5m and a ping every 280 s, at most 1 a wait" in text
    assert "chain: cheapest for solo: as it was" in text
    assert "arm solo [simulated]: measured $0.0735" in text


def test_other_prices_reprice_the_stored_calls(
    capsys: pytest.CaptureFixture[str], database: Path, tmp_path: Path
) -> None:
    prices = tmp_path / "prices.toml"
    prices.write_text(
        '[[price]]\nmodel = "claude-opus-5-5"\nsource = "ours"\n'
        "usd_per_mtok = { input = 8, cache_read = 0.4, cache_write_5m = 10, output = 40 }\n"
    )
    text = said(capsys, "whatif", "demo", "--prices", str(prices), "--arms", "solo", "--db", str(database))
    assert row(text, "all")[:2] == ["0.0735", "0.1470"]
    cheap = ("--role", "solo", "--model", "deepseek-v4-flash", "--at", "2026-11-24T12:00:00Z")
    text = said(capsys, "whatif", "demo", *cheap, "--arms", "solo", "--db", str(database))
    assert float(row(text, "all")[1]) < 0.01
    assert "only its prices and cache are exchanged" in text


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ([], "say what is different"),
        (["--best", "--role", "solo"], "say what is different"),
        (["--ttl", "1h"], "name it with --role"),
        (["--role", "solo"], "nothing is changed about 'solo'"),
        (["--role", "solo", "--keep-alive", "nan"], "--keep-alive nan"),
        (["--role", "solo", "--keep-alive", "inf"], "--keep-alive"),
        (["--role", "solo", "--at", "2026-01-01"], "nothing is changed about 'solo'"),
        (["--role", "solo", "--ttl", "2h"], "knows no lifetime '2h'; it knows 5m, 1h, none"),
        (["--role", "worker", "--ttl", "1h"], "has no role 'worker'"),
        (["--role", "solo", "--keep-alive", "400"], "come too late"),
        (["--role", "solo", "--ttl", "1h", "--pings", "2"], "--keep-alive SECONDS"),
        (["--role", "solo", "--faster", "0"], "a number above 0"),
        (["--role", "solo", "--faster", "1/0"], "a number above 0"),
        (["--role", "solo", "--truncate", "10"], "expected both ABOVE and KEEP"),
        (["--role", "solo", "--truncate", "10:20"], "keep <= above"),
        (["--role", "solo", "--truncate", "a:b"], "in tokens, such as"),
        (["--at", "yesterday"], "--at yesterday: expected a date"),
        (["--role", "solo", "--model", "no-such-model"], "no-such-model"),
        (["--prices", "nowhere.toml"], "nowhere.toml: cannot be read"),
        (["--fewer-handovers", "1", "--arms", "none"], "has no arm 'none'"),
    ],
)
def test_what_cannot_be_asked_is_refused_in_one_line(
    capsys: pytest.CaptureFixture[str], database: Path, options: list[str], complaint: str
) -> None:
    assert complaint in refused(capsys, "whatif", "demo", *options, "--db", str(database))


def test_an_unknown_experiment_is_named_with_the_known_ones(capsys: pytest.CaptureFixture[str], database: Path) -> None:
    assert "known: demo" in refused(capsys, "whatif", "other", "--best", "--db", str(database))


def test_break_even_prints_the_closed_forms_of_each_model(capsys: pytest.CaptureFixture[str]) -> None:
    text = said(capsys, "breakeven", "claude-opus-5-5", "deepseek-v4-flash", "--at", "2026-11-24T12:00:00Z")
    assert "computed from prices of 2026-11-24" in text
    assert row(text, "claude-opus-5-5", "5m") == ["0.4800", "17,778", "0.0200", "24", "117", "1h:", "38.5%"]
    assert row(text, "deepseek-v4-flash", "4h")[:2] == ["0.0147", "18,847"]
    small = said(capsys, "breakeven", "claude-opus-5-5", "--context", "50000", "--at", "2026-11-24")
    assert row(small, "claude-opus-5-5", "5m")[0] == "0.2400"


def test_break_even_of_an_unknown_model_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert "no-such-model" in refused(capsys, "breakeven", "no-such-model")


def test_other_prices_keep_a_calls_tier_and_price_what_is_beside_its_tokens(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def batched(turn: int, *, expired: bool = False) -> dict[str, object]:
        beside = {"service_tier": "batch", "server_tool_use": {"web_search_requests": 2}}
        return {**usage_of_turn(turn, expired=expired), **beside}

    monkeypatch.setattr(store_trials, "usage_of_turn", batched)
    store = Store(tmp_path / "test.duckdb")
    store.register(PLAN, MODELS)
    asyncio.run(written(journal_folder(store.path) / "run.jsonl", [(SOLO, 1, "submitted")]))
    store.recover()
    ((measured, searches),) = query(
        store.path,
        "SELECT sum(cost_usd), (SELECT sum(usd_low) FROM charges WHERE token_class = 'web_search') FROM calls",
    ).rows
    assert measured > searches > 0
    asked = ("whatif", "demo", "--arms", "solo", "--db", str(store.path), "--at", EPOCH.isoformat())
    assert row(said(capsys, *asked), "all")[:3] == [f"{measured:.4f}", f"{measured:.4f}", "-"]
    double = tmp_path / "double.toml"
    double.write_text(
        '[[price]]\nmodel = "claude-opus-5-5"\nsource = "ours"\n'
        "usd_per_mtok = { input = 8, cache_read = 0.4, cache_write_5m = 10, output = 40 }\n"
        "web_search_per_1k = 10\n"
    )
    told = row(said(capsys, *asked, "--prices", str(double)), "all")
    assert float(told[1]) == pytest.approx(float(2 * (measured - searches) + searches), abs=1e-4)
