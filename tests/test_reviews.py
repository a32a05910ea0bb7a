"""Verdicts in the database: written with their hand-over, read live and merged, kept over upgrades and rebuilds."""

import json
from datetime import timedelta
from pathlib import Path

import pytest

from agents.handover import Handover
from agents.verdict import Finding, Verdict
from experiments.cli import main
from experiments.errors import JournalDamaged
from experiments.store import migrations
from experiments.store.attempts import attempt_rows, raw_rows
from experiments.store.journal import Event, Journal, journal_folder
from experiments.store.reader import query
from experiments.store.segment import Segment
from experiments.store.store import Store
from experiments.store.trial import TrialJournal
from tests.store_trials import EPOCH, MODELS, ended, sent, small_plan, usage_of_turn
from topologies.worker_reviewer import SUBMIT, VERDICT

FINDINGS = [
    Finding(file="a.py", line=3, problem="It is off by one."),
    Finding(file="odd\x1b[31m\0 name", problem="What is [bold]this[/bold]?\nNobody knows."),
]
REJECT = Verdict(verdict="reject", confidence=0.75, findings=FINDINGS)
APPROVE = Verdict(verdict="approve", confidence=1.0, findings=[])
PLAN = small_plan()
TRIAL = PLAN.trials[0].id


async def review(book: TrialJournal, *verdicts: Verdict, ends: bool = True) -> None:
    """One attempt: a call and a verdict for each piece of work that is handed in."""
    now = EPOCH
    await book.attempt_started(started_at=now, wall_started_at=now, backend="bubblewrap")
    book.message("solo", 0, 0, "system", {"system": "You review."}, "head", 12_000)
    for turn, verdict in enumerate(verdicts):
        book.handover("worker", Handover(SUBMIT.name, "reviewer", f"report {turn}", "t"), now, "a call")
        book.message("solo", 0, 2 * turn + 1, "user", f"message {turn}", f"user {turn}", 1_500)
        call = sent(book.trial_id, book.attempt, turn, now, blocks=2 * turn + 2)
        await book.sent(call)
        book.ended(ended(call, usage_of_turn(turn, expired=False)))
        book.message("solo", 0, 2 * turn + 2, "assistant", [{"type": "tool_use"}], f"assistant {turn}", 500)
        now += timedelta(seconds=20)
        book.handover("reviewer", VERDICT.handover(verdict, "t"), now, call.key)
    if not ends:
        book.message("solo", 0, 2 * len(verdicts) + 1, "user", "more", "more", 1_500)
        # What was noted before it is on the disk once it is.
        await book.sent(sent(book.trial_id, book.attempt, len(verdicts), now, blocks=2 * len(verdicts) + 2))
    else:
        await book.attempt_ended(
            ended_by="submitted", outcome="passed", unscored_reason=None, reward=1.0, passed=True, changed=True,
            started_at=EPOCH, ended_at=now, wall_started_at=EPOCH, wall_ended_at=now,
        )  # fmt: skip


async def events(path: Path, *verdicts: Verdict) -> list[Event]:
    async with Journal(path) as journal:
        await review(TrialJournal(journal, TRIAL, 1), *verdicts)
    (found,) = Segment(path).attempts().values()
    return found


ROWS = (
    "SELECT number, role, lane, turn, call, round, handover, reviewed, verdict, confidence, truth, "
    "epoch(given_at - (SELECT min(started_at) FROM attempts)) FROM reviews ORDER BY number"
)


def expected(keys: list[str]) -> list[tuple[object, ...]]:
    return [
        (1, "reviewer", "solo", 0, keys[0], 1, 1, 0, "reject", 0.75, None, 20.0),
        (2, "reviewer", "solo", 1, keys[1], 2, 3, 2, "approve", 1.0, None, 40.0),
    ]


async def test_each_verdict_is_a_row_with_its_call_its_round_and_the_work_it_judges(tmp_path: Path) -> None:
    path = tmp_path / "x.duckdb"
    store = Store(path)
    store.register(PLAN, MODELS)
    live = journal_folder(path)
    async with Journal(live / "live.jsonl") as journal:
        await review(TrialJournal(journal, TRIAL, 1), REJECT, APPROVE, ends=False)
        keys = [key for (key,) in query(path, "SELECT key FROM calls ORDER BY requested_at").rows]
        assert query(path, ROWS).rows == expected(keys), "a reader sees what is not merged yet"
    store.recover()
    assert query(path, ROWS).rows == expected(keys)
    ((told,),) = query(path, "SELECT findings FROM reviews WHERE number = 1").rows
    plain, odd = json.loads(told)
    assert plain == {"file": "a.py", "line": 3, "problem": "It is off by one."}
    assert (odd["line"], odd["problem"]) == (None, "What is [bold]this[/bold]?\nNobody knows.")
    store.rebuild_charges(PLAN.experiment)
    assert query(path, ROWS).rows == expected(keys), "a rebuild leaves raw rows alone"


async def test_a_verdict_of_no_call_of_the_attempt_is_damage_and_one_without_a_form_is_no_review(
    tmp_path: Path,
) -> None:
    found = await events(tmp_path / "one.jsonl", REJECT)
    assert [row["verdict"] for row in raw_rows(found, alive=False)["reviews"]] == ["reject"]
    plain = [{name: value for name, value in event.items() if name not in ("review", "call")} for event in found]
    assert raw_rows(plain, alive=False)["reviews"] == [], "hand-overs of an older journal"
    strange = [event | {"call": "another"} if "review" in event else event for event in found]
    with pytest.raises(KeyError):
        raw_rows(strange, alive=False)
    wrong = [event | {"review": "yes"} if "review" in event else event for event in found]
    with pytest.raises(JournalDamaged, match="do not fit together"):
        attempt_rows(wrong, None, alive=False)  # type: ignore[arg-type]  # it comes to no booking


async def test_an_older_file_gets_the_table_and_keeps_its_rows(tmp_path: Path) -> None:
    import duckdb

    path = tmp_path / "x.duckdb"
    store = Store(path)
    store.register(PLAN, MODELS)
    number = 1 + migrations.MIGRATIONS.index("0004_reviews")
    with duckdb.connect(str(path)) as connection:
        connection.execute("DROP TABLE reviews; DROP TABLE rewrites")
        connection.execute("DELETE FROM migrations WHERE number >= ? OR number = ?", [number, migrations.VIEWS])
    assert query(path, "SELECT count(*) FROM reviews").rows == [(0,)]
    assert Store(path).merge([await events(tmp_path / "one.jsonl", APPROVE)]) == []
    assert query(path, "SELECT verdict FROM reviews").rows == [("approve",)]


async def test_show_prints_each_verdict_with_its_findings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.duckdb"
    store = Store(path)
    store.register(PLAN, MODELS)
    assert store.merge([await events(tmp_path / "one.jsonl", REJECT, APPROVE)]) == []
    with pytest.raises(SystemExit) as end:
        main(["show", TRIAL, "--db", str(path)])
    shown, wrong = capsys.readouterr()
    assert (end.value.code, wrong) == (0, "")
    assert "verdict -> to worker: reject, confidence 0.75" in shown
    assert "a.py:3: It is off by one." in shown
    assert "What is [bold]this[/bold]? Nobody knows." in shown
    assert "verdict -> end: approve, confidence 1.00" in shown
    assert "\x1b[31m" not in shown
