"""The prices that stored calls are priced with anew."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from cost_model.price_card import PriceCard
from cost_model.prices import PriceBook
from experiments.store.cards import Cards
from experiments.store.ledger import Facts


@dataclass(frozen=True, slots=True)
class NewPrices:
    """Today's price book with further price files over it, later ones over earlier. `at`: every call at the prices of
    this moment; None: each at its own time, or at the moment that its experiment fixed."""

    files: Sequence[Path] = ()
    at: datetime | None = None

    def facts(self, own: Facts) -> Facts:
        """The experiment's models at these prices. Raises PriceFileError."""
        return Facts(own.models, self.at or own.prices_at, BookCards(PriceBook(self.files)))


class BookCards(Cards):
    """Cards of a price book alone, their prices rounded to the decimals that a ledger holds."""

    def __init__(self, book: PriceBook) -> None:
        super().__init__("", (), lambda: book)
        self._prices = book

    def card(self, ref: str, at: datetime) -> PriceCard:
        """Raises PriceMissing."""
        return self._prices.card(ref, at).to_the_smallest_unit()
