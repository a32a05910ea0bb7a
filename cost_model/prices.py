"""Which prices hold for a model at a moment: our own dated files first, then the public list, else an error."""

from bisect import bisect_right, insort
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from cost_model.errors import PriceMissing
from cost_model.modifier_entry import ModifierEntry
from cost_model.price_card import PriceCard
from cost_model.price_file import PriceEntry, load_prices
from cost_model.price_modifier import ALWAYS
from cost_model.public_prices import HOW_TO_MEND, PublicModel, find_public

SHIPPED = Path(__file__).with_name("prices.toml")
"""Prices that the public list lacks or gets wrong."""

_BEGINNING = datetime.min.replace(tzinfo=UTC)


class PriceBook:
    """All prices there are. Of the file entries that cover a moment the last wins: later files over earlier ones.

    A card is worked out once for each window of time in which prices stand still, then looked up.
    """

    def __init__(self, overrides: Sequence[Path] = ()) -> None:
        """Reads the shipped price file and the given ones. Raises PriceFileError."""
        self._entries: dict[str, list[PriceEntry]] = {}
        self._modifiers: list[ModifierEntry] = []
        for path in (SHIPPED, *overrides):
            file = load_prices(path)
            for entry in file.price:
                self._entries.setdefault(entry.model, []).append(entry)
            self._modifiers += file.modifier
        self._public: dict[str, PublicModel | None] = {}
        self._windows: dict[str, list[tuple[datetime, PriceCard]]] = {}

    def card(self, ref: str, at: datetime) -> PriceCard:
        """The prices of a model at an aware moment. Raises PriceMissing (one line with the mend)."""
        if at.tzinfo is None:
            raise ValueError("prices are asked for at an aware time")
        at = at.astimezone(UTC)
        windows = self._windows.setdefault(ref, [])
        place = bisect_right(windows, at, key=lambda window: window[0])
        if place:
            card = windows[place - 1][1]
            if card.valid_until is None or at < card.valid_until:
                return card
        card = self._resolve(ref, at)
        insort(windows, (card.valid_from or _BEGINNING, card), key=lambda window: window[0])
        return card

    def _resolve(self, ref: str, at: datetime) -> PriceCard:
        entries = self._entries.get(ref, [])
        winner: PriceEntry | PublicModel | None = next((e for e in reversed(entries) if e.covers(at)), None)
        if winner is None:
            if ref not in self._public:
                self._public[ref] = find_public(ref)
            winner = self._public[ref]
        if winner is None:
            raise PriceMissing(f"no price is known for model {ref!r} on {at:%Y-%m-%d}: {HOW_TO_MEND}")
        names = (ref, winner.name) if isinstance(winner, PublicModel) else (ref,)
        modifiers = [entry for entry in self._modifiers if entry.concerns(names)]
        changes = winner.boundaries(at).union(
            *(entry.boundaries(at) for entry in entries), *(entry.boundaries() for entry in modifiers)
        )
        card = winner.card(
            at,
            valid_from=max((moment for moment in changes if moment <= at), default=None),
            valid_until=min((moment for moment in changes if moment > at), default=None),
        )
        return _with_modifiers(card, [entry for entry in modifiers if entry.covers(at)])


def _with_modifiers(card: PriceCard, entries: Sequence[ModifierEntry]) -> PriceCard:
    """Those without a condition are worked into the card (of several factors the last holds), its prices then rounded
    to what a ledger stores; the others wait in it."""
    found = [entry.modifier() for entry in entries]
    always = [modifier for modifier in found if modifier.name == ALWAYS]
    factors = [modifier for modifier in always if modifier.times is not None]
    settled = [replace(modifier, times=None) for modifier in always]
    settled += [replace(modifier, usd_per_mtok={}) for modifier in factors[-1:]]
    changed = card.modified(settled).to_the_smallest_unit() if settled else card
    return replace(changed, modifiers=tuple(m for m in found if m.name != ALWAYS))
