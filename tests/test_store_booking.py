"""One call, one message, one command each: what of them is believed, and how it stands in the database."""

from decimal import Decimal
from pathlib import Path

import pytest

from experiments.store.journal import Journal, encode, journal_folder
from experiments.store.store import Store
from experiments.store.trial import TrialJournal
from tests.store_trials import EPOCH, MODELS, ask, ended, sent, small_plan, usage_of_turn

PLAN = small_plan()
TRIALS = [trial.id for trial in PLAN.trials]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    registered = Store(tmp_path / "test.duckdb")
    registered.register(PLAN, MODELS)
    return registered


async def _one_call(book: TrialJournal, usage: dict[str, object] | None, outcome: str) -> None:
    await book.attempt_started(started_at=EPOCH, wall_started_at=EPOCH, backend="bubblewrap")
    book.message("solo", 0, 0, "system", "x", "head", 10)
    call = sent(book.trial_id, 1, 0, EPOCH, blocks=1)
    await book.sent(call)
    book.ended(ended(call, usage, outcome=outcome))


@pytest.mark.parametrize(
    ("usage", "told"),
    [
        ({"input_tokens": 5, "output_tokens": -1}, "output_tokens"),
        ({"input_tokens": 10**12, "output_tokens": 1}, "from 0 to 1,000,000,000"),
        ({"input_tokens": 10, "output_tokens": 1, "cost": 10**9}, "a bill of"),
        ({"input_tokens": "many", "output_tokens": 1}, "input_tokens"),
        ({}, "tokens"),
    ],
)
async def test_usage_that_cannot_be_is_kept_raw_and_not_believed(
    usage: dict[str, object], told: str, store: Store
) -> None:
    async with Journal(journal_folder(store.path) / "run.jsonl") as journal:
        await _one_call(TrialJournal(journal, TRIALS[0], 1), usage, "complete")
    store.recover()
    error, cost, low, high = ask(store, "SELECT usage_error, cost_usd, cost_low_usd, cost_high_usd FROM calls").rows[0]
    assert told in error
    if "cost" not in usage:
        assert cost is None
        assert high > low >= 0
        assert ask(store, "SELECT input_tokens, output_tokens, basis FROM calls").rows == [(None, None, "estimated")]
    assert ask(store, "SELECT usage FROM calls").rows == [(encode(usage).decode().rstrip(),)]


async def test_missing_usage_is_null_and_never_zero(store: Store) -> None:
    async with Journal(journal_folder(store.path) / "run.jsonl") as journal:
        await _one_call(TrialJournal(journal, TRIALS[0], 1), None, "cut")
    store.recover()
    assert ask(
        store, "SELECT usage, prompt_tokens, input_tokens, output_tokens, cost_usd, usage_error FROM calls"
    ).rows == [(None,) * 6]


async def test_a_refused_call_costs_nothing(store: Store) -> None:
    async with Journal(journal_folder(store.path) / "run.jsonl") as journal:
        await _one_call(TrialJournal(journal, TRIALS[0], 1), None, "refused")
    store.recover()
    assert ask(store, "SELECT cost_usd, cost_high_usd, prompt_tokens FROM calls").rows == [
        (Decimal(0), Decimal(0), None)
    ]


async def test_the_providers_bill_beats_the_list(store: Store) -> None:
    usage = {**usage_of_turn(0), "cost": 0.125}
    async with Journal(journal_folder(store.path) / "run.jsonl") as journal:
        await _one_call(TrialJournal(journal, TRIALS[0], 1), usage, "complete")
    store.recover()
    billed, cost, listed = ask(store, "SELECT billed_usd, cost_usd, list_usd FROM calls").rows[0]
    assert billed == cost == Decimal("0.125") != listed


async def test_a_whole_answer_without_its_last_usage_has_a_known_prompt_and_a_range_for_its_output(
    store: Store,
) -> None:
    usage = {**usage_of_turn(0), "message_start": {"output_tokens": 1}}
    del usage["output_tokens"]
    async with Journal(journal_folder(store.path) / "run.jsonl") as journal:
        await _one_call(TrialJournal(journal, TRIALS[0], 1), usage, "complete")
    store.recover()
    asked = (
        "SELECT outcome, prompt_tokens, list_usd, cost_usd, cost_low_usd, cost_high_usd, usage_error FROM calls",
        "SELECT token_class, cause, units, usd_low, usd_high FROM charges ORDER BY line",
        "SELECT sum(unknown_calls) FROM attempt_costs",
    )
    first = [ask(store, sql).rows for sql in asked]
    (outcome, prompt, listed, cost, low, high, error), (written, output), unknown = first[0][0], first[1], first[2]
    assert (outcome, prompt, listed, cost, unknown) == ("complete", 4000, None, None, [(1,)])
    assert "output_tokens is missing" in error
    # 4,000 tokens written for 5 minutes at $5; from the one token that began the answer to the limit of 1,000 at $20.
    assert written == ("cache_write_5m", "first_write", 4000, Decimal("0.02"), Decimal("0.02"))
    assert output == ("output", "output", None, Decimal("0.00002"), Decimal("0.02"))
    assert (low, high) == (Decimal("0.02002"), Decimal("0.04"))
    store.rebuild_charges("demo")
    assert [ask(store, sql).rows for sql in asked] == first


async def test_hostile_text_is_stored_and_breaks_nothing(store: Store) -> None:
    nasty = "a\x00b \ud800 '; DROP TABLE calls; -- \r\n\u2028 \U0001f4a3" + "x" * 100_000
    deep: object = nasty
    for _ in range(300):
        deep = {"in": [deep]}
    async with Journal(journal_folder(store.path) / "run.jsonl") as journal:
        book = TrialJournal(journal, TRIALS[0], 1)
        await book.attempt_started(started_at=EPOCH, wall_started_at=EPOCH, backend="bubblewrap")
        book.message("solo", 0, 0, "assistant", {"big": 10**30, "deep": deep, "\ud800": 1}, "h", 1)
        book.command("solo", 0, nasty, 1, nasty, len(nasty), False, EPOCH, EPOCH)
        book.reward(rewards={nasty: float("inf")}, unscored_reason=None, output=nasty, seconds=1.0)
    assert store.recover().left == ()
    expected = nasty.replace("\ud800", "\ufffd")
    output, verdict = ask(store, "SELECT output, verifier_output FROM commands, attempts").rows[0]
    assert {output.replace("\ufffd\ufffd\ufffd", "\ufffd"), verdict.replace("\ufffd\ufffd\ufffd", "\ufffd")} == {
        expected
    }
    assert ask(store, "SELECT content->>'big' FROM messages").rows == [("1" + "0" * 30,)]


async def test_a_row_longer_than_duckdb_expects_is_stored(store: Store) -> None:
    async with Journal(journal_folder(store.path) / "run.jsonl") as journal:
        book = TrialJournal(journal, TRIALS[0], 1)
        await book.attempt_started(started_at=EPOCH, wall_started_at=EPOCH, backend="bubblewrap")
        book.command("solo", 0, "cat", 0, "x" * (20 << 20), 20 << 20, False, EPOCH, EPOCH)
    assert store.recover().left == ()
    assert ask(store, "SELECT length(output) FROM commands").rows == [(20 << 20,)]
