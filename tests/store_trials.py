"""Small plans, and attempts of their trials as agents would book them, for the tests of the store."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from agents.handover import Handover
from cost_model.calls import CallEnded, CallSent, call_key
from experiments.plan import Plan, PlannedArm, PlannedTask, PlannedTrial, trial_id
from experiments.store.journal import Event, Journal
from experiments.store.ledger import ModelFacts
from experiments.store.reader import Answer, Reader
from experiments.store.segment import Segment
from experiments.store.store import Store
from experiments.store.trial import TrialJournal

EPOCH = datetime(2026, 11, 24, 12, 0, tzinfo=UTC)

MODELS = {
    "dear": ModelFacts("anthropic_messages", "anthropic", "claude-opus-5-5", False, "anthropic-1024"),
    "cheap": ModelFacts("openai_chat", "deepseek", "deepseek-v4-flash", False, "deepseek"),
    "own": ModelFacts("openai_chat", "local", None, True, "none"),
}


def small_plan(
    experiment: str = "demo",
    arms: Iterable[str] = ("solo", "chain"),
    tasks: Iterable[str] = ("alpha", "beta"),
    repeats: int = 2,
    salt: str = "",
) -> Plan:
    arms, tasks = tuple(arms), tuple(tasks)
    places = [(arm, task, repeat) for repeat in range(repeats) for task in tasks for arm in arms]
    trials = tuple(
        PlannedTrial(trial_id(experiment, arm, task, repeat), arm, task, repeat, f"{n:016x}", f"{arm}/{task}{salt}", n)
        for n, (arm, task, repeat) in enumerate(places)
    )
    return Plan(
        experiment=experiment,
        description="a small plan",
        simulated=True,
        seed=7,
        repeats=repeats,
        pass_threshold=1.0,
        virtual_epoch=EPOCH,
        prices_at=None,
        arms=tuple(PlannedArm(arm, "solo", {"solo": "dear"}, {"topology": "solo", "salt": salt}) for arm in arms),
        tasks=tuple(PlannedTask(task, f"digest of {task}", "shell", {"digest": task}) for task in tasks),
        trials=trials,
    )


def sent(trial: str, attempt: int, turn: int, at: datetime, *, blocks: int, lane: str = "solo") -> CallSent:
    return CallSent(
        key=call_key(trial, attempt, lane, turn, 1),
        trial_id=trial,
        attempt=attempt,
        role=lane,
        lane=lane,
        version=0,
        turn=str(turn),
        try_number=1,
        model="dear",
        wire_model="claude-opus-5-5",
        provider="anthropic",
        flavour="anthropic_messages",
        lifetime=None,
        blocks=blocks,
        prompt_bytes=16_000 + 2_000 * turn,
        max_output_tokens=1_000,
        requested_at=at,
        simulated=True,
    )


def ended(call: CallSent, usage: dict[str, object] | None, *, outcome: str = "complete") -> CallEnded:
    return CallEnded(
        key=call.key,
        outcome=outcome,  # type: ignore[arg-type]  # tests hand on names of outcomes
        status=200,
        first_token_at=call.requested_at + timedelta(seconds=1),
        ended_at=call.requested_at + timedelta(seconds=4),
        usage=usage,
        response_id=f"msg-{call.key}",
        response_model="claude-opus-5-5",
        request_id=None,
        finish_reason="tool_use",
        error=None,
    )


def usage_of_turn(turn: int, *, expired: bool = False) -> dict[str, object]:
    """A prompt of 4,000 tokens that grows by 500 a turn; when it expired all of it is written again."""
    total, before = 4_000 + 500 * turn, 4_000 + 500 * (turn - 1)
    read = 0 if turn == 0 or expired else before
    return {
        "input_tokens": 0,
        "cache_read_input_tokens": read,
        "cache_creation_input_tokens": total - read,
        "cache_creation": {"ephemeral_5m_input_tokens": total - read, "ephemeral_1h_input_tokens": 0},
        "output_tokens": 100,
    }


async def play(
    book: TrialJournal, *, turns: int = 3, idle_s: float = 20.0, ended_by: str | None = "submitted", passed: bool = True
) -> None:
    """One attempt of a solo trial. `ended_by` None leaves it open, its last call without an answer."""
    now = EPOCH
    await book.attempt_started(started_at=now, wall_started_at=now, backend="bubblewrap", notes="a note")
    book.role("solo", "solo", "dear", "You solve tasks.", [{"name": "bash"}])
    book.message("solo", 0, 0, "system", {"system": "You solve tasks."}, "head", 12_000)
    for turn in range(turns):
        book.message("solo", 0, 2 * turn + 1, "user", f"message {turn}", f"user {turn}", 1_500)
        call = sent(book.trial_id, book.attempt, turn, now, blocks=2 * turn + 2)
        await book.sent(call)
        if ended_by is None and turn == turns - 1:
            return
        answered = ended(call, usage_of_turn(turn, expired=turn > 0 and idle_s > 300))
        book.ended(answered)
        book.judged(call.key, True)
        book.message("solo", 0, 2 * turn + 2, "assistant", [{"type": "tool_use"}], f"assistant {turn}", 500)
        book.command("solo", turn, "ls -l", 0, "total 0\n", 8, False, answered.ended_at, answered.ended_at)
        book.span("turn", "solo", str(turn), now, answered.ended_at)
        now += timedelta(seconds=idle_s)
    book.handover("solo", Handover("submit", None, "done", "tool-1"), now)
    if ended_by is None:
        return
    if ended_by in ("cancelled", "infra_error"):
        outcome, reason, reward, verdict = "unscored", ended_by, None, None
    else:
        outcome, reason, reward, verdict = ("passed" if passed else "failed"), None, float(passed), passed
        book.reward(rewards={"reward": float(passed)}, unscored_reason=None, output="ok", seconds=0.5)
    await book.attempt_ended(
        ended_by=ended_by, outcome=outcome, unscored_reason=reason, reward=reward, passed=verdict, changed=True,
        started_at=EPOCH, ended_at=now, wall_started_at=EPOCH, wall_ended_at=EPOCH + timedelta(seconds=2),
    )  # fmt: skip


async def written(path: Path, attempts: Iterable[tuple[str, int, str | None]], **how: float) -> list[list[Event]]:
    """Plays (trial, attempt, ended_by) each into the segment at `path`; returns the events of each, as read back."""
    async with Journal(path) as journal:
        for trial, attempt, ended_by in attempts:
            await play(TrialJournal(journal, trial, attempt), ended_by=ended_by, **how)  # type: ignore[arg-type]  # ints too
    return list(Segment(path).attempts().values())


def ask(store: Store, sql: str, *parameters: object) -> Answer:
    with Reader(store.path) as reader:
        return reader.query(sql, parameters)
