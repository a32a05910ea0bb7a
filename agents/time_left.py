"""What a role is told of the time that its trial has left: a line at the end of messages that are new anyhow.

Nothing that was said before changes, so that the cached prefix stays what it is.
"""

from dataclasses import dataclass

from agents.clock import Clock
from agents.limits import Limits

SHARES = (0.5, 0.25, 0.1)
"""Of the trial's time: told once each, as soon as no more is left."""


@dataclass(slots=True)
class TimeLeft:
    """One role's, over all its visits. `last_told` is the least of the SHARES that it has heard of."""

    clock: Clock
    limits: Limits
    last_told: float = 1.0

    def in_visit(self, message: str) -> str:
        """The message that a visit begins with, and the time left where it is due."""
        line = self._due(always=self.limits.tell_time == "always")
        return message if line is None else f"{message}\n\n{line}"

    def in_result(self, result: str) -> str:
        """A tool's result, and the time left where it is due."""
        line = self._due(always=False)
        return result if line is None else f"{result}{'' if result.endswith(chr(10)) else chr(10)}{line}"

    def _due(self, *, always: bool) -> str | None:
        deadline, whole = self.limits.deadline, self.limits.seconds
        if deadline is None or whole is None or self.limits.tell_time == "never":
            return None
        left = max(0.0, (deadline - self.clock.now()).total_seconds())
        reached = min((share for share in SHARES if left <= share * whole), default=1.0)
        if reached >= self.last_told and not always:
            return None
        self.last_told = min(reached, self.last_told)
        return f"[time: {int(left)} s of {whole:.0f} s left]"
