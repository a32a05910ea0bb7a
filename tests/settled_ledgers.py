"""One trial whose calls a bill settles, and the lines of such a bill."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from experiments.cli import main
from experiments.reconciling import Reconciled, reconcile_bills
from experiments.store.journal import Journal, journal_folder
from experiments.store.reader import Reader
from experiments.store.segment import segments
from experiments.store.store import Store
from experiments.store.trial import TrialJournal
from tests.store_trials import EPOCH, MODELS, ended, sent, small_plan, usage_of_turn

PLAN = small_plan(arms=("solo",), tasks=("alpha",), repeats=1)
TRIAL = PLAN.trials[0].id
LOST = f"{TRIAL}/1/solo/1/1"
COMPUTED = (
    "key, idle_s, prompt_tokens, input_tokens, cache_read_tokens, cache_write_5m_tokens, output_tokens, basis, "
    "list_usd, cost_usd, cost_low_usd, cost_high_usd, excess_usd, unexplained_read_tokens"
)


WIRE = "claude-opus-5-5"


async def played(
    path: Path, usages: Sequence[dict[str, object] | None], *, died: bool = False, wire: str = WIRE
) -> None:
    """One attempt whose calls have these usages; None: the answer broke off, or with `died` nobody recorded it."""
    async with Journal(path) as journal:
        book = TrialJournal(journal, TRIAL, 1)
        await book.attempt_started(started_at=EPOCH, wall_started_at=EPOCH, backend="bubblewrap", notes="")
        book.role("solo", "solo", "dear", "You solve tasks.", [])
        book.message("solo", 0, 0, "system", {"system": "You solve tasks."}, "head", 12_000)
        now = EPOCH
        for turn, usage in enumerate(usages):
            book.message("solo", 0, 2 * turn + 1, "user", f"message {turn}", f"user {turn}", 1_500)
            call = replace(sent(TRIAL, 1, turn, now, blocks=2 * turn + 2), wire_model=wire)
            await book.sent(call)
            if usage is not None or not died:
                book.ended(ended(call, usage, outcome="complete" if usage else "cut"))
            book.message("solo", 0, 2 * turn + 2, "assistant", [], f"assistant {turn}", 500)
            now += timedelta(seconds=20)
        if not died:
            await book.attempt_ended(
                ended_by="submitted", outcome="failed", unscored_reason=None, reward=0.0, passed=False, changed=True,
                started_at=EPOCH, ended_at=now, wall_started_at=EPOCH, wall_ended_at=EPOCH,
            )  # fmt: skip


_MADE: dict[str, bytes] = {}
"""Databases as their tests find them: most begin with one that another began with."""


def stored(folder: Path, usages: Sequence[dict[str, object] | None], *, died: bool = False, wire: str = WIRE) -> Path:
    path = folder / "test.duckdb"
    described = json.dumps([usages, died, wire])
    if described not in _MADE:
        Store(path).register(PLAN, MODELS)
        asyncio.run(played(journal_folder(path) / "run.jsonl", usages, died=died, wire=wire))
        assert Store(path).recover().left == ()
        assert segments(path) == []
        _MADE[described] = path.read_bytes()
    path.write_bytes(_MADE[described])
    return path


def tokens_of(usage: dict[str, object]) -> dict[str, int]:
    read, written = usage["cache_read_input_tokens"], usage["cache_creation_input_tokens"]
    assert isinstance(read, int)
    assert isinstance(written, int)
    return {"cache_read": read, "cache_write_5m": written, "output": 100}


def bill_line(turn: int, tokens: dict[str, int], usd: str = "0.5", status: int = 200, model: str | None = WIRE) -> str:
    at = (EPOCH + timedelta(seconds=20 * turn)).isoformat()
    line = {
        "call": f"{TRIAL}/1/solo/{turn}/1", "response": None, "model": model, "tokens": tokens, "usd": usd,
        "requested_at": at, "status": status, "error": None,
    }  # fmt: skip
    return json.dumps(line) + "\n"


def bill_of(folder: Path, *lines: str) -> Path:
    path = folder / "bill.jsonl"
    path.write_text("".join(lines))
    return path


USAGES = [usage_of_turn(0), usage_of_turn(1), usage_of_turn(2)]
TOKENS = [tokens_of(usage) for usage in USAGES]


def computed(path: Path) -> tuple[list[tuple[object, ...]], list[tuple[object, ...]]]:
    with Reader(path) as reader:
        return (
            reader.query(f"SELECT {COMPUTED} FROM calls ORDER BY key").rows,  # noqa: S608
            reader.query("SELECT * FROM charges ORDER BY ALL").rows,
        )


def settled(path: Path, *lines: str, dry: bool = False) -> Reconciled:
    return reconcile_bills(path, "demo", [bill_of(path.parent, *lines)], dry=dry)


def run_command(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended_with:
        main(["reconcile", *arguments])
    assert isinstance(ended_with.value.code, int)
    return ended_with.value.code
