"""Who held the floor while caches expired, as it stands in the database."""

from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from experiments.cli import main
from experiments.runner import run_experiment
from experiments.store import migrations
from experiments.store.expiries import expiry_rows
from experiments.store.journal import Journal, journal_folder
from experiments.store.reader import Reader, query
from experiments.store.store import Store
from experiments.store.trial import TrialJournal
from tests.experiment_files import PAIR, SOLO, small
from tests.sandbox_tasks import needs_isolation
from tests.store_trials import EPOCH, MODELS, ended, play, sent, small_plan, usage_of_turn

PLAN = small_plan()
TRIAL = PLAN.trials[0].id

IDENTITY = """
SELECT (SELECT sum(excess_usd) FROM expiries),
    (SELECT sum(excess_usd) FROM charges WHERE cause = 'expiry_rebuild'),
    (SELECT sum(excess_usd)::DECIMAL(18, 12) FROM expiry_costs),
    (SELECT max(abs(idle_s - seconds)) FROM expiries JOIN
        (SELECT call, sum(seconds) AS seconds FROM expiry_holds GROUP BY call) USING (call))
"""


def both(path: Path) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    """The rows of the two tables."""
    return (
        query(path, "SELECT * FROM expiries ORDER BY call").rows,
        query(path, "SELECT * FROM expiry_holds ORDER BY call, seconds DESC").rows,
    )


def old_schema(path: Path) -> None:
    """Makes the file one of the schema before there were expiries."""
    import duckdb

    with duckdb.connect(str(path)) as connection:
        for view in ("expiry_costs", "expiry_shares"):
            connection.execute(f"DROP VIEW {view}")
        for table in ("expiries", "expiry_holds", "settlements", "reviews", "rewrites"):
            connection.execute(f"DROP TABLE {table}")
        connection.execute("DELETE FROM migrations WHERE number >= 2 OR number = ?", [migrations.VIEWS])


