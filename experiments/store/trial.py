"""The events of one attempt of a trial, as they are written: the runner gives this to agents as Book and Record."""

from collections.abc import Mapping
from dataclasses import fields
from datetime import datetime
from typing import Protocol

from agents.context import Rewrite
from agents.handover import Handover
from agents.verdict import Verdict
from cost_model.calls import CallEnded, CallSent
from experiments.store.journal import Event, encode
from experiments.store.segment import decode

_SENT = tuple(field.name for field in fields(CallSent))
_ENDED = tuple(field.name for field in fields(CallEnded))
_REWRITE = tuple(field.name for field in fields(Rewrite))


class Lines(Protocol):
    """Where the events go, a line each: experiments.store.journal.Journal, which tells what its methods raise."""

    def note(self, line: bytes) -> None: ...

    async def durable(self, line: bytes) -> None: ...


class TrialJournal:
    """Implements cost_model.calls.Book and agents.record.Record. Attempts count from 1.

    Every method raises JournalFull when the journal cannot be written. Call `attempt_started` first and
    `attempt_ended` last: what is written after it is not kept.
    """

    def __init__(self, journal: Lines, trial_id: str, attempt: int) -> None:
        self.trial_id = trial_id
        self.attempt = attempt
        self._journal = journal
        self._lines: list[bytes] = []

    def events(self) -> list[Event]:
        """All of this attempt so far, exactly as they would be read back from the disk."""
        return [decode(line, f"{self.trial_id}/{self.attempt}") for line in self._lines]

    async def attempt_started(
        self, *, started_at: datetime, wall_started_at: datetime, backend: str, notes: str | None = None
    ) -> None:
        """`backend` is the sandbox's name; `started_at` is on the trial's clock."""
        await self._durable(
            "attempt_started", started_at=started_at, wall_started_at=wall_started_at, backend=backend, notes=notes
        )

    def reward(
        self, *, rewards: Mapping[str, float] | None, unscored_reason: str | None, output: str, seconds: float
    ) -> None:
        """The verifier's verdict; `seconds` it took on the wall clock."""
        self._note("reward", rewards=rewards, unscored_reason=unscored_reason, output=output, seconds=seconds)

    async def attempt_ended(
        self,
        *,
        ended_by: str,
        outcome: str,
        unscored_reason: str | None,
        reward: float | None,
        passed: bool | None,
        changed: bool | None,
        started_at: datetime,
        ended_at: datetime,
        wall_started_at: datetime,
        wall_ended_at: datetime,
        error: str | None = None,
    ) -> None:
        await self._durable(
            "attempt_ended", ended_by=ended_by, outcome=outcome, unscored_reason=unscored_reason, reward=reward,
            passed=passed, changed=changed, started_at=started_at, ended_at=ended_at,
            wall_started_at=wall_started_at, wall_ended_at=wall_ended_at, error=error,
        )  # fmt: skip

    async def sent(self, call: CallSent) -> None:
        await self._write_durable({"kind": "sent", **{name: getattr(call, name) for name in _SENT}})

    def ended(self, call: CallEnded) -> None:
        self._write_note({"kind": "ended", **{name: getattr(call, name) for name in _ENDED}})

    def judged(self, key: str, tool_calls_valid: bool) -> None:
        self._write_note({"kind": "judged", "key": key, "tool_calls_valid": tool_calls_valid})

    def role(self, role: str, lane: str, model: str, prompt: str, tools: object) -> None:
        self._note("role", role=role, lane=lane, model=model, prompt=prompt, tools=tools)

    def message(self, lane: str, version: int, idx: int, role: str, content: object, hash: str, size: int) -> None:
        self._note("message", lane=lane, version=version, idx=idx, role=role, content=content, hash=hash, size=size)

    def rewrite(self, rewrite: Rewrite) -> None:
        self._note("rewrite", **{name: getattr(rewrite, name) for name in _REWRITE})

    def command(
        self, lane: str, turn: int, command: str, exit_code: int | None, output: str, size: int, timed_out: bool,
        started_at: datetime, ended_at: datetime, refused: str | None = None,
    ) -> None:  # fmt: skip
        self._note(
            "command", lane=lane, turn=turn, command=command, exit_code=exit_code, output=output, size=size,
            timed_out=timed_out, started_at=started_at, ended_at=ended_at,
            **({} if refused is None else {"refused": refused}),
        )  # fmt: skip

    def span(self, kind: str, lane: str, name: str, started_at: datetime, ended_at: datetime) -> None:
        self._note("span", span_kind=kind, lane=lane, name=name, started_at=started_at, ended_at=ended_at)

    def handover(self, from_role: str, handover: Handover, at: datetime, call: str = "") -> None:
        form = handover.form
        review = {"review": form.model_dump(mode="json")} if isinstance(form, Verdict) else {}
        self._note(
            "handover", from_role=from_role, to_role=handover.to_role, handover_kind=handover.kind,
            payload=handover.payload, at=at, call=call or None,
            reason=form.verdict if isinstance(form, Verdict) else handover.kind, **review,
        )  # fmt: skip

    def visit_ended(self, role: str, ended_by: str, at: datetime, call: str | None) -> None:
        self._note(
            "handover", from_role=role, to_role=None, handover_kind=None, payload=None, at=at, call=call,
            reason=ended_by,
        )  # fmt: skip

    def review_copied(
        self, *, number: int, role: str, at: datetime, seconds: float, fault: str | None, verify: bool, keep: bool
    ) -> None:
        """The `number`-th copy of the attempt was taken for a role that is about to judge; `fault` says why not. It is
        to be verified, and kept. `seconds` it took on the wall clock."""
        self._note(
            "review_copied", number=number, role=role, at=at, seconds=seconds, fault=fault, verify=verify, keep=keep
        )

    def review_truth(
        self, *, number: int, reward: float | None, passed: bool | None, unscored_reason: str | None,
        seconds: float | None,
    ) -> None:  # fmt: skip
        """What the verifier said of that copy."""
        self._note(
            "review_truth", number=number, reward=reward, passed=passed, unscored_reason=unscored_reason,
            seconds=seconds,
        )  # fmt: skip

    def state_kept(
        self, *, number: int, stored_at: datetime, hash: str | None = None, size: int | None = None,
        format: str | None = None, fault: str | None = None,
    ) -> None:  # fmt: skip
        """Where that copy is kept, or why it is not; `size` of the archive in bytes."""
        self._note("state_kept", number=number, stored_at=stored_at, hash=hash, size=size, format=format, fault=fault)

    def _event(self, kind: str, values: Mapping[str, object]) -> Event:
        return {"kind": kind, "trial_id": self.trial_id, "attempt": self.attempt, **values}

    def _note(self, kind: str, **values: object) -> None:
        self._write_note(self._event(kind, values))

    async def _durable(self, kind: str, **values: object) -> None:
        await self._write_durable(self._event(kind, values))

    def _write_note(self, event: Event) -> None:
        line = encode(event)
        self._journal.note(line)
        self._lines.append(line)

    async def _write_durable(self, event: Event) -> None:
        line = encode(event)
        # Kept before the wait: a cancellation in it does not undo the write.
        self._lines.append(line)
        await self._journal.durable(line)
