"""A role at work: model, tools, model, ... until it hands over.

A visit is a role's stay at a node of the graph. The role keeps one append-only lane over all its visits, unless a visit
begins anew: then it opens another, in which it knows only what it is told. What the role does not know: who it hands
over to next, and what anything costs.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime

from agents.arguments import Unfit
from agents.clients import Client, Reply, ToolCall, ToolResult
from agents.errors import DeadlinePassed, TryFailed, VisitEnded
from agents.handover import Handover, HandoverTool
from agents.keep_alive import KeepAlive, Pinger
from agents.lane import Lane, Message
from agents.registry import ModelEntry
from agents.retry import with_retries
from agents.seat import Seat
from agents.tools import Tool
from agents.tools.bash import BASH
from agents.tools.shelf import SHELF
from agents.transport.call import CallIdentity, CurrentCall
from cost_model.errors import UsageError
from cost_model.policies import POLICIES
from cost_model.usage import read_usage
from harbor_tasks.sandbox import Output

NUDGES = 2
"""So often in a row a role is told to use its tools before the visit ends."""

LOOP = 5
"""The same command with the same output so often in a row is a loop."""

NOT_RUN = "not run: an earlier call in this message handed your work over"


@dataclass(frozen=True, slots=True)
class _Pending:
    """A message's results that wait for one of them, the hand-over's, until the role is visited again."""

    before: tuple[ToolResult, ...]
    call_id: str
    after: tuple[ToolResult, ...]

    def answered(self, message: str) -> list[ToolResult]:
        return [*self.before, ToolResult(self.call_id, message), *self.after]


@dataclass(frozen=True, slots=True)
class _Bench:
    """What the role's tools may use of it. `tool_seconds`: what one command takes on a simulated clock."""

    role: "Role"
    tool_seconds: float

    async def run(self, command: str) -> tuple[Output, float]:
        return await self.role.run(command, self.tool_seconds)


