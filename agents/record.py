"""What a trial leaves behind besides calls: messages, commands, spans, hand-overs.

The runner's journal implements it.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from agents.context import Rewrite
from agents.handover import Handover


class Record(Protocol):
    """Rows of one trial's attempt. Everything is recorded in order and durable with the next durable call record."""

    def role(self, role: str, lane: str, model: str, prompt: str, tools: Sequence[object]) -> None:
        """Once, before the role's first message: the prompt as rendered and the tool schemas as sent, both without the
        nonce. `model` is the registry's name."""

    def message(self, lane: str, version: int, idx: int, role: str, content: object, hash: str, size: int) -> None:
        """Block `idx` of a lane: 0 is the head (tools and system), then each message once, and again under another
        `version` from the first one on that a rewriting altered. `size` in bytes, without the overlays (cache marks,
        nonce), which are no content. `content` is JSON-able."""

    def rewrite(self, rewrite: Rewrite) -> None:
        """Before the blocks of the new version."""

    def command(
        self,
        lane: str,
        turn: int,
        command: str,
        exit_code: int | None,
        output: str,
        size: int,
        timed_out: bool,
        started_at: datetime,
        ended_at: datetime,
        refused: str | None = None,
    ) -> None:
        """`refused` is why the role's policy did not let it run: then there is no exit code, and no output."""

    def span(self, kind: str, lane: str, name: str, started_at: datetime, ended_at: datetime) -> None:
        """kind: visit | turn | call | command | wait. Who held the floor, for an interval sweep."""

    def handover(self, from_role: str, handover: Handover, at: datetime, call: str = "") -> None:
        """`call` is the key of the call that handed over."""

    def visit_ended(self, role: str, ended_by: str, at: datetime, call: str | None) -> None:
        """A visit that ended without a hand-over; `call` is the last that was answered in it."""
