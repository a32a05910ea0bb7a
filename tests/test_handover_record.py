"""What is kept of a hand-over: call, tokens, reason, and the gaps that it leaves; over upgrades and rebuilds."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.handover import Handover
from agents.verdict import Verdict
from experiments.cli import main
from experiments.runner import run_experiment
from experiments.store import migrations
from experiments.store.handed import fill_handed_tokens
from experiments.store.journal import Journal, journal_folder
from experiments.store.reader import query
from experiments.store.rows import Row
from experiments.store.store import Store
from experiments.store.trial import TrialJournal
from tests.experiment_files import small
from tests.sandbox_tasks import needs_isolation
from tests.store_trials import EPOCH, MODELS, ended, sent, small_plan, usage_of_turn

PLAN = small_plan()
TRIAL = PLAN.trials[0].id

FIVE = """\
  - {name: solo, topology: solo, roles: {solo: sim-deepseek-v4-flash}}
  - {name: pair, topology: planner_worker, roles: {planner: sim-claude-opus-5-5, worker: sim-deepseek-v4-flash}}
  - name: aware
    topology: price_aware
    parameters: {ratio: 1000000}
    roles: {lead: sim-claude-opus-5-5, worker: sim-deepseek-v4-flash}
  - {name: reviewed, topology: worker_reviewer, roles: {worker: sim-deepseek-v4-flash, reviewer: sim-claude-opus-5-5}}
  - {name: shot, topology: single_shot, roles: {solver: sim-deepseek-v4-flash}}
