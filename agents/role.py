"""A role at work: model, tools, model, ... until it hands over.

A visit is a role's stay at a node of the graph. The role keeps one append-only lane over all its visits, which nothing
but its context policy rewrites, unless a visit begins anew: then it opens another, in which it knows only what it is
told. What the role does not know: who it hands over to next, and what anything costs.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from agents.arguments import Unfit
from agents.bench import RoleBench
from agents.caller import Caller
from agents.clients import Reply, ToolCall, ToolResult
from agents.context import Context
from agents.errors import CommandRefused, VisitEnded
from agents.handover import Handover, HandoverTool
from agents.lane import Lane, Message
from agents.room import make_room, record_block
from agents.seat import Seat
from agents.time_left import TimeLeft
from agents.tools import Tool
from agents.tools.shelf import SHELF

NUDGES = 2
"""So often in a row a role is told to use its tools before the visit ends."""

CANNOT_RUN = 126
"""The exit code that a shell gives a command that may not be run."""

NOT_RUN = "not run: an earlier call in this message handed your work over"


@dataclass(frozen=True, slots=True)
class _Pending:
    """A message's results that wait for one of them, the hand-over's, until the role is visited again."""

    before: tuple[ToolResult, ...]
    call_id: str
    after: tuple[ToolResult, ...]

    def answered(self, message: str) -> list[ToolResult]:
        return [*self.before, ToolResult(self.call_id, message), *self.after]


@dataclass(slots=True)
class Role:
    """Made by `agents.crew.hire`. `turns` counts over all visits, `open_lane` opens the role's n-th lane."""

    name: str
    caller: Caller
    bench: RoleBench
    open_lane: Callable[[int], Lane]
    lane: Lane
    tools: Sequence[Tool]
    handovers: Sequence[HandoverTool]
    seat: Seat
    one_answer: bool = False
    context: Context | None = None
    turns: int = 0
    _lanes: int = 1
    _pending: _Pending | None = None
    _last_call: str | None = None
    _time: TimeLeft = field(init=False)

    def __post_init__(self) -> None:
        self._time = TimeLeft(self.seat.clock, self.seat.limits)

    def begin_lane(self, lane: Lane) -> None:
        self.lane, self._pending = lane, None
        if self.context is not None:
            self.context.begin()
        record_block(self.seat.record, lane, lane.head)

    async def visit(self, message: str, *, anew: bool = False) -> Handover:
        """Works on `message` (at re-entry: the answer to the hand-over) until the role hands over.

        `anew`: on a new lane, whose first message is `message`. Nothing of the earlier ones is known there.

        Raises VisitEnded when it ends otherwise, ProviderRefused when the model cannot be had, and SpendingStopped when
        no more may be spent.
        """
        seat = self.seat
        if anew:
            await self.caller.rest()
            self.begin_lane(self.open_lane(self._lanes))
            self._lanes += 1
        self._last_call = None
        async with seat.clock.lane(self.lane.name), seat.span("visit", self.lane.name, self.name):
            with self._recorded_end():
                if self.context is not None:
                    self.context.told(message)
                self._hear(self._time.in_visit(message))
                return await self._turns()

    async def _turns(self) -> Handover:
        nudges = 0
        while True:
            self._check_limits()
            if self.context is not None and self.context.full:
                await make_room(self, self.context)
            self.turns += 1
            async with self.seat.span("turn", self.lane.name, str(self.turns)):
                reply, key = await self._next_reply()
                handover = await self._carry_out(reply, key) if reply.tool_calls else None
                if handover is not None:
                    return handover
                if self.one_answer and reply.ending != "paused":
                    raise VisitEnded("no_handover")
                if reply.tool_calls:
                    nudges = 0
                elif reply.mend:
                    self._append(self.caller.client.user(self._cut(reply) + reply.mend))
                elif reply.ending == "paused":
                    # Asked again as things stand, the provider goes on where it paused.
                    continue
                elif nudges == NUDGES:
                    raise VisitEnded("no_handover")
                else:
                    nudges += 1
                    self._append(self.caller.client.user(self._nudge(reply)))

    async def execute(self, commands: Sequence[str], *, stop: bool) -> list[int]:
        """For a node: runs in the role's shell what it handed over, each recorded and timed as a command of its own.

        The model hears nothing of it. `stop`: none follows one that fails. Returns their exit codes; one that the
        role's policy refuses is not run and counts as one that cannot be (126). Raises VisitEnded when time is up.
        """
        codes: list[int] = []
        async with self.seat.clock.lane(self.lane.name), self.seat.span("visit", self.lane.name, self.name):
            with self._recorded_end():
                for command in commands:
                    # Nobody goes round in circles who does not see what comes of it.
                    self.bench.forget()
                    try:
                        output, _ = await self.bench.run(command)
                    except CommandRefused:
                        codes.append(CANNOT_RUN)
                        failed = True
                    else:
                        codes.append(output.exit_code)
                        failed = output.exit_code != 0 or output.timed_out
                    if stop and failed:
                        break
        return codes

    @contextmanager
    def _recorded_end(self) -> Iterator[None]:
        """Records what ends inside without a hand-over; one is recorded where it is made."""
        try:
            yield
        except VisitEnded as end:
            self.seat.record.visit_ended(self.name, end.ended_by, self.seat.clock.now(), self._last_call)
            raise

    def _hear(self, message: str) -> None:
        if self._pending is None:
            self._append(self.caller.client.user(message))
        else:
            self._answer(self._pending.answered(message), self._pending.call_id)
            self._pending = None

    async def _next_reply(self) -> tuple[Reply, str]:
        reply, key = await self.caller.ask(self.lane, self.turns)
        self._last_call = key
        if reply.tool_calls or reply.mend:
            valid = not reply.mend and all(self._refusal(c, reply) is None for c in reply.tool_calls)
            self.seat.book.judged(key, valid)
        if reply.message is not None:
            self._append(reply.message)
        if self.context is not None:
            self.context.size = self.caller.size
        if reply.ending in ("refusal", "context_full"):
            raise VisitEnded("refusal" if reply.ending == "refusal" else "context_full")
        return reply, key

    async def _carry_out(self, reply: Reply, key: str) -> Handover | None:
        """Runs the calls in order and appends their results; a hand-over ends it, and its results wait for re-entry."""
        results: list[ToolResult] = []
        bench = self.bench
        bench.lane, bench.turn, bench.tool_seconds = self.lane.name, self.turns, reply.tool_seconds
        for position, call in enumerate(reply.tool_calls):
            refusal = self._refusal(call, reply)
            if refusal is not None:
                results.append(ToolResult(call.id, refusal, failed=True))
                continue
            arguments = self._tool(call.name).read(call.arguments)
            if call.name in SHELF:
                try:
                    results.append(ToolResult(call.id, await SHELF[call.name].act(arguments, bench)))
                except CommandRefused as refused:
                    results.append(ToolResult(call.id, str(refused), failed=True))
                continue
            handover = next(h for h in self.handovers if h.name == call.name).handover(arguments, call.id)
            after = tuple(ToolResult(c.id, NOT_RUN, failed=True) for c in reply.tool_calls[position + 1 :])
            self._pending = _Pending(tuple(results), call.id, after)
            self.seat.record.handover(self.name, handover, self.seat.clock.now(), key)
            return handover
        results[-1] = replace(results[-1], text=self._time.in_result(results[-1].text))
        self._answer(results)
        return None

    def _refusal(self, call: ToolCall, reply: Reply) -> str | None:
        """Why a call cannot be carried out as it came, told so that the model can mend it; None when it can."""
        if not any(tool.name == call.name for tool in self.tools):
            return f"error: there is no tool {call.name[:100]!r}; there are {', '.join(t.name for t in self.tools)}"
        try:
            self._tool(call.name).read(call.arguments)
        except Unfit as problem:
            if reply.ending == "max_tokens":
                most = self.caller.max_output_tokens
                return f"error: not run, your answer was cut at {most} tokens; make a shorter call"
            return f"error: not run, {problem}"
        return None

    def _check_limits(self) -> None:
        if self.turns >= self.seat.limits.max_turns:
            raise VisitEnded("max_turns")
        self.seat.check_deadline()
        self.seat.check_spending(self.name)

    def _nudge(self, reply: Reply) -> str:
        ways = " or ".join(h.name for h in self.handovers)
        return f"{self._cut(reply)}{self.caller.client.idle} When you are done, use {ways}."

    def _cut(self, reply: Reply) -> str:
        return (
            f"Your answer was cut at {self.caller.max_output_tokens} tokens. Be shorter. "
            if reply.ending == "max_tokens"
            else ""
        )

    def _tool(self, name: str) -> Tool:
        return next(tool for tool in self.tools if tool.name == name)

    def _answer(self, results: Sequence[ToolResult], handed_over: str | None = None) -> None:
        """`handed_over`: the call among those answered that a role answers, not a tool."""
        if self.context is not None:
            self.context.answering(results, handed_over)
        self._append(*self.caller.client.results(results))

    def _append(self, *messages: Message) -> None:
        for message in messages:
            block = self.lane.append(message)
            if self.context is not None:
                self.context.append(block)
            record_block(self.seat.record, self.lane, block)
