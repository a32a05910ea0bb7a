"""Where a role's tools work: its shell, on the trial's clock, with every command recorded."""

from dataclasses import dataclass, field

from agents.errors import DeadlinePassed, VisitEnded
from agents.seat import Seat
from harbor_tasks.sandbox import Output

LOOP = 5
"""The same command with the same output so often in a row is a loop."""


@dataclass(slots=True)
class RoleBench:
    """One role's. `lane` and `turn` say whose a command is, `tool_seconds` what one takes on a simulated clock: the
    role sets them before it lets its tools work."""

    seat: Seat
    lane: str = ""
    turn: int = 0
    tool_seconds: float = 0.0
    _repeated: list[tuple[str, str]] = field(default_factory=list, init=False)

    async def run(self, command: str) -> tuple[Output, float]:
        """The output, and the seconds after which the command would have been stopped. Raises VisitEnded when time is
        up or the role goes round in circles."""
        seat, clock, limits = self.seat, self.seat.clock, self.seat.limits
        seat.check_deadline()
        timeout_s = limits.command_timeout_s
        if limits.deadline is not None:
            timeout_s = min(timeout_s, clock.real_seconds_until(limits.deadline))
        async with seat.span("command", self.lane, "bash"):
            started = clock.now()
            output = await seat.shell.run(command, timeout_s=timeout_s)
            try:
                async with clock.deadline(limits.deadline):
                    await clock.sleep(self.tool_seconds)
            except DeadlinePassed:
                raise VisitEnded("agent_timeout") from None
            finally:
                seat.record.command(
                    self.lane,
                    self.turn,
                    command,
                    output.exit_code,
                    output.text,
                    output.size,
                    output.timed_out,
                    started,
                    clock.now(),
                )
        self._check_loop(command, output.text)
        return output, timeout_s

    def forget(self) -> None:
        """What was run so far is no beginning of a loop."""
        self._repeated.clear()

    def _check_loop(self, command: str, output: str) -> None:
        if self._repeated and self._repeated[0] != (command, output):
            self._repeated.clear()
        self._repeated.append((command, output))
        if len(self._repeated) >= LOOP:
            raise VisitEnded("loop")
