"""Makes a role's calls: a turn's request with its tries, and the pings that keep its cache alive meanwhile."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from agents.clients import Client, Reply
from agents.errors import DeadlinePassed, TryFailed, VisitEnded
from agents.keep_alive import KeepAlive, Pinger
from agents.lane import Lane
from agents.registry import ModelEntry
from agents.retry import with_retries
from agents.seat import Seat
from agents.transport.call import CallIdentity, CurrentCall
from cost_model.errors import UsageError
from cost_model.policies import POLICIES
from cost_model.usage import read_usage
from cost_model.what_if.keep_alive import missed


@dataclass(slots=True)
class Caller:
    """`role` is who calls, `lifetime` the cache lifetime that it asks for. `size`: the tokens of the latest answer and
    its prompt, by the provider's own count; None where it told none."""

    role: str
    entry: ModelEntry
    lifetime: str | None
    max_output_tokens: int
    client: Client
    seat: Seat
    size: int | None = field(default=None, init=False)
    _pinger: Pinger | None = field(default=None, init=False)
    _pinged: Lane | None = field(default=None, init=False)

    def keep_alive(self, plan: KeepAlive) -> None:
        """To be called before the first call. Raises RuntimeError at a seat without a background."""
        seat = self.seat
        if seat.background is None:
            raise RuntimeError(f"{self.role}: keep-alive pings need a background to be sent in")
        self._pinger = Pinger(
            seat.background,
            plan,
            self._ping,
            clock=seat.clock,
            lane=f"{self.role} pings",
            deadline=seat.limits.deadline,
        )

    async def rest(self) -> None:
        """The lane is left: it is kept alive no more."""
        if self._pinger is not None:
            await self._pinger.rest()

    async def ask(self, lane: Lane, turn: int) -> tuple[Reply, str]:
        """The answer to the lane as it stands, and the key of the call that brought it.

        Raises VisitEnded, ProviderRefused, and whatever the book refuses the call with.
        """
        seat = self.seat
        call = CurrentCall(self._identity(lane, str(turn)), seat.clock, seat.book)
        await self.rest()

        async def back_off(seconds: float) -> None:
            async with seat.span("wait", lane.name, "backoff"):
                await seat.clock.sleep(seconds)

        async def ask_once() -> Reply:
            # Each try: the one before may have been paid for.
            seat.check_spending(self.role)
            started = seat.clock.now()
            try:
                return await self.client.ask(lane, call)
            finally:
                # Named after the try, which is known only now.
                seat.record.span("call", lane.name, call.key, started, seat.clock.now())

        try:
            async with seat.clock.deadline(seat.limits.deadline):
                reply = await with_retries(ask_once, name=f"{self.entry.name} as {self.role}", sleep=back_off)
        except DeadlinePassed:
            raise VisitEnded("agent_timeout") from None
        self.size = _size(call.usage, self.client.flavour)
        if self._pinger is not None and call.requested_at is not None:
            self._pinged = lane
            lifetime = POLICIES[self.entry.cache].lifetime(self.lifetime)
            await self._pinger.go_on(call.requested_at, None if lifetime is None else call.requested_at + lifetime)
        return reply, call.key

    async def _ping(self, number: int) -> datetime | None:
        """When it was sent; None when it brought no answer or missed, or nothing more may be spent."""
        client, lane = self.client, self._pinged
        if lane is None or self.seat.used_up(self.role):
            return None
        identity = replace(
            self._identity(lane, f"k{number}"), blocks=1 + lane.asked, max_output_tokens=client.least_output
        )
        call = CurrentCall(identity, self.seat.clock, self.seat.book)
        try:
            await client.ping(lane, call)
            tokens = read_usage(call.usage or {}, client.flavour).tokens
        except (TryFailed, UsageError):
            return None
        return None if missed(tokens) else call.requested_at

    def _identity(self, lane: Lane, turn: str) -> CallIdentity:
        return CallIdentity(
            trial_id=self.seat.trial_id,
            attempt=self.seat.attempt,
            role=self.role,
            lane=lane.name,
            version=lane.version,
            turn=turn,
            model=self.entry.name,
            wire_model=self.entry.model,
            provider=self.entry.provider,
            flavour=self.client.flavour,
            lifetime=self.lifetime,
            blocks=lane.blocks,
            max_output_tokens=self.max_output_tokens,
            simulated=self.entry.simulated,
        )


def _size(usage: Mapping[str, object] | None, flavour: str) -> int | None:
    try:
        tokens = read_usage(usage or {}, flavour).tokens
    except UsageError:
        return None
    return tokens.prompt + tokens.output