"""

Step = tuple[str, str | None, str]
BACK: dict[str, tuple[list[Step], Step]] = {
    "solo": ([], ("solo", None, "submit")),
    "pair": ([("planner", "worker", "delegate"), ("worker", "planner", "submit")], ("planner", None, "approve")),
    "aware": ([("lead", "worker", "delegate"), ("worker", "lead", "submit")], ("lead", None, "submit")),
    "reviewed": ([("worker", "reviewer", "submit"), ("reviewer", "worker", "verdict")], ("reviewer", None, "verdict")),
    "shot": ([], ("solver", None, "plan")),
}
"""By arm: what goes round and round, and the last step."""

SUMS = """
SELECT (SELECT sum(excess_usd) FROM handover_gaps WHERE opened), (SELECT sum(excess_usd) FROM expiries)
"""


@needs_isolation
async def test_each_topologys_hand_overs_are_kept_with_call_reason_tokens_and_gaps(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    database = tmp_path / "x.duckdb"
    await run_experiment(small(tmp_path, FIVE), database)
    steps = query(
        database,
        "SELECT arm, list((from_role, to_role, kind) ORDER BY seq) FROM handovers JOIN trials ON id = trial_id "
        "GROUP BY arm",
    ).rows
    assert {arm for arm, _ in steps} == set(BACK)
    for arm, found in steps:
        around, last = BACK[arm]
        if arm == "reviewed":
            assert found[0] == ("worker", "reviewer", "submit")
            assert found == [around[number % 2] for number in range(len(found) - 1)] + [found[-1]]
            assert found[-1] in (last, ("reviewer", "worker", "verdict"))
        else:
            assert found == around * ((len(found) - 1) // max(1, len(around))) + [last]

    # Each was made by a call of the role that handed over, whose answer ended there.
    assert query(
        database,
        "SELECT count(*) FROM handovers LEFT JOIN calls ON key = call WHERE calls.role IS DISTINCT FROM from_role "
        "OR handed_at IS DISTINCT FROM ended_at",
    ).rows == [(0,)]
    reasons = "SELECT DISTINCT reason FROM handovers WHERE kind = 'verdict' ORDER BY ALL"
    assert {reason for (reason,) in query(database, reasons).rows} <= {"approve", "reject"}
    assert query(database, "SELECT count(*) FROM handovers WHERE kind <> 'verdict' AND reason <> kind").rows == [(0,)]
    # The text has its share of the receiver's next prompt, and none where the chain ends.
    tokens = "SELECT to_role IS NULL, tokens, length(payload) FROM handovers"
    for ends, count, length in query(database, tokens).rows:
        assert (count is None) is ends
        assert ends or length / 8 < count < length / 2

    # A gap is what the lane's next call waited, and the gaps that expired cost what the expiries did.
    gaps, expired = query(database, SUMS).rows[0]
    assert gaps == expired > 0
    idle = query(
        database,
        "SELECT seconds, calls.idle_s, expired, expiries.excess_usd, gaps.excess_usd, cache_lifetime_s, from_role, "
        "gaps.role FROM expiries JOIN calls ON key = expiries.call "
        "JOIN handover_gaps AS gaps ON gaps.lane = calls.lane "
        "AND gaps.trial_id = calls.trial_id AND gaps.opened AND abs(gaps.seconds - calls.idle_s) < 1e-6",
    ).rows
    assert len(idle) == query(database, "SELECT count(*) FROM expiries").rows[0][0] > 0
    for seconds, idle_s, paid, usd, gap_usd, lifetime, giver, waits in idle:
        assert seconds == pytest.approx(idle_s, abs=1e-6)
        assert (paid, usd, lifetime) == (True, gap_usd, 300)
        assert giver == waits
    before = "SELECT * FROM handovers ORDER BY trial_id, seq"
    booked = query(database, before).rows
    Store(database).rebuild_charges("tiny")
    assert query(database, before).rows == booked

    ((trial,),) = query(database, "SELECT id FROM trials WHERE arm = 'pair'").rows
    with pytest.raises(SystemExit, match="0"):
        main(["show", trial, "--db", str(database)])
    shown = capsys.readouterr().out
    assert "delegate -> to worker (about " in shown
    assert "leaves planner idle, whose cache lives 5:00.0: rebuilt for $0.0" in shown
    assert "approve -> end: " in shown


# The tokens of a text.


def prompt(turn: int, at_s: float, blocks: int, tokens: int | None, role: str = "worker", number: str = "") -> Row:
    at = (EPOCH + timedelta(seconds=at_s)).isoformat()
    return {
        "role": role, "lane": f"{role}-0", "version": 0, "turn": number or str(turn), "blocks": blocks,
        "prompt_tokens": tokens, "requested_at": at,
    }  # fmt: skip


def sizes(*of: int, lane: str = "worker-0") -> list[Row]:
    return [{"lane": lane, "version": 0, "idx": idx, "size": size} for idx, size in enumerate(of)]


def handed(calls: list[Row], messages: list[Row], payload: str = "x" * 100, at_s: float = 10) -> Any:
    row: Row = {"to_role": "worker", "payload": payload, "handed_at": EPOCH + timedelta(seconds=at_s)}
    fill_handed_tokens([row], calls, messages)
    return row["tokens"]


def test_a_text_has_its_bytes_share_of_what_the_receivers_prompt_grew_by() -> None:
    messages = sizes(1500, 500, 300, 200)
    assert handed([prompt(1, 10, 2, 400)], messages) == 20, "a new lane: all of the prompt"
    again = [prompt(1, 0, 2, 400), prompt(2, 12, 4, 600)]
    assert handed(again, messages) == 40, "100 of 500 bytes, 200 tokens more"
    assert handed([prompt(1, 0, 2, None), prompt(2, 12, 4, 600)], messages) == 24, "an earlier total is unknown"
    assert handed([*again, prompt(1, 11, 4, 9999, number="k1")], messages) == 40, "pings are no turn"
    assert handed([prompt(1, 0, 2, 400), prompt(2, 12, 4, None), prompt(2, 13, 4, 600)], messages) == 40, "a next try"
    assert handed(again, messages, "\n" * 50) == 40, "as it is written in the message"
    assert handed(again, messages, "x" * 9000) == 200, "no more than it grew by"


def test_what_nobody_was_asked_with_or_no_provider_counted_is_unknown() -> None:
    messages = sizes(1500, 500)
    assert handed([], messages) is None
    assert handed([prompt(1, 9, 2, 400)], messages) is None
    assert handed([prompt(1, 10, 2, None)], messages) is None
    assert handed([prompt(1, 10, 2, 400)], []) is None
    assert handed([prompt(1, 10, 2, 400, role="planner")], messages) is None
    assert handed([prompt(1, 0, 2, 500), prompt(2, 11, 2, 400)], messages) is None, "a prompt that shrank"


@given(
    parts=st.lists(st.text(max_size=40), min_size=1, max_size=6),
    frame=st.integers(0, 300),
    tokens=st.integers(0, 10_000),
)
def test_texts_that_make_up_a_message_have_no_more_tokens_than_it(parts: list[str], frame: int, tokens: int) -> None:
    import orjson

    size = frame + sum(len(orjson.dumps(part)) - 2 for part in parts)
    found = [handed([prompt(1, 10, 1, tokens)], sizes(size), part) for part in parts]
    if size == 0:
        assert found == [None] * len(parts)
    else:
        assert all(0 <= count <= tokens for count in found)
        # Each is rounded for itself.
        assert sum(found) <= tokens + len(parts) / 2


# In the file.


async def attempt(book: TrialJournal) -> None:
    """A planner that hands over, waits 400 s, and ends at its next call; a worker that asks once."""
    await book.attempt_started(started_at=EPOCH, wall_started_at=EPOCH, backend="bubblewrap")
    book.role("planner", "planner", "dear", "You plan.", [])
    book.role("worker", "worker", "dear", "You work.", [])
    for turn, lane, at_s, blocks in ((0, "planner", 0, 2), (0, "worker", 5, 2), (1, "planner", 400, 4)):
        if turn == 0:
            book.message(lane, 0, 0, "system", {"system": lane}, f"head of {lane}", 12_000)
        book.message(lane, 0, blocks - 1, "user", f"m {turn}", f"user {lane} {turn}", 1_500)
        call = sent(book.trial_id, book.attempt, turn, EPOCH + timedelta(seconds=at_s), blocks=blocks, lane=lane)
        await book.sent(call)
        book.ended(ended(call, usage_of_turn(turn, expired=turn > 0)))
        book.message(lane, 0, blocks, "assistant", [], f"assistant {lane} {turn}", 500)
        at = EPOCH + timedelta(seconds=at_s + 4)
        if lane == "worker":
            book.handover("worker", Handover("submit", "planner", "w" * 150, "t"), at, call.key)
        elif turn == 0:
            book.handover("planner", Handover("delegate", "worker", "p" * 1_350, "t"), at, call.key)
        else:
            book.visit_ended("planner", "loop", at, call.key)
    await book.attempt_ended(
        ended_by="loop", outcome="failed", unscored_reason=None, reward=0.0, passed=False, changed=True,
        started_at=EPOCH, ended_at=EPOCH + timedelta(seconds=404), wall_started_at=EPOCH, wall_ended_at=EPOCH,
    )  # fmt: skip


ROWS = "SELECT seq, from_role, to_role, kind, payload IS NULL, call, tokens, reason FROM handovers ORDER BY seq"
GAPS = "SELECT seq, lane, opened, seconds, cache_lifetime_s, expired, excess_usd FROM handover_gaps ORDER BY seq, lane"
HANDED = [
    (0, "planner", "worker", "delegate", False, f"{TRIAL}/1/planner/0/1", 400, "delegate"),
    (1, "worker", "planner", "submit", False, f"{TRIAL}/1/worker/0/1", 38, "submit"),
    (2, "planner", None, None, True, f"{TRIAL}/1/planner/1/1", None, "loop"),
]
"""4,000 tokens of 13,500 bytes; then 500 more of 2,000."""


@pytest.fixture
async def store(tmp_path: Path) -> Store:
    found = Store(tmp_path / "x.duckdb")
    found.register(PLAN, MODELS)
    async with Journal(journal_folder(found.path) / "run.jsonl") as journal:
        await attempt(TrialJournal(journal, TRIAL, 1))
    return found


async def test_a_visit_without_a_hand_over_has_a_row_too_and_the_gaps_are_those_of_the_lanes(store: Store) -> None:
    def seen() -> tuple[Any, Any]:
        return query(store.path, ROWS).rows, query(store.path, GAPS).rows

    live = seen()
    assert live[0] == HANDED, "as the journal tells it"
    planner, worker, *rest = live[1]
    assert planner[:6] == (0, "planner", True, 400.0, 300.0, True)
    assert planner[6] == query(store.path, "SELECT sum(excess_usd) FROM expiries").rows[0][0] > 0
    assert worker == (1, "worker", True, None, 300.0, None, None)
    assert [(seq, lane, opened) for seq, lane, opened, *_ in rest] == [(2, "planner", True), (2, "worker", False)]
    store.recover()
    assert seen() == live
    store.rebuild_charges(PLAN.experiment)
    assert seen() == live


async def test_an_older_file_is_upgraded_and_what_it_does_not_know_stays_unknown(store: Store) -> None:
    import duckdb

    store.recover()
    number = 1 + migrations.MIGRATIONS.index("0007_handover_record")
    with duckdb.connect(str(store.path)) as connection:
        connection.execute("DROP VIEW handover_gaps")
        connection.execute("DELETE FROM handovers WHERE kind IS NULL")
        for table, columns in (("handovers", ("call", "tokens", "reason")), ("trial_roles", ("cache_lifetime_s",))):
            for column in columns:
                connection.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
        connection.execute("ALTER TABLE handovers ALTER COLUMN kind SET NOT NULL")
        connection.execute("ALTER TABLE handovers ALTER COLUMN payload SET NOT NULL")
        connection.execute("DELETE FROM migrations WHERE number >= ? OR number = ?", [number, migrations.VIEWS])
    assert query(store.path, ROWS).rows == [(*row[:5], None, None, None) for row in HANDED[:2]]
    assert query(store.path, GAPS).rows[0][:5] == (0, "planner", True, 400.0, None)
    # The next run's rows find their columns.
    async with Journal(journal_folder(store.path) / "more.jsonl") as journal:
        await attempt(TrialJournal(journal, PLAN.trials[1].id, 1))
    store.recover()
    reasons = "SELECT count(reason), count(*) FILTER (WHERE kind IS NULL) FROM handovers"
    assert query(store.path, reasons).rows == [(3, 1)]


async def test_hand_overs_of_an_older_journal_are_read_without_call_and_reason(store: Store) -> None:
    from experiments.store.attempts import raw_rows
    from experiments.store.segment import Segment

    [path] = journal_folder(store.path).glob("*.jsonl")
    [events] = Segment(path).attempts().values()
    older = [{name: value for name, value in event.items() if name not in ("call", "reason")} for event in events]
    rows = raw_rows([event for event in older if event.get("handover_kind", "x")], alive=False)["handovers"]
    assert [(row["kind"], row["call"], row["reason"]) for row in rows] == [
        ("delegate", None, None),
        ("submit", None, None),
    ]


async def test_a_verdict_is_the_reason_and_an_ended_visit_is_shown(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    async with Journal(journal_folder(store.path) / "more.jsonl") as journal:
        book = TrialJournal(journal, PLAN.trials[1].id, 1)
        await book.attempt_started(started_at=EPOCH, wall_started_at=EPOCH, backend="bubblewrap")
        book.message("reviewer", 0, 0, "system", "x", "head", 10)
        call = sent(book.trial_id, 1, 0, EPOCH, blocks=1, lane="reviewer")
        await book.sent(call)
        form = Verdict(verdict="approve", confidence=1.0, findings=[])
        book.handover("reviewer", Handover("verdict", None, "fine", "t", form), EPOCH, call.key)
    store.recover()
    told = "SELECT kind, reason, call FROM handovers WHERE from_role = 'reviewer'"
    assert query(store.path, told).rows == [("verdict", "approve", call.key)]
    with pytest.raises(SystemExit, match="0"):
        main(["show", TRIAL, "--db", str(store.path)])
    shown = capsys.readouterr().out
    assert "ended by loop, nothing handed over" in shown
    assert "delegate -> to worker (about 400 tokens): ppp" in shown
    assert "leaves planner idle, whose cache lives 5:00.0: rebuilt for $" in shown


@pytest.mark.parametrize(
    ("ended_by", "to_role"), [("submitted", None), ("no_handover", None), ("agent_timeout", "worker")]
)
async def test_where_the_rounds_run_out_the_last_hand_over_goes_to_nobody(
    ended_by: str, to_role: str | None, store: Store
) -> None:
    """Its tool names the worker; the topology ends there."""
    from experiments.store.attempts import raw_rows
    from experiments.store.segment import Segment

    [path] = journal_folder(store.path).glob("*.jsonl")
    [events] = Segment(path).attempts().values()
    last = max(n for n, event in enumerate(events) if event["kind"] == "handover" and event["to_role"] == "worker")
    kept = [
        {**event, "ended_by": ended_by} if event["kind"] == "attempt_ended" else event
        for n, event in enumerate(events)
        if event["kind"] != "handover" or n <= last
    ]
    rows = raw_rows(kept, alive=False)["handovers"]
    assert rows[-1]["to_role"] == to_role
    assert all(row["to_role"] is not None for row in rows[:-1])
