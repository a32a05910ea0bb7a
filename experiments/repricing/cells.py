"""Where prices stand still: one model, one window of time, one set of modifiers, one length of prompt."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from cost_model.price_card import PriceCard
from cost_model.tokens import CLASSES, Tokens
from cost_model.usage.plain import Counts
from cost_model.usage.reading import Reading
from experiments.store.ledger import Facts

_PLACES = {name: list(Tokens.__dataclass_fields__).index(name) for name in CLASSES}
"""Where the classes stand in Counts."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True, eq=False)
class Cell:
    """Every call in it pays the same for a token of a class. `prompt_tokens` is a length of prompt to which the prices
    of `card` apply; `lacking` are the places (in Counts) of classes without a price."""

    model: str
    card: PriceCard
    prompt_tokens: int
    prices: tuple[tuple[int, Decimal], ...]
    lacking: tuple[int, ...]

    def covers(self, counts: Counts) -> bool:
        # A loop, because this is asked for every call.
        for place in self.lacking:  # noqa: SIM110
            if counts[place]:
                return False
        return True

    def usd(self, counts: Sequence[int]) -> Decimal:
        return sum((price * counts[place] for place, price in self.prices), Decimal(0)).scaleb(-6)


@dataclass(slots=True, eq=False)
class Window:
    """A model's prices during some time, microseconds since 1970 in [start, end); None is open."""

    model: str
    card: PriceCard
    start: int | None
    end: int | None
    _cards: dict[tuple[tuple[str, str], ...], PriceCard] = field(default_factory=dict)
    _cells: dict[tuple[int, int], Cell] = field(default_factory=dict)
    only: Cell | None = field(init=False)
    """The one cell of calls without modifiers, where prices are the same for all lengths of prompt."""

    def __post_init__(self) -> None:
        self.only = None if self.card.tiers else self.cell(self.card, 0)

    def covers(self, at: int) -> bool:
        return (self.start is None or self.start <= at) and (self.end is None or at < self.end)

    def card_for(self, reading: Reading) -> PriceCard:
        """As `book_usage` gives it for a call of one step. Raises PriceMissing for a modifier without a price."""
        if not (reading.modifiers or reading.traits):
            return self.card
        told = (*sorted(reading.modifiers.items()), ("", ""), *sorted(reading.traits.items()))
        if told not in self._cards:
            self._cards[told] = self.card.under(reading.modifiers, reading.traits).to_the_smallest_unit()
        return self._cards[told]

    def cell(self, card: PriceCard, prompt_tokens: int) -> Cell:
        """`card` is one that this window gave."""
        step = card.step(prompt_tokens) if card.tiers else 0
        found = self._cells.get((id(card), step))
        if found is None:
            found = self._cells[id(card), step] = _cell(self.model, card, card.tiers[step - 1].above + 1 if step else 0)
        return found


def _cell(model: str, card: PriceCard, prompt_tokens: int) -> Cell:
    priced = [name for name in CLASSES if name in card.usd_per_mtok]
    return Cell(
        model,
        card,
        prompt_tokens,
        tuple((_PLACES[name], card.price(name, prompt_tokens)) for name in priced),
        tuple(place for name, place in _PLACES.items() if name not in priced),
    )


class Cells:
    """The windows of all models of an experiment, each asked for once."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._windows: dict[str, list[Window]] = {}
        self._forever: dict[str, Window] = {}

    def window(self, model: str, at: int) -> Window:
        """`at`: microseconds since 1970. Raises PriceMissing, JournalDamaged for a model of no experiment."""
        if forever := self._forever.get(model):
            return forever
        windows = self._windows.setdefault(model, [])
        for place, window in enumerate(windows):
            if window.covers(at):
                if place:
                    # Calls that are stored together were made together.
                    windows.insert(0, windows.pop(place))
                return window
        card = self._facts.card(model, _EPOCH + at * _MICROSECOND)
        bounds = (None, None) if self._facts.prices_at is not None else (card.valid_from, card.valid_until)
        window = Window(model, card, _microseconds(bounds[0]), _microseconds(bounds[1]))
        windows.insert(0, window)
        if window.start is None and window.end is None:
            self._forever[model] = window
        return window


def _microseconds(moment: datetime | None) -> int | None:
    return None if moment is None else (moment - _EPOCH) // _MICROSECOND


def by_class(counts: Sequence[int]) -> Mapping[str, int]:
    """The classes that occur."""
    return {name: counts[place] for name, place in _PLACES.items() if counts[place]}