@dataclass(slots=True)
class Role:
    """Made by `agents.crew.hire`. `turns` counts over all visits."""

    name: str
    entry: ModelEntry
    lifetime: str | None
    max_output_tokens: int
    client: Client
    open_lane: Callable[[int], Lane]
    lane: Lane
    tools: Sequence[Tool]
    handovers: Sequence[HandoverTool]
    seat: Seat
    turns: int = 0
    _lanes: int = 1
    _pinger: Pinger | None = None
    _pending: _Pending | None = None
    _repeated: list[tuple[str, str]] = field(default_factory=list)

    def begin_lane(self, lane: Lane) -> None:
        self.lane, self._pending = lane, None
        head = lane.head
        self.seat.record.message(lane.name, lane.version, head.index, head.role, head.content, head.hash, head.size)

    def keep_alive(self, plan: KeepAlive) -> None:
        """To be called before the first visit. Raises RuntimeError at a seat without a background."""
        if self.seat.background is None:
            raise RuntimeError(f"{self.name}: keep-alive pings need a background to be sent in")
        deadline = self.seat.limits.deadline
        self._pinger = Pinger(
            self.seat.background, plan, self._ping, clock=self.seat.clock, lane=f"{self.name} pings", deadline=deadline
        )

    async def visit(self, message: str, *, anew: bool = False) -> Handover:
        """Works on `message` (at re-entry: the answer to the hand-over) until the role hands over.

        `anew`: on a new lane, whose first message is `message`. Nothing of the earlier ones is known there.

        Raises VisitEnded when it ends otherwise, ProviderRefused when the model cannot be had, and SpendingStopped when
        no more may be spent.
        """
        if anew:
            if self._pinger is not None:
                await self._pinger.rest()
            self.begin_lane(self.open_lane(self._lanes))
            self._lanes += 1
        async with self.seat.clock.lane(self.lane.name), self._span("visit", self.name):
            self._hear(message)
            nudges = 0
            while True:
                self._check_limits()
                self.turns += 1
                async with self._span("turn", str(self.turns)):
                    reply = await self._next_reply()
                    if reply.tool_calls:
                        nudges = 0
                        handover = await self._carry_out(reply)
                        if handover is not None:
                            return handover
                    elif reply.mend:
                        self._append(self.client.user(self._cut(reply) + reply.mend))
                    elif reply.ending == "paused":
                        # Asked again as things stand, the provider goes on where it paused.
                        continue
                    elif nudges == NUDGES:
                        raise VisitEnded("no_handover")
                    else:
                        nudges += 1
                        self._append(self.client.user(self._nudge(reply)))

    def _hear(self, message: str) -> None:
        if self._pending is None:
            self._append(self.client.user(message))
        else:
            self._append(*self.client.results(self._pending.answered(message)))
            self._pending = None

    async def _next_reply(self) -> Reply:
        call = CurrentCall(self._identity(), self.seat.clock, self.seat.book)
        if self._pinger is not None:
            await self._pinger.rest()
        try:
            async with self.seat.clock.deadline(self.seat.limits.deadline):
                reply = await with_retries(
                    lambda: self._try(call), name=f"{self.entry.name} as {self.name}", sleep=self._back_off
                )
        except DeadlinePassed:
            raise VisitEnded("agent_timeout") from None
        if self._pinger is not None and call.requested_at is not None:
            lifetime = POLICIES[self.entry.cache].lifetime(self.lifetime)
            await self._pinger.go_on(call.requested_at, None if lifetime is None else call.requested_at + lifetime)
        if reply.tool_calls or reply.mend:
            valid = not reply.mend and all(self._refusal(c, reply) is None for c in reply.tool_calls)
            self.seat.book.judged(call.key, valid)
        if reply.message is not None:
            self._append(reply.message)
        if reply.ending in ("refusal", "context_full"):
            raise VisitEnded("refusal" if reply.ending == "refusal" else "context_full")
        return reply

    async def _try(self, call: CurrentCall) -> Reply:
        started = self.seat.clock.now()
        try:
            return await self.client.ask(self.lane, call)
        finally:
            self.seat.record.span("call", self.lane.name, call.key, started, self.seat.clock.now())

    async def _ping(self, number: int) -> datetime | None:
        """When it was sent; None when it brought no answer, or read less than half of the prompt from the cache."""
        client, lane = self.client, self.lane
        identity = replace(
            self._identity(), turn=f"k{number}", blocks=1 + lane.asked, max_output_tokens=client.least_output
        )
        call = CurrentCall(identity, self.seat.clock, self.seat.book)
        try:
            await client.ping(lane, call)
            tokens = read_usage(call.usage or {}, client.flavour).tokens
        except (TryFailed, UsageError):
            return None
        return call.requested_at if 2 * tokens.cache_read >= tokens.prompt else None

    async def _back_off(self, seconds: float) -> None:
        async with self._span("wait", "backoff"):
            await self.seat.clock.sleep(seconds)

    async def _carry_out(self, reply: Reply) -> Handover | None:
        """Runs the calls in order and appends their results; a hand-over ends it, and its results wait for re-entry."""
        results: list[ToolResult] = []
        for position, call in enumerate(reply.tool_calls):
            refusal = self._refusal(call, reply)
            if refusal is not None:
                results.append(ToolResult(call.id, refusal, failed=True))
                continue
            arguments = self._tool(call.name).read(call.arguments)
            if call.name in SHELF:
                bench = _Bench(self, reply.tool_seconds)
                results.append(ToolResult(call.id, await SHELF[call.name].act(arguments, bench)))
                continue
            handover = next(h for h in self.handovers if h.name == call.name).handover(arguments, call.id)
            after = tuple(ToolResult(c.id, NOT_RUN, failed=True) for c in reply.tool_calls[position + 1 :])
            self._pending = _Pending(tuple(results), call.id, after)
            self.seat.record.handover(self.name, handover, self.seat.clock.now())
            return handover
        self._append(*self.client.results(results))
        return None

    def _refusal(self, call: ToolCall, reply: Reply) -> str | None:
        """Why a call cannot be carried out as it came, told so that the model can mend it; None when it can."""
        if not any(tool.name == call.name for tool in self.tools):
            return f"error: there is no tool {call.name[:100]!r}; there are {', '.join(t.name for t in self.tools)}"
        try:
            self._tool(call.name).read(call.arguments)
        except Unfit as problem:
            if reply.ending == "max_tokens":
                return f"error: not run, your answer was cut at {self.max_output_tokens} tokens; make a shorter call"
            return f"error: not run, {problem}"
        return None

    async def run(self, command: str, tool_seconds: float) -> tuple[Output, float]:
        """For its tools: runs a command and returns its output with the seconds after which it would be stopped."""
        clock, limits = self.seat.clock, self.seat.limits
        self._check_deadline()
        timeout_s = limits.command_timeout_s
        if limits.deadline is not None:
            timeout_s = min(timeout_s, clock.real_seconds_until(limits.deadline))
        async with self._span("command", BASH.name):
            started = clock.now()
            output = await self.seat.shell.run(command, timeout_s=timeout_s)
            try:
                async with clock.deadline(limits.deadline):
                    await clock.sleep(tool_seconds)
            except DeadlinePassed:
                raise VisitEnded("agent_timeout") from None
            finally:
                self.seat.record.command(
                    self.lane.name,
                    self.turns,
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

    def _check_limits(self) -> None:
        if self.turns >= self.seat.limits.max_turns:
            raise VisitEnded("max_turns")
        self._check_deadline()

    def _check_deadline(self) -> None:
        deadline = self.seat.limits.deadline
        if deadline is not None and self.seat.clock.past(deadline):
            raise VisitEnded("agent_timeout")

    def _check_loop(self, command: str, output: str) -> None:
        if self._repeated and self._repeated[0] != (command, output):
            self._repeated.clear()
        self._repeated.append((command, output))
        if len(self._repeated) >= LOOP:
            raise VisitEnded("loop")

    def _nudge(self, reply: Reply) -> str:
        ways = " or ".join(h.name for h in self.handovers)
        return f"{self._cut(reply)}{self.client.idle} When you are done, use {ways}."

    def _cut(self, reply: Reply) -> str:
        return (
            f"Your answer was cut at {self.max_output_tokens} tokens. Be shorter. "
            if reply.ending == "max_tokens"
            else ""
        )

    def _tool(self, name: str) -> Tool:
        return next(tool for tool in self.tools if tool.name == name)

    def _append(self, *messages: Message) -> None:
        for message in messages:
            block = self.lane.append(message)
            self.seat.record.message(
                self.lane.name, self.lane.version, block.index, block.role, block.content, block.hash, block.size
            )

    def _identity(self) -> CallIdentity:
        return CallIdentity(
            trial_id=self.seat.trial_id,
            attempt=self.seat.attempt,
            role=self.name,
            lane=self.lane.name,
            version=self.lane.version,
            turn=str(self.turns),
            model=self.entry.name,
            wire_model=self.entry.model,
            provider=self.entry.provider,
            flavour=self.client.flavour,
            lifetime=self.lifetime,
            blocks=self.lane.blocks,
            max_output_tokens=self.max_output_tokens,
            simulated=self.entry.simulated,
        )

    @asynccontextmanager
    async def _span(self, kind: str, name: str) -> AsyncIterator[None]:
        started = self.seat.clock.now()
        try:
            yield
        finally:
            self.seat.record.span(kind, self.lane.name, name, started, self.seat.clock.now())
