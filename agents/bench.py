"""Where a role's tools work: its shell, on the trial's clock, with every command recorded."""

from dataclasses import dataclass, field

from agents.command_policy import CommandPolicy
from agents.errors import CommandRefused, DeadlinePassed, VisitEnded
from agents.seat import Seat
from agents.tools.sandbox_tool import Told
from agents.wire_text import wire_text
from harbor_tasks.sandbox import Output


@dataclass(slots=True)
class RoleBench:
    """One role's. `lane` and `turn` say whose a command is, `tool_seconds` what one takes on a simulated clock: the
    role sets them before it lets its tools work."""

    seat: Seat
    policy: CommandPolicy | None = None
    lane: str = ""
    turn: int = 0
    tool_seconds: float = 0.0
    _repeated: list[tuple[str, str]] = field(default_factory=list, init=False)

    async def run(self, command: str, told: Told | None = None) -> tuple[Output, float]:
        """The output, and the seconds after which the command would have been stopped.

        What is stored of a tool's own command is what it was told to do. Raises CommandRefused when the policy does not
        let it run, VisitEnded when time is up or the role goes round in circles."""
        seat, clock, limits = self.seat, self.seat.clock, self.seat.limits
        seat.check_deadline()
        shown = command if told is None else told.text
        key = shown if told is None else f"{told.text}\n{told.digest}"
        await self._check_policy(command, told, shown, key)
        seat.check_deadline()
        timeout_s = limits.command_timeout_s
        if limits.deadline is not None:
            timeout_s = min(timeout_s, clock.real_seconds_until(limits.deadline))
        async with seat.span("command", self.lane, "bash" if told is None else told.tool):
            started = clock.now()
            output = await seat.shell.run(command, timeout_s=timeout_s, keep=told is None)
            try:
                async with clock.deadline(limits.deadline):
                    await clock.sleep(self.tool_seconds)
            except DeadlinePassed:
                raise VisitEnded("agent_timeout") from None
            finally:
                seat.record.command(
                    self.lane,
                    self.turn,
                    shown,
                    output.exit_code,
                    # Of a tool's own command the line that it prints of itself: what follows is base64.
                    output.text if told is None else output.text.partition("\n")[0],
                    output.size,
                    output.timed_out,
                    started,
                    clock.now(),
                )
        self._check_loop(key, output.text)
        return output, timeout_s

    def forget(self) -> None:
        """What was run so far is no beginning of a loop."""
        self._repeated.clear()

    async def _check_policy(self, command: str, told: Told | None, shown: str, key: str) -> None:
        if self.policy is None:
            return
        if told is None:
            if self.seat.judge is None:
                raise RuntimeError("a role's command_policy needs a judge at its seat")
            refused = await self.seat.judge.refusal(self.policy, command)
        else:
            refused = self.policy.writing_refusal(told.tool) if told.writes else None
        if refused is None:
            return
        refused = wire_text(refused)
        now = self.seat.clock.now()
        self.seat.record.command(self.lane, self.turn, shown, None, "", 0, False, now, now, refused)
        self._check_loop(key, refused)
        raise CommandRefused(refused)

    def _check_loop(self, command: str, output: str) -> None:
        if self._repeated and self._repeated[0] != (command, output):
            self._repeated.clear()
        self._repeated.append((command, output))
        if len(self._repeated) >= self.seat.limits.loop_after:
            raise VisitEnded("loop")
