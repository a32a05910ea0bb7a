"""The money that an experiment may spend over all its runs, shared by the calls that are in flight at one time.

A call is let through while what is spent and what the calls in flight hold (each its worst case) stays below the
budget. So the sum passes the budget by less than one call's worst case, whatever the calls turn out to cost. Where only
the holdings are in the way a call waits for one of them to settle; once the spending alone reaches the budget, none is
let through any more.

Scarce money goes to the trials that were started first, so that they end with a score: between two calls a trial keeps
a claim, as large as its last worst case, which those of higher rank leave free. Nobody waits in a circle: a call waits
for calls in flight and for trials of lower rank alone, and for the lowest of them nothing but money is in the way.
"""

import asyncio
import heapq
import itertools
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation

from cost_model.calls import SpendingStopped

MOST_USD = 1_000_000
"""No budget is larger: nobody means such a figure, and money columns end there."""

PATIENCE_S = 7200.0
"""If no call in flight settles for so long (real seconds), the wait for one is given up: no answer takes that long."""


class SpendingStalled(Exception):
    """Others hold or claim the rest of the budget, and none of their calls came to an end in time."""


@dataclass(order=True, slots=True)
class _Waiter:
    """`let_through` becomes True when the call holds its worst case, False when the money is used up."""

    rank: int
    order: int
    key: str = field(compare=False)
    worst: Decimal = field(compare=False)
    let_through: "asyncio.Future[bool]" = field(compare=False)


class Budget:
    """`usd` may be spent, `spent` is; `held` is the sum of the worst cases of the calls in flight.

    A call has a key and its trial's rank, the lowest of which is served first.
    """

    def __init__(self, usd: Decimal, spent: Decimal = Decimal(0)) -> None:
        self.usd = usd
        self.spent = spent
        self._holdings: dict[str, tuple[int, Decimal]] = {}
        self._claims: dict[int, Decimal] = {}
        self._waiting: list[_Waiter] = []
        self._order = itertools.count()
        self._settled_at = 0.0

    @property
    def held(self) -> Decimal:
        return sum((worst for _, worst in self._holdings.values()), Decimal(0))

    @property
    def used_up(self) -> bool:
        return self.spent >= self.usd

    def take(self, key: str, worst: Decimal, rank: int) -> bool:
        """Whether the call may be sent now; it then holds `worst` until `settle` or `release`. False: it has to `wait`.
        Raises SpendingStopped when the money is used up."""
        if self.used_up:
            raise SpendingStopped(f"${self.spent:f} of ${self.usd:f} is spent")
        if not self._room(rank):
            return False
        self._hold(key, worst, rank)
        return True

    async def wait(self, key: str, worst: Decimal, rank: int) -> None:
        """Returns once the call holds `worst`. What it may hold is released when the wait is cancelled.

        Raises SpendingStopped when the money is used up meanwhile, SpendingStalled when nothing settles for PATIENCE_S.
        """
        loop = asyncio.get_running_loop()
        waiter = _Waiter(rank, next(self._order), key, worst, loop.create_future())
        heapq.heappush(self._waiting, waiter)
        self._claims[rank] = worst
        self._settled_at = max(self._settled_at, loop.time())
        try:
            while not waiter.let_through.done():
                left = self._settled_at + PATIENCE_S - loop.time()
                if left <= 0:
                    raise SpendingStalled(
                        f"no call came to an end for {PATIENCE_S:.0f} s; those in flight hold ${self.held:f} of the "
                        f"budget of ${self.usd:f}"
                    )
                await asyncio.wait([waiter.let_through], timeout=left)
            if not waiter.let_through.result():
                raise SpendingStopped(f"${self.spent:f} of ${self.usd:f} is spent")
        except BaseException:
            waiter.let_through.cancel()
            self.release(key)
            raise

    def settle(self, key: str, usd: Decimal) -> None:
        """What the call held is given back, and what it cost is spent."""
        self._holdings.pop(key, None)
        self.spent += usd
        self._serve()

    def release(self, key: str) -> None:
        """What the call held, if it did, is given back: it was never sent."""
        if self._holdings.pop(key, None) is not None:
            self._serve()

    def leave(self, rank: int) -> None:
        """The trial of this rank makes no further call."""
        if self._claims.pop(rank, None) is not None:
            self._serve()

    def _room(self, rank: int) -> bool:
        in_flight = {of for of, _ in self._holdings.values()}
        claimed = sum((usd for of, usd in self._claims.items() if of < rank and of not in in_flight), Decimal(0))
        return self.spent + self.held + claimed < self.usd

    def _hold(self, key: str, worst: Decimal, rank: int) -> None:
        self._holdings[key] = (rank, worst)
        self._claims[rank] = worst

    def _serve(self) -> None:
        if self._waiting:
            self._settled_at = asyncio.get_running_loop().time()
        # Where the lowest rank has no room no other has.
        while self._waiting and (self.used_up or self._room(self._waiting[0].rank)):
            waiter = heapq.heappop(self._waiting)
            if waiter.let_through.done():
                continue
            if not self.used_up:
                self._hold(waiter.key, waiter.worst, waiter.rank)
            waiter.let_through.set_result(not self.used_up)


def amount(text: str) -> Decimal:
    """A budget as it is written on a command line. Raises ValueError with the words after the option's name."""
    try:
        usd = Decimal(text)
        fits = usd.is_finite() and 0 < usd <= MOST_USD
    except InvalidOperation:
        fits = False
    if not fits:
        raise ValueError(f"{text[:40]!r} is no budget; expected dollars above 0 such as 5 or 0.50")
    return usd
