"""What an attempt has cost so far, counted while it runs, and the budget's gate before each of its calls.

The ledger's figure is made from the stored calls.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from decimal import Decimal

from agents.clock import Clock
from cost_model.calls import Book, CallEnded, CallSent
from cost_model.errors import PriceMissing, UsageError
from cost_model.policy import CachePolicy
from cost_model.price_card import PriceCard
from cost_model.usage import read_told
from cost_model.usage.billed import billed_usd
from cost_model.usage.lines import book_usage
from cost_model.writes import settle_writes
from experiments.budget import MOST_USD, Budget
from experiments.guard import SpendingGuard
from experiments.worst_case import bound_of, most_tokens


class SpendingBook:
    """A Book that passes on what the budget lets through, and adds up the list price of what is answered: `usd`.

    A call of unknown price counts against the budget, and against the limits of trial and role, with its worst case: a
    provider bills what it has begun. Close the book when the attempt is over: calls that never ended count so too.
    """

    def __init__(
        self,
        book: Book,
        card: Callable[[str, datetime], PriceCard],
        policy: Callable[[str], CachePolicy],
        clock: Clock,
        budget: Budget | None,
        rank: int,
        waited: Callable[[CallSent, datetime], None],
        guard: SpendingGuard | None = None,
    ) -> None:
        """`card(model, requested_at)` gives a registry model's prices, `policy(model)` its cache. Of the calls that
        wait for money the one of the lowest `rank` goes first; `waited(call, began)` is told of it afterwards. `budget`
        None lets all through. `guard` is told of each call that has ended."""
        self._book = book
        self._card = card
        self._policy = policy
        self._clock = clock
        self._budget = budget
        self._rank = rank
        self._waited = waited
        self._guard = guard
        self._open: dict[str, CallSent] = {}
        self.usd = Decimal(0)
        self.exact = True

    async def sent(self, call: CallSent) -> None:
        """Raises SpendingStopped when the budget is used up, SpendingStalled when no room in it comes free."""
        if self._budget is not None:
            call = await self._let_through(self._budget, call)
        self._open[call.key] = call
        await self._book.sent(call)

    def ended(self, call: CallEnded) -> None:
        sent = self._open.pop(call.key, None)
        if sent is None:
            # It was given up before it was passed on.
            return
        try:
            self._book.ended(call)
        finally:
            usd, tokens = self._known_cost(sent, call)
            self.exact = self.exact and usd is not None
            self._settle(sent, usd, tokens)

    def judged(self, key: str, tool_calls_valid: bool) -> None:
        self._book.judged(key, tool_calls_valid)

    def close(self) -> None:
        while self._open:
            _, sent = self._open.popitem()
            self.exact = False
            self._settle(sent, None, None)
        if self._budget is not None:
            self._budget.leave(self._rank)

    async def _let_through(self, budget: Budget, call: CallSent) -> CallSent:
        began = call.requested_at
        while not budget.take(call.key, held := self._worst(call), self._rank):
            try:
                async with self._clock.resting():
                    await budget.wait(call.key, held, self._rank)
            except BaseException:
                budget.release(call.key)
                raise
            # It is sent now: idle gaps and prices count from here.
            call = replace(call, requested_at=self._clock.now())
            if self._worst(call) <= held:
                break
            budget.release(call.key)
        if call.requested_at != began:
            self._waited(call, began)
        return call

    def _worst(self, call: CallSent) -> Decimal:
        return bound_of(call, self._card(call.model, call.requested_at))

    def _settle(self, sent: CallSent, usd: Decimal | None, tokens: int | None) -> None:
        if self._budget is not None:
            self._budget.settle(sent.key, self._worst(sent) if usd is None else usd)
        if self._guard is not None:
            self._guard.count(
                sent.role,
                self._worst(sent) if usd is None else usd,
                most_tokens(sent) if tokens is None else tokens,
            )

    def _known_cost(self, sent: CallSent, call: CallEnded) -> tuple[Decimal | None, int | None]:
        """What the ledger will know the call to cost (the bill, else the list price of a whole answer; else None), and
        its tokens."""
        (listed, tokens, whole), billed = self._list_price(sent, call), None
        known = tokens if call.outcome == "complete" and whole else None
        if listed is not None:
            self.usd += listed
        if call.usage is not None:
            with suppress(UsageError):
                billed = billed_usd(call.usage)
        if billed is not None and billed < MOST_USD:
            return billed, known
        if call.outcome == "refused":
            return listed or Decimal(0), tokens or 0
        return (None, None) if known is None else (listed, known)

    def _list_price(self, sent: CallSent, call: CallEnded) -> tuple[Decimal | None, int | None, bool]:
        """Dollars and tokens of what was told, and whether that is all. None where the usage never came or cannot be
        believed: the stored call says why."""
        if call.usage is None:
            return None, None, False
        at = sent.requested_at
        try:
            reading, untold = read_told(call.usage, sent.flavour)
            booked = book_usage(reading, sent.model, self._card(sent.model, at), lambda model: self._card(model, at))
            settled = settle_writes(
                booked.tokens, policy=self._policy(sent.model), lifetime=sent.lifetime, card=booked.card
            )
            usd = booked.card.cost(settled) + booked.beside_usd
            return usd, settled.prompt + settled.output, untold is None and booked.exact
        except (UsageError, PriceMissing):
            return None, None, False