@needs_isolation
async def test_in_a_whole_run_the_expiries_cost_what_their_charges_do_and_the_worker_held_the_floor(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    database = tmp_path / "x.duckdb"
    await run_experiment(small(tmp_path, SOLO + PAIR), database)
    ((expiries, charges, costs, off),) = query(database, IDENTITY).rows
    assert expiries == charges == costs > 0
    assert off < 1e-6
    booked = both(database)
    assert len(booked[0]) == query(database, "SELECT count(*) FROM handovers WHERE kind = 'delegate'").rows[0][0]
    for _, _, _, role, idle_s, holder, _, held_s, tokens, _ in booked[0]:
        assert (role, holder) == ("planner", "worker")
        assert idle_s > 300
        assert idle_s / 2 < held_s < idle_s
        assert tokens > 1000
    shares = query(database, "SELECT holder, kind, seconds FROM expiry_shares ORDER BY seconds DESC").rows
    assert [(holder, kind) for holder, kind, _ in shares] == [
        ("worker", "model"), ("worker", "tool"), ("planner", "model"),
    ]  # fmt: skip
    # All of the worker's commands lie in these gaps, and nothing but them is its tool time.
    commands = "SELECT sum(seconds) FROM command_timeline WHERE role = 'worker'"
    assert shares[1][2] == pytest.approx(query(database, commands).rows[0][0])

    Store(database).rebuild_charges("tiny")
    assert both(database) == booked
    old_schema(database)
    assert both(database) == booked

    capsys.readouterr()
    for arguments, told in (
        (["compare", "tiny"], "pair: while the planner's cache expired: worker model "),
        (["show", "tiny"], "pair: while the planner's cache expired: worker model "),
        (["show", booked[0][0][1]], "planner turn "),
    ):
        with pytest.raises(SystemExit, match="0"):
            main([*arguments, "--db", str(database)])
        printed = capsys.readouterr().out
        (line,) = [line for line in printed.splitlines() if told in line and "cache expired" in line][:1]
        assert "worker tool" in line
        assert "excess" in line


@pytest.fixture
def store(tmp_path: Path) -> Store:
    registered = Store(tmp_path / "test.duckdb")
    registered.register(PLAN, MODELS)
    return registered


async def test_a_reader_sees_the_expiries_of_a_journal_that_nobody_has_merged(store: Store) -> None:
    async with Journal(journal_folder(store.path) / "run.jsonl") as journal:
        await play(TrialJournal(journal, TRIAL, 1), idle_s=400)
    live = both(store.path)
    assert [row[:9] for row in live[0]] == [
        (f"{TRIAL}/1/solo/{turn}/1", TRIAL, 1, "solo", 400.0, "solo", "tool", 396.0, 4000 + 500 * (turn - 1))
        for turn in (1, 2)
    ]
    store.recover()
    assert both(store.path) == live
    ((expiries, charges, costs, _),) = query(store.path, IDENTITY).rows
    assert expiries == charges == costs > 0


async def test_a_file_without_expiries_is_given_them_without_asking_for_prices(store: Store) -> None:
    async with Journal(journal_folder(store.path) / "run.jsonl") as journal:
        for trial in PLAN.trials[:3]:
            await play(TrialJournal(journal, trial.id, 1), idle_s=400)
    store.recover()
    booked = both(store.path)
    assert len(booked[0]) == 6
    old_schema(store.path)
    with Reader(store.path) as reader:
        assert reader.query("SELECT count(*), sum(excess_usd) > 0 FROM expiries").rows == [(6, True)]
    assert both(store.path) == booked


async def test_a_lanes_first_call_that_writes_an_expired_prefix_again_counts_with_nobody_to_blame(store: Store) -> None:
    async with Journal(journal_folder(store.path) / "run.jsonl") as journal:
        book = TrialJournal(journal, TRIAL, 1)
        await book.attempt_started(started_at=EPOCH, wall_started_at=EPOCH, backend="bubblewrap")
        for lane, after_s in (("solo", 0), ("again", 900)):
            book.message(lane, 0, 0, "system", "x", "head", 10)
            call = sent(TRIAL, 1, 0, EPOCH + timedelta(seconds=after_s), blocks=1, lane=lane)
            await book.sent(call)
            book.ended(ended(call, usage_of_turn(0)))
    store.recover()
    (line,) = query(store.path, "SELECT role, idle_s, holder, kind, held_s, tokens FROM expiries").rows
    assert line == ("again", None, None, None, None, 4000)
    ((expiries, charges, costs, _),) = query(store.path, IDENTITY).rows
    assert expiries == charges == costs > 0
    assert query(store.path, "SELECT count(*) FROM expiry_holds").rows == [(0,)]


def at(seconds: float) -> str:
    return (EPOCH + timedelta(seconds=seconds)).isoformat()


def a_call(key: str, role: str, started: float, seconds: float, idle_s: float | None) -> dict[str, Any]:
    return {
        "key": key, "trial_id": "t", "attempt": 1, "role": role, "lane": f"{role}'s", "requested_at": at(started),
        "first_token_at": None, "ended_at": at(started + seconds), "idle_s": idle_s,
    }  # fmt: skip


def a_span(kind: str, role: str, started: float, ended_s: float) -> dict[str, Any]:
    return {"kind": kind, "lane": f"{role}'s", "started_at": at(started), "ended_at": at(ended_s)}


CALLS = [
    a_call("p1", "planner", 0, 10, None),
    a_call("w1", "worker", 120, 80, None),
    a_call("p2", "planner", 400, 5, 400.0),
]
CHARGES = [
    {"call": "p2", "cause": "expiry_rebuild", "units": units, "excess_usd": usd}
    for units, usd in ((700, "0.001000000000"), (300, "0.000500000000"))
] + [{"call": "p2", "cause": "growth", "units": 50, "excess_usd": "0"}]


def test_spans_tell_tools_and_waits_apart_and_what_is_left_of_a_visit_is_waiting() -> None:
    spans = [
        a_span("visit", "planner", 0, 15), a_span("visit", "worker", 100, 380), a_span("turn", "worker", 100, 380),
        a_span("call", "worker", 100, 200), a_span("wait", "worker", 100, 120), a_span("command", "worker", 210, 370),
    ]  # fmt: skip
    rows = expiry_rows(CALLS, CHARGES, spans)
    (expiry,) = rows["expiries"]
    assert (expiry["holder"], expiry["kind"], expiry["held_s"]) == ("worker", "tool", 160)
    assert (expiry["tokens"], Decimal(str(expiry["excess_usd"]))) == (1000, Decimal("0.0015"))
    assert [(row["holder"], row["kind"], row["seconds"]) for row in rows["expiry_holds"]] == [
        ("worker", "tool", 160), ("user", "wait", 105), ("worker", "model", 80), ("worker", "wait", 40),
        ("planner", "model", 10), ("planner", "wait", 5),
    ]  # fmt: skip


def test_without_spans_the_calls_tell_and_their_order_does_not_matter() -> None:
    rows = expiry_rows(CALLS, CHARGES, [])
    assert rows == expiry_rows(CALLS[::-1], CHARGES[::-1], [a_span("turn", "worker", 100, 380)])
    assert [(row["holder"], row["kind"], row["seconds"]) for row in rows["expiry_holds"]] == [
        ("user", "wait", 310), ("worker", "model", 80), ("planner", "model", 10),
    ]  # fmt: skip


def test_tokens_that_nobody_knows_stay_unknown() -> None:
    (expiry,) = expiry_rows(CALLS, [{**CHARGES[0], "units": None}, CHARGES[1]], [])["expiries"]
    assert expiry["tokens"] is None


def test_where_nothing_expired_there_are_no_rows_and_an_experiment_says_so(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    assert expiry_rows(CALLS, [CHARGES[2]], []) == {"expiries": [], "expiry_holds": []}
    with pytest.raises(SystemExit, match="0"):
        main(["show", "demo", "--db", str(store.path)])
    assert "no cache expired" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="2"):
        main(["show", "nothing", "--db", str(store.path)])
    assert "no trial and no experiment 'nothing'" in capsys.readouterr().err
