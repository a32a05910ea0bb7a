"""From events to rows: merging is idempotent in every order, recovery loses nothing, and charges can be rebuilt."""

import asyncio
import itertools
import shutil
from dataclasses import dataclass, field, replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cost_model.prices import PriceBook
from experiments.errors import PlanChanged, UnknownExperiment
from experiments.store.journal import Event, Journal, encode, journal_folder
from experiments.store.reader import Reader, query
from experiments.store.segment import Segment
from experiments.store.store import KnownTrial, Store
from experiments.store.trial import TrialJournal
from tests.store_trials import EPOCH, MODELS, ask, play, small_plan, written

PLAN = small_plan()
TRIALS = [trial.id for trial in PLAN.trials]


@pytest.fixture(scope="module")
def blank(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with the plan registered and nothing run, to be copied."""
    path = tmp_path_factory.mktemp("blank") / "test.duckdb"
    Store(path).register(PLAN, MODELS, spec={"name": "demo"})
    return path


def copied(blank: Path, folder: Path) -> Store:
    return Store(Path(shutil.copy(blank, folder / "copy.duckdb")))


@pytest.fixture
def store(blank: Path, tmp_path: Path) -> Store:
    return copied(blank, tmp_path)


@dataclass(frozen=True, slots=True)
class Attempts:
    """Short in print, however many events there are."""

    events: list[list[Event]] = field(repr=False)


def everything(store: Store) -> dict[str, list[tuple[Any, ...]]]:
    tables = ("trials", "attempts", "trial_roles", "calls", "charges", "messages", "commands", "spans", "handovers")
    with Reader(store.path) as reader:
        return {name: reader.query(f"FROM {name} ORDER BY ALL").rows for name in (*tables, "rewards", "prices")}


def test_registering_twice_changes_nothing(store: Store) -> None:
    before = everything(store), ask(store, "SELECT * FROM experiments")
    store.register(PLAN, MODELS, spec={"name": "demo"})
    assert (everything(store), ask(store, "SELECT * FROM experiments")) == before
    assert store.known_trials("demo") == {trial.id: KnownTrial(trial.hash, False, 0) for trial in PLAN.trials}


def test_a_plan_may_grow(store: Store) -> None:
    grown = small_plan(arms=("solo", "chain", "third"), repeats=3)
    store.register(grown, {**MODELS, "new": MODELS["cheap"]}, spec={"name": "demo", "repeats": 3})
    assert len(store.known_trials("demo")) == len(grown.trials) == 18
    assert ask(store, "SELECT spec->>'repeats', repeats FROM experiments").rows == [("3", 3)]
    assert set(ask(store, "SELECT unnest(json_keys(models)) FROM experiments").rows) == {
        ("dear",), ("cheap",), ("own",), ("new",)
    }  # fmt: skip


def test_a_trial_that_was_planned_differently_is_refused_and_nothing_is_registered(store: Store) -> None:
    with pytest.raises(PlanChanged, match=r"demo: 8 stored trials .*--as NAME"):
        store.register(small_plan(tasks=("alpha", "beta", "gamma"), salt=" changed"), MODELS)
    assert len(store.known_trials("demo")) == 8


def test_the_parts_that_hashes_cover_can_be_read_back(store: Store) -> None:
    assert store.known_parts("demo") == {
        "arms": {"solo": {"topology": "solo", "salt": ""}, "chain": {"topology": "solo", "salt": ""}},
        "tasks": {"alpha": {"digest": "alpha"}, "beta": {"digest": "beta"}},
    }
    assert store.known_parts("other") == {"arms": {}, "tasks": {}}


def test_asking_for_trials_creates_no_file(tmp_path: Path) -> None:
    assert Store(tmp_path / "none.duckdb").known_trials("demo") == {}
    assert list(tmp_path.iterdir()) == []


async def test_a_finished_trial_has_all_its_rows(store: Store, tmp_path: Path) -> None:
    events = await written(tmp_path / "run.jsonl", [(TRIALS[0], 1, "submitted")])
    store.merge(events)
    assert store.known_trials("demo")[TRIALS[0]] == KnownTrial("solo/alpha", True, 1)
    counts = {name: len(rows) for name, rows in everything(store).items()}
    assert counts == {
        "trials": 8, "attempts": 1, "trial_roles": 1, "calls": 3, "charges": 8, "messages": 7, "commands": 3,
        "spans": 3, "handovers": 1, "rewards": 1, "prices": counts["prices"],
    }  # fmt: skip
    trial = ask(store, "SELECT * EXCLUDE (id, nonce, position) FROM trials WHERE id = ?", TRIALS[0])
    assert dict(zip(trial.columns, trial.rows[0], strict=True)) == {
        "experiment": "demo", "arm": "solo", "task": "alpha", "repeat": 0, "semantic_hash": "solo/alpha",
        "simulated": True, "ended_by": "submitted", "outcome": "passed", "unscored_reason": None, "reward": 1.0,
        "passed": True, "changed": True, "final_attempt": 1, "started_at": EPOCH,
        "ended_at": EPOCH + timedelta(seconds=60), "wall_started_at": EPOCH,
        "wall_ended_at": EPOCH + timedelta(seconds=2), "backend": "bubblewrap", "notes": "a note",
    }  # fmt: skip
    assert ask(store, "SELECT content, size FROM messages ORDER BY idx LIMIT 2").rows == [
        ('{"system":"You solve tasks."}', 12_000),
        ('"message 0"', 1_500),
    ]


async def test_charges_explain_the_dollars_of_every_call(store: Store, tmp_path: Path) -> None:
    store.merge(await written(tmp_path / "run.jsonl", [(TRIALS[0], 1, "submitted")], idle_s=400))
    assert ask(store, "SELECT causes, idle_s FROM call_timeline").rows == [
        ("first_write 4000", None),
        ("expiry_rebuild 4000, growth 500", 400.0),
        ("expiry_rebuild 4500, growth 500", 400.0),
    ]
    assert ask(store, "SELECT key FROM calls JOIN charges ON call = key GROUP BY key, cost_usd "
                      "HAVING sum(usd_low) != cost_usd OR sum(usd_high) != cost_usd").rows == []  # fmt: skip
    price = PriceBook().card("claude-opus-5-5", EPOCH).usd_per_mtok
    (expiry,) = ask(store, "SELECT sum(usd_low) FROM charges WHERE cause = 'expiry_rebuild'").rows[0]
    assert expiry == 8_500 * price["cache_write_5m"] / 10**6


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Attempts:
    """Attempts of several trials, among them a first one that was cancelled, one that broke and one without an end."""
    events = asyncio.run(
        written(
            tmp_path_factory.mktemp("many") / "run.jsonl",
            [
                (TRIALS[0], 1, "cancelled"),
                (TRIALS[0], 2, "submitted"),
                (TRIALS[1], 1, "infra_error"),
                (TRIALS[1], 2, "infra_error"),
                (TRIALS[2], 1, "agent_timeout"),
                (TRIALS[3], 1, None),
            ],
        )
    )
    return Attempts(events)


@pytest.fixture(scope="module")
def merged_at_once(blank: Path, many: Attempts) -> dict[str, list[tuple[Any, ...]]]:
    store = copied(blank, blank.parent)
    store.merge(many.events)
    return everything(store)


@given(order=st.permutations([0, 1, 2, 3, 4, 5, 0, 2, 4]), cuts=st.sets(st.integers(1, 8), max_size=3))
@settings(max_examples=5)
def test_merges_give_the_same_rows_in_any_order_and_repetition(
    order: list[int], cuts: set[int], many: Attempts, blank: Path, merged_at_once: dict[str, list[tuple[Any, ...]]],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:  # fmt: skip
    store = copied(blank, tmp_path_factory.mktemp("merge"))
    for start, end in itertools.pairwise([0, *sorted(cuts), len(order)]):
        store.merge([many.events[n] for n in dict.fromkeys(order[start:end])])
    assert everything(store) == merged_at_once


@pytest.mark.parametrize("number", [10**10, 10**20])
async def test_one_attempt_with_a_number_that_no_column_holds_keeps_no_other_out(
    store: Store, tmp_path: Path, number: int
) -> None:
    events = await written(
        tmp_path / "run.jsonl", [(TRIALS[0], 1, "submitted"), (TRIALS[1], 1, "submitted"), (TRIALS[2], 1, "submitted")]
    )
    forged = next(event for event in events[1] if event["kind"] == "command")
    forged["exit_code"] = number
    (problem,) = store.merge(events)
    assert problem.startswith(f"a finished attempt: attempt 1 of trial {TRIALS[1]} does not fit its columns: ")
    known = store.known_trials("demo")
    assert [known[trial].finished for trial in TRIALS[:3]] == [True, False, True]


def test_the_first_finished_attempt_is_final_and_broken_ones_keep_their_money(store: Store, many: Attempts) -> None:
    store.merge(many.events)
    known = store.known_trials("demo")
    assert [(known[trial].finished, known[trial].attempts) for trial in TRIALS[:4]] == [
        (True, 2), (False, 2), (True, 1), (False, 1),
    ]  # fmt: skip
    assert ask(store, "SELECT ended_by, outcome, final_attempt FROM trials WHERE id = ?", TRIALS[1]).rows == [
        ("infra_error", "unscored", None)
    ]
    one, both = ask(store, "SELECT usd, all_usd FROM trial_costs WHERE trial_id = ?", TRIALS[0]).rows[0]
    assert both == 2 * one > 0


def test_an_attempt_of_an_unknown_trial_is_refused(store: Store, many: Attempts) -> None:
    stranger = [{**event, "trial_id": "stranger"} if "trial_id" in event else event for event in many.events[1]]
    (problem,) = store.merge([stranger, many.events[2]])
    assert "speaks of the trial stranger" in problem
    assert store.known_trials("demo")[TRIALS[1]].attempts == 1, "the other attempt is stored"
    segment = journal_folder(store.path) / "run.jsonl"
    segment.parent.mkdir()
    segment.write_bytes(b"".join(encode(event) for event in stranger))
    with pytest.raises(UnknownExperiment, match="trial stranger"):
        ask(store, "SELECT 1")


@given(cut=st.floats(0, 1))
@settings(max_examples=6)
def test_recovery_books_every_call_of_a_journal_torn_anywhere(
    cut: float, many: Attempts, blank: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    store = copied(blank, tmp_path_factory.mktemp("torn"))
    segment = Segment(journal_folder(store.path) / "run.jsonl")
    segment.path.parent.mkdir()
    whole = b"".join(encode(event) for events in many.events for event in events)
    segment.path.write_bytes(whole[: round(cut * len(whole))])
    events = list(segment.events())
    sent_keys = [str(event["key"]) for event in events if event["kind"] == "sent"]
    answered = {event["key"] for event in events if event["kind"] == "ended"}
    over = {(event["trial_id"], event["attempt"]) for event in events if event["kind"] == "attempt_ended"}
    begun = {(event["trial_id"], event["attempt"]) for event in events if "trial_id" in event}

    recovered = store.recover()

    assert not segment.path.exists()
    assert recovered.left == ()
    assert (recovered.attempts, recovered.died) == (len(begun), len(begun - over))
    assert recovered.lost_calls == len(set(sent_keys) - answered)
    rows = ask(store, "SELECT key, outcome, cost_usd IS NULL, cost_low_usd <= cost_high_usd FROM calls").rows
    assert sorted(row[0] for row in rows) == sorted(sent_keys)
    for key, outcome, unknown, ranged in rows:
        assert (outcome, unknown, ranged) == (("complete", False, True) if key in answered else ("lost", True, True))
    finished = {trial for trial, known in store.known_trials("demo").items() if known.finished}
    ends = {(TRIALS[0], 2), (TRIALS[2], 1)} & over
    assert finished == {trial for trial, _ in ends}
    before = everything(store)
    assert store.recover().attempts == 0
    store.merge([events for events in many.events if (events[0]["trial_id"], events[0]["attempt"]) in begun])
    assert everything(store) == before


async def test_recovery_leaves_a_living_journal_alone(store: Store) -> None:
    async with Journal(journal_folder(store.path) / "run.jsonl") as journal:
        await play(TrialJournal(journal, TRIALS[0], 1))
        assert store.recover().attempts == 0
        assert journal.path.exists()
    assert store.recover().attempts == 1


async def test_a_journal_of_a_deleted_database_is_named_and_left_where_it_is(store: Store, tmp_path: Path) -> None:
    path = journal_folder(store.path) / "run.jsonl"
    await written(path, [("stranger", 1, "submitted")])
    (left,) = store.recover().left
    assert "run.jsonl: speaks of the trial stranger" in left
    assert path.exists()


async def test_a_damaged_journal_does_not_hold_up_the_others(store: Store) -> None:
    folder = journal_folder(store.path)
    await written(folder / "b.jsonl", [(TRIALS[0], 1, "submitted")])
    (folder / "a.jsonl").write_bytes(b"{}\n{}\n")
    recovered = store.recover()
    assert recovered.attempts == 1
    assert "a.jsonl:1: not a journal event" in recovered.left[0]


async def test_an_attempt_without_an_end_is_an_infrastructure_error_and_its_trial_stays_open(store: Store) -> None:
    await written(journal_folder(store.path) / "run.jsonl", [(TRIALS[0], 1, None)])
    store.recover()
    assert ask(store, "SELECT ended_by, outcome, ended_at, wall_ended_at, error FROM attempts").rows == [
        ("infra_error", "unscored", EPOCH + timedelta(seconds=40), None, "the process died before the attempt ended")
    ]
    assert store.known_trials("demo")[TRIALS[0]] == KnownTrial("solo/alpha", False, 1)


async def test_a_lost_call_has_a_range_and_the_known_ones_their_price(store: Store) -> None:
    await written(journal_folder(store.path) / "run.jsonl", [(TRIALS[0], 1, None)])
    store.recover()
    usd, low, high, unknown = ask(store, "SELECT usd, usd_low, usd_high, unknown_calls FROM trial_costs").rows[0]
    assert (usd, unknown) == (low, 1)
    assert high > low > 0
    assert ask(store, "SELECT prompt_tokens, output_tokens, basis FROM calls WHERE outcome = 'lost'").rows == [
        (None, None, "estimated")
    ]


async def test_charges_rebuilt_from_stored_rows_are_identical(store: Store, many: Attempts, tmp_path: Path) -> None:
    store.merge(many.events)
    store.merge(await written(tmp_path / "more.jsonl", [(TRIALS[4], 1, "submitted")], idle_s=400))
    before = everything(store)
    store.rebuild_charges("demo")
    assert everything(store) == before
    with_connection(
        store, "UPDATE charges SET usd_low = 9, cause = 'wrong'", "UPDATE calls SET cost_usd = 9, idle_s = 1"
    )
    assert everything(store) != before
    store.rebuild_charges("demo")
    assert everything(store) == before


def with_connection(store: Store, *statements: str) -> None:
    import duckdb

    with duckdb.connect(str(store.path)) as connection:
        for statement in statements:
            connection.execute(statement)


async def test_an_experiment_is_rebuilt_with_the_prices_it_was_booked_with(
    store: Store, many: Attempts, tmp_path: Path
) -> None:
    store.merge(many.events)
    before = everything(store)
    dearer = tmp_path / "prices.toml"
    dearer.write_text(
        '[[price]]\nmodel = "claude-opus-5-5"\nsource = "a dearer list"\n'
        "usd_per_mtok = { input = 99, cache_read = 99, cache_write_5m = 99, output = 99 }\n"
    )
    Store(store.path, PriceBook([dearer])).rebuild_charges("demo")
    assert everything(store) == before


async def test_prices_of_a_run_of_its_own_are_used_by_a_recovery_that_does_not_know_them(tmp_path: Path) -> None:
    own = tmp_path / "prices.toml"
    own.write_text(
        '[[price]]\nmodel = "claude-opus-5-5"\nsource = "an own list"\n'
        "usd_per_mtok = { input = 1, cache_read = 1, cache_write_5m = 1, output = 1 }\n"
    )
    path = tmp_path / "test.duckdb"
    Store(path, PriceBook([own])).register(PLAN, MODELS)
    await written(journal_folder(path) / "run.jsonl", [(TRIALS[0], 1, "submitted")])
    Store(path).recover()
    assert query(path, "SELECT sum(cost_usd) * 1000000, sum(prompt_tokens + output_tokens) FROM calls").rows == [
        (Decimal(13_800), 13_800)
    ]


async def test_a_fixed_moment_prices_every_call(tmp_path: Path) -> None:
    path = tmp_path / "test.duckdb"
    dated = tmp_path / "prices.toml"
    dated.write_text(
        '[[price]]\nmodel = "claude-opus-5-5"\nsource = "old"\nvalid_until = 2026-01-01\n'
        "usd_per_mtok = { input = 1, cache_read = 1, cache_write_5m = 1, output = 1 }\n"
    )
    plan = replace(PLAN, prices_at=EPOCH - timedelta(days=400))
    store = Store(path, PriceBook([dated]))
    store.register(plan, MODELS)
    store.merge(await written(tmp_path / "run.jsonl", [(TRIALS[0], 1, "submitted")]))
    assert query(path, "SELECT sum(cost_usd) * 1000000 FROM calls").rows == [(Decimal(13_800),)]


def test_an_unknown_experiment_is_named_with_the_known_ones(store: Store) -> None:
    with pytest.raises(UnknownExperiment, match="no experiment 'other' is stored; known: demo"):
        store.rebuild_charges("other")


async def test_a_call_of_a_model_that_nobody_registered_is_said(store: Store, many: Attempts) -> None:
    changed = [{**event, "model": "stranger"} if event["kind"] == "sent" else event for event in many.events[1]]
    (problem,) = store.merge([changed])
    assert "names the model 'stranger'" in problem
    assert ask(store, "SELECT count(*) FROM calls").rows == [(0,)]
