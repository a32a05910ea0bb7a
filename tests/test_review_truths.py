"""Truths and states in the database: told of the right verdict, read live and merged, kept over upgrades."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from agents.handover import Handover
from agents.verdict import Verdict
from experiments.cli import main
from experiments.errors import JournalDamaged
from experiments.store import migrations
from experiments.store.attempts import attempt_rows, raw_rows
from experiments.store.journal import Journal, journal_folder
from experiments.store.reader import query
from experiments.store.segment import Segment
from experiments.store.store import Store
from experiments.store.trial import TrialJournal
from tests.store_trials import EPOCH, MODELS, ended, sent, small_plan, usage_of_turn
from topologies.worker_reviewer import SUBMIT, VERDICT

REJECT = Verdict(verdict="reject", confidence=0.75, findings=[])
APPROVE = Verdict(verdict="approve", confidence=1.0, findings=[])
PLAN = small_plan(tasks=["one", "two"])
TRIAL, OTHER = PLAN.trials[0].id, next(trial.id for trial in PLAN.trials if trial.task != PLAN.trials[0].task)
HASH = "5" * 64


class Played:
    """One attempt of a worker and a reviewer, an event at a time."""

    def __init__(self, book: TrialJournal) -> None:
        self.book, self.now, self.turn = book, EPOCH, 0

    async def begin(self) -> None:
        await self.book.attempt_started(started_at=EPOCH, wall_started_at=EPOCH, backend="bubblewrap")
        self.book.message("solo", 0, 0, "system", {"system": "You review."}, "head", 12_000)

    def copied(self, number: int, fault: str | None = None, *, verify: bool = True, keep: bool = True) -> None:
        self.book.review_copied(
            number=number, role="reviewer", at=self.now, seconds=0.25, fault=fault, verify=verify, keep=keep
        )

    def truth(self, number: int, reward: float | None, reason: str | None = None) -> None:
        passed = None if reward is None else reward >= 1
        self.book.review_truth(number=number, reward=reward, passed=passed, unscored_reason=reason, seconds=1.5)

    def kept(self, number: int, name: str = HASH) -> None:
        self.book.state_kept(number=number, stored_at=EPOCH + timedelta(number), hash=name, size=9, format="tar.gz")

    async def verdict(self, verdict: Verdict) -> None:
        self.book.handover("worker", Handover(SUBMIT.name, "reviewer", "report", "t"), self.now, "a call")
        self.book.message("solo", 0, 2 * self.turn + 1, "user", "m", f"user {self.turn}", 1_500)
        call = sent(self.book.trial_id, 1, self.turn, self.now, blocks=2 * self.turn + 2)
        await self.book.sent(call)
        self.book.ended(ended(call, usage_of_turn(self.turn, expired=False)))
        self.book.message("solo", 0, 2 * self.turn + 2, "assistant", [], f"assistant {self.turn}", 500)
        self.turn += 1
        self.now += timedelta(seconds=20)
        self.book.handover("reviewer", VERDICT.handover(verdict, "t"), self.now, call.key)

    async def end(self) -> None:
        await self.book.attempt_ended(
            ended_by="submitted", outcome="passed", unscored_reason=None, reward=1.0, passed=True, changed=True,
            started_at=EPOCH, ended_at=self.now, wall_started_at=EPOCH, wall_ended_at=self.now,
        )  # fmt: skip


async def both(book: TrialJournal, *, ends: bool = True) -> None:
    """The truth of the first verdict comes after the second one."""
    played = Played(book)
    await played.begin()
    played.copied(1)
    await played.verdict(REJECT)
    played.kept(2)
    played.copied(2)
    await played.verdict(APPROVE)
    played.truth(2, 1.0)
    played.truth(1, 0.5)
    played.kept(1)
    played.copied(3)
    played.truth(3, 1.0)
    if ends:
        await played.end()
    else:
        await book.sent(sent(book.trial_id, 1, 9, played.now, blocks=5))


COPIES = (
    "SELECT number, verdict, truth, truth_reward, truth_seconds, truth_reason, copy_seconds, state, state_reason "
    "FROM reviews WHERE trial_id = '{trial}' ORDER BY number"
)
EXPECTED = [
    (1, "reject", False, 0.5, 1.5, None, 0.25, HASH, None),
    (2, "approve", True, 1.0, 1.5, None, 0.25, HASH, None),
]
STATES = "SELECT hash, size, format, trial_id, attempt, review, epoch(stored_at)::BIGINT FROM states ORDER BY hash"
MOMENT = int((EPOCH + timedelta(2)).timestamp())


async def test_each_verdict_has_the_truth_and_the_state_of_its_own_copy_live_and_merged(tmp_path: Path) -> None:
    path = tmp_path / "x.duckdb"
    store = Store(path)
    store.register(PLAN, MODELS)
    async with Journal(journal_folder(path) / "live.jsonl") as journal:
        await both(TrialJournal(journal, TRIAL, 1), ends=False)
        await both(TrialJournal(journal, OTHER, 1))
        assert query(path, COPIES.format(trial=TRIAL)).rows == EXPECTED
        assert len(query(path, STATES).rows) == 1, "two attempts kept the same state"
    store.recover()
    for trial in (TRIAL, OTHER):
        assert query(path, COPIES.format(trial=trial)).rows == EXPECTED
    ((name, *rest, moment),) = query(path, STATES).rows
    assert (name, rest[:2], rest[3:], moment) == (HASH, [9, "tar.gz"], [1, 2], MOMENT)
    async with Journal(journal_folder(path) / "again.jsonl") as journal:
        await both(TrialJournal(journal, OTHER, 2))
        assert len(query(path, STATES).rows) == 1, "one is merged, the other is not"
    store.rebuild_charges(PLAN.experiment)
    assert query(path, COPIES.format(trial=TRIAL)).rows == EXPECTED


async def told(tmp_path: Path, number: int = 0, *, ends: bool = True, **copied: Any) -> dict[str, Any]:
    path = tmp_path / f"{number}.jsonl"
    async with Journal(path) as journal:
        played = Played(TrialJournal(journal, TRIAL, 1))
        await played.begin()
        played.copied(1, **copied)
        await played.verdict(APPROVE)
        await (played.end() if ends else played.book.sent(sent(TRIAL, 1, 9, EPOCH, blocks=5)))
    (events,) = Segment(path).attempts().values()
    (row,) = raw_rows(events, alive=not ends)["reviews"]
    return row


async def test_a_truth_that_is_not_known_says_why(tmp_path: Path) -> None:
    def reasons(row: dict[str, Any]) -> tuple[object, ...]:
        return row["truth"], row["truth_reason"], row["state"], row["state_reason"]

    ended_before = "the attempt ended before"
    assert reasons(await told(tmp_path, 1, fault="no copy")) == (None, "no copy", None, "no copy")
    assert reasons(await told(tmp_path, 2)) == (None, ended_before, None, ended_before)
    assert reasons(await told(tmp_path, 3, ends=False)) == (None, None, None, None), "it may still come"
    assert reasons(await told(tmp_path, 4, verify=False)) == (None, None, None, ended_before)
    assert reasons(await told(tmp_path, 5, keep=False)) == (None, ended_before, None, None)


async def test_events_that_name_no_copy_are_damage(tmp_path: Path) -> None:
    async with Journal(tmp_path / "one.jsonl") as journal:
        await both(TrialJournal(journal, TRIAL, 1))
    (events,) = Segment(tmp_path / "one.jsonl").attempts().values()
    for kind in ("review_copied", "review_truth", "state_kept"):
        torn = [
            {name: value for name, value in event.items() if event["kind"] != kind or name != "number"}
            for event in events
        ]
        with pytest.raises(JournalDamaged, match="do not fit together"):
            attempt_rows(torn, None, alive=False)  # type: ignore[arg-type]  # it comes to no booking


async def test_an_older_file_gets_the_columns_and_keeps_its_reviews(tmp_path: Path) -> None:
    import duckdb

    path = tmp_path / "x.duckdb"
    store = Store(path)
    store.register(PLAN, MODELS)
    added = ("truth_reward", "truth_seconds", "truth_reason", "copy_seconds", "state", "state_reason")
    with duckdb.connect(str(path)) as connection:
        for (view,) in connection.execute("SELECT view_name FROM duckdb_views() WHERE NOT internal").fetchall():
            connection.execute(f"DROP VIEW {view}")
        connection.execute("DROP TABLE states")
        for column in added:
            connection.execute(f"ALTER TABLE reviews DROP COLUMN {column}")
        connection.execute(
            "INSERT INTO reviews VALUES "
            "('t', 1, 1, 'reviewer', 'l', 0, 'c', 1, 1, 0, 'approve', 0.5, '[]', now(), NULL)"
        )
        number = 1 + migrations.MIGRATIONS.index("0006_states")
        connection.execute("DELETE FROM migrations WHERE number >= ? OR number = ?", [number, migrations.VIEWS])
    assert query(path, f"SELECT verdict, {', '.join(added)} FROM reviews").rows == [  # noqa: S608
        ("approve", *[None] * 6)
    ]
    async with Journal(tmp_path / "one.jsonl") as journal:
        await both(TrialJournal(journal, TRIAL, 1))
    assert Store(path).merge(list(Segment(tmp_path / "one.jsonl").attempts().values())) == []
    assert query(path, COPIES.format(trial=TRIAL)).rows == EXPECTED


async def test_show_says_why_a_truth_is_not_known(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.duckdb"
    store = Store(path)
    store.register(PLAN, MODELS)
    async with Journal(journal_folder(path) / "one.jsonl") as journal:
        played = Played(TrialJournal(journal, TRIAL, 1))
        await played.begin()
        played.copied(1)
        played.truth(1, None, "verifier error:\x1b[31m red\nlines")
        await played.verdict(REJECT)
        await played.end()
    store.recover()
    with pytest.raises(SystemExit):
        main(["show", TRIAL, "--db", str(path)])
    shown = " ".join(capsys.readouterr().out.split())
    assert "reject, confidence 0.75; whether the work was right is not known: verifier error:" in shown
    assert "\x1b[31m" not in shown


async def test_reviewers_are_judged_by_final_attempts_and_by_what_is_known(tmp_path: Path) -> None:
    path = tmp_path / "x.duckdb"
    store = Store(path)
    store.register(PLAN, MODELS)
    async with Journal(journal_folder(path) / "one.jsonl") as journal:
        broken = Played(TrialJournal(journal, TRIAL, 1))
        await broken.begin()
        broken.copied(1)
        broken.truth(1, 1.0)
        await broken.verdict(REJECT)
        final = Played(TrialJournal(journal, OTHER, 1))
        await final.begin()
        for number, (verdict, reward) in enumerate(
            [(REJECT, 0.0), (APPROVE, 0.0), (REJECT, 0.9), (REJECT, 1.0), (APPROVE, 1.0), (REJECT, None)], start=1
        ):
            final.copied(number)
            final.truth(number, reward, None if reward is not None else "timed out")
            await final.verdict(verdict)
        await final.end()
    store.recover()
    names, (row,) = query(path, "SELECT * EXCLUDE (experiment, arm, role, model, simulated) FROM reviewer_quality")
    found = dict(zip(names, row, strict=True))
    rates = {name: found.pop(name) for name in ("recall", "miss_rate", "false_reject_rate")}
    assert found == {
        "reviews": 6, "truths": 5, "wrong": 3, "caught": 2, "missed": 1, "right": 2, "false_rejects": 1,
    }  # fmt: skip
    assert rates == {"recall": 2 / 3, "miss_rate": 1 / 3, "false_reject_rate": 0.5}
