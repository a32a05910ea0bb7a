"""The price cards that an experiment was booked with, kept in its database: the same call costs the same for ever.

A stored card wins over the price book; what the store lacks comes from the book and is kept with the next merge.
"""

import hashlib
from collections.abc import Callable, Iterable
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING

from cost_model.price_card import PriceCard, PriceTier
from cost_model.price_modifier import PriceModifier
from experiments.store.journal import encode, iso
from experiments.store.rows import Row

if TYPE_CHECKING:
    from cost_model.prices import PriceBook


class Cards:
    """The cards of one experiment. `rows` are its rows of table `prices`, times as aware date-times."""

    def __init__(self, experiment: str, rows: Iterable[Row], book: "Callable[[], PriceBook]") -> None:
        self._experiment = experiment
        self._book = book
        self._cards: dict[str, list[PriceCard]] = {}
        self._new: list[PriceCard] = []
        for card in _cards(rows):
            self._cards.setdefault(card.ref, []).append(card)

    def card(self, ref: str, at: datetime) -> PriceCard:
        """The prices of `ref` at a moment. Raises PriceMissing."""
        for card in self._cards.get(ref, ()):
            if (card.valid_from is None or card.valid_from <= at) and (
                card.valid_until is None or at < card.valid_until
            ):
                return card
        card = self._book().card(ref, at)
        self._cards.setdefault(ref, []).append(card)
        self._new.append(card)
        return card

    def new_rows(self) -> list[Row]:
        """Rows for table `prices`: what came from the book so far."""
        return [row for card in self._new for row in _rows(self._experiment, card)]


def _rows(experiment: str, card: PriceCard) -> list[Row]:
    common: Row = {
        "experiment": experiment,
        "price": card.ref,
        "source": card.source,
        "valid_from": iso(card.valid_from) if card.valid_from else None,
        "valid_until": iso(card.valid_until) if card.valid_until else None,
    }
    steps = [(0, card.usd_per_mtok), *((tier.above, tier.usd_per_mtok) for tier in card.tiers)]
    lines: list[Row] = [
        {"above": above, "token_class": name, "usd_per_mtok": format(price, "f")}
        for above, prices in steps
        for name, price in prices.items()
    ]
    lines += [
        {"above": 0, "token_class": f"{what}{_IF}{modifier.name}={modifier.value}", "usd_per_mtok": format(amount, "f")}
        for modifier in card.modifiers
        for what, amount in _told(modifier)
    ]
    digest = hashlib.sha256(encode({**common, "lines": lines})).hexdigest()[:16]
    return [{**common, "card": digest, **line} for line in lines]


def _cards(rows: Iterable[Row]) -> list[PriceCard]:
    grouped: dict[object, list[Row]] = {}
    for row in rows:
        grouped.setdefault(row["card"], []).append(row)
    return [_card(lines) for lines in grouped.values()]


def _card(lines: list[Row]) -> PriceCard:
    steps: dict[int, dict[str, Decimal]] = {}
    conditions: dict[str, dict[str, Decimal]] = {}
    for line in lines:
        what, _, condition = str(line["token_class"]).partition(_IF)
        into = conditions.setdefault(condition, {}) if condition else steps.setdefault(int(str(line["above"])), {})
        into[what] = Decimal(str(line["usd_per_mtok"]))
    first = lines[0]
    return PriceCard(
        ref=str(first["price"]),
        source=str(first["source"]),
        valid_from=_moment(first["valid_from"]),
        valid_until=_moment(first["valid_until"]),
        usd_per_mtok=steps.pop(0, {}),
        tiers=tuple(PriceTier(above, prices) for above, prices in sorted(steps.items())),
        modifiers=tuple(_modifier(condition, told) for condition, told in conditions.items()),
    )


_TIMES = "times"
_IF = " if "
"""A row "times if service_tier=batch" holds a factor, "cache_read if cache_type=ephemeral" another price."""


def _told(modifier: PriceModifier) -> list[tuple[str, Decimal]]:
    factor = [] if modifier.times is None else [(_TIMES, modifier.times)]
    return [*factor, *modifier.usd_per_mtok.items()]


def _modifier(condition: str, told: dict[str, Decimal]) -> PriceModifier:
    name, _, value = condition.partition("=")
    return PriceModifier(name, value, told.get(_TIMES), {what: usd for what, usd in told.items() if what != _TIMES})


def _moment(value: object) -> datetime | None:
    return value if isinstance(value, datetime) else None
