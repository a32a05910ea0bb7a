"""What an attempt has cost so far, counted while it runs; the ledger's figure is made from the stored calls."""

from collections.abc import Callable
from datetime import datetime
from decimal import Decimal

from cost_model.calls import Book, CallEnded, CallSent
from cost_model.errors import UsageError
from cost_model.prices import PriceCard
from cost_model.usage import normalise


class SpendingBook:
    """A Book that passes everything on and adds up the list price of what is answered: `usd`."""

    def __init__(self, book: Book, card: Callable[[str, datetime], PriceCard]) -> None:
        """`card(model, requested_at)` gives a registry model's prices."""
        self._book = book
        self._card = card
        self._open: dict[str, CallSent] = {}
        self.usd = Decimal(0)

    async def sent(self, call: CallSent) -> None:
        self._open[call.key] = call
        await self._book.sent(call)

    def ended(self, call: CallEnded) -> None:
        self._book.ended(call)
        sent = self._open.pop(call.key, None)
        if sent is None or call.usage is None:
            return
        try:
            tokens = normalise(sent.flavour, call.usage)
        except UsageError:
            # Kept with its reason in the stored call; its money is unknown.
            return
        self.usd += self._card(sent.model, sent.requested_at).cost(tokens)

    def judged(self, key: str, tool_calls_valid: bool) -> None:
        self._book.judged(key, tool_calls_valid)
