"""From what a usage tells to billable lines in dollars."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from decimal import Decimal

from cost_model.errors import UsageError
from cost_model.price_card import PriceCard
from cost_model.tokens import CLASSES, Tokens
from cost_model.usage.hidden_writes import find_hidden_writes
from cost_model.usage.reading import Quantity, Reading, Unit
from cost_model.writes import settle_untold


@dataclass(frozen=True, slots=True)
class Line:
    """So many units of a class at a model's price. `quantity` and `usd` None: not known; never 0 for that."""

    token_class: str
    quantity: Decimal | None
    unit: Unit
    model: str
    usd: Decimal | None


@dataclass(frozen=True, slots=True)
class PricedUsage:
    """One call's bill. `tokens` are settled: writes of untold lifetime stand under the one that was asked for.

    `list_usd` is the sum of the lines, None when one of them is not known; `billed_usd` the provider's own bill, which
    wins: `usd` is it, else the list price. `card` is the one it was priced with, modifiers worked in. `notes` say what
    was worked out and what is left open.
    """

    tokens: Tokens
    lines: tuple[Line, ...]
    list_usd: Decimal | None
    billed_usd: Decimal | None
    card: PriceCard | None
    notes: tuple[str, ...] = ()

    @property
    def usd(self) -> Decimal | None:
        return self.list_usd if self.billed_usd is None else self.billed_usd


def price_usage(
    reading: Reading, model: str, card: PriceCard, card_of: Callable[[str], PriceCard], lifetime: str | None = None
) -> PricedUsage:
    """The lines of one call at list price, and its bill.

    `card` holds the standard prices of the call's own model, `card_of` gives those of another. `lifetime` ("5m", "1h",
    ...) is that of cache writes where the usage does not tell, None for the shortest that has a price. Raises
    PriceMissing for a class or a modifier without a price.
    """
    card = card.under(reading.modifiers, reading.traits)
    tokens, notes = reading.tokens, []
    if reading.bill is not None and not reading.written_told:
        tokens = find_hidden_writes(tokens, reading.bill, card, lifetime)
        written = tokens.prompt - tokens.input - tokens.cache_read
        if tokens != reading.tokens:
            notes.append(f"{written} cache writes were worked out of the bill: the usage keeps them in its input")
    steps = reading.steps if tokens == reading.tokens and reading.steps else (tokens,)
    settled = [settle_untold(step, lifetime=lifetime, card=card) for step in steps]
    if any(step.cache_write_unknown for step in steps):
        notes.append(_how_settled(sum(settled, Tokens()), lifetime))
    tokens = sum(settled, Tokens())
    lines = [*_token_lines(settled, reading.untold, model, card), *_beside(reading, model, card, card_of)]
    known = [line.usd for line in lines if line.usd is not None]
    billed = None if reading.bill is None else reading.bill.usd
    listed = sum(known, Decimal(0)) if len(known) == len(lines) else None
    if billed is not None and listed is not None and billed != listed:
        notes.append(f"the provider's bill, ${billed:f}, is not the list price, ${listed:f}")
    return PricedUsage(tokens, tuple(lines), listed, billed, card, tuple(notes))


@dataclass(frozen=True, slots=True)
class BookedUsage:
    """A call's usage as a ledger books it: the tokens as reported, the card that holds for them, what stands beside.

    `read_untold`: nobody told how much of the input was read from a cache.
    """

    tokens: Tokens
    card: PriceCard
    beside: tuple[Line, ...]
    read_untold: bool = False

    @property
    def exact(self) -> bool:
        """Whether the tokens have one price: an untold read is at home where nothing is cheaper for being read."""
        return not (self.read_untold and _reads_cost_less((self.tokens,), self.card))

    @property
    def beside_usd(self) -> Decimal:
        return known_usd(self.beside)


def book_usage(reading: Reading, model: str, card: PriceCard, card_of: Callable[[str], PriceCard]) -> BookedUsage:
    """The one card that prices every token of the call: its modifiers and the length of its steps worked in.

    Raises PriceMissing for a modifier, another model or a unit without a price; UsageError where the steps of the call
    have prices of different lengths of prompt, which no one card holds.
    """
    if reading.modifiers or reading.traits:
        card = card.under(reading.modifiers, reading.traits).to_the_smallest_unit()
    if len(reading.steps) > 1 and card.tiers:
        longest = max(step.prompt for step in reading.steps)
        if len({card.step(step.prompt) for step in reading.steps}) > 1:
            raise UsageError(
                f"usage: its steps have prompts of up to {longest} tokens, some beyond a length at which prices change "
                "and some not: no one price holds for them"
            )
        card = card.for_prompt(longest)
    beside = tuple(_beside(reading, model, card, card_of))
    return BookedUsage(reading.tokens, card, beside, read_untold="cache_read" in reading.untold)


def unpriced(reading: Reading, model: str) -> PricedUsage:
    """The lines of a call of which only the provider's bill says what it cost, if that."""
    counts = ((name, reading.tokens.of(name)) for name in CLASSES)
    lines = [
        Line(name, None if name in reading.untold else Decimal(count), "token", model, None)
        for name, count in counts
        if count or name in reading.untold
    ]
    lines += [Line(each.token_class, each.quantity, each.unit, each.model or model, None) for each in reading.beside]
    billed = None if reading.bill is None else reading.bill.usd
    return PricedUsage(reading.tokens, tuple(lines), None, billed, None)


def _token_lines(steps: Iterable[Tokens], untold: frozenset[str], model: str, card: PriceCard) -> Iterable[Line]:
    """One a class that occurs. Each step is repriced by the length of its own prompt.

    Of an unknown read nothing is sure but that it was part of the input: neither has a price then, unless they are the
    same.
    """
    steps = tuple(steps)
    blurred = {"input", "cache_read"} if "cache_read" in untold and _reads_cost_less(steps, card) else set()
    for name in CLASSES:
        quantity = sum(step.of(name) for step in steps)
        if not quantity and name not in untold:
            continue
        known = name not in untold
        usd: Decimal | None = sum((card.usd(name, n, s.prompt) for s in steps if (n := s.of(name))), Decimal(0))
        if name in blurred or (not known and not card.free and name != "cache_read"):
            usd = None
        yield Line(name, Decimal(quantity) if known else None, "token", model, usd)


def _reads_cost_less(steps: tuple[Tokens, ...], card: PriceCard) -> bool:
    return any(
        "cache_read" in card.usd_per_mtok and card.price("cache_read", s.prompt) != card.price("input", s.prompt)
        for s in steps
        if s.input
    )


def _beside(reading: Reading, model: str, card: PriceCard, card_of: Callable[[str], PriceCard]) -> Iterable[Line]:
    for each in reading.beside:
        own = card
        if each.model is not None and each.model != model:
            own = card_of(each.model).under(reading.modifiers, reading.traits)
        quantity = settle_quantity(each, own)
        usd = own.usd(quantity.token_class, quantity.quantity, quantity.prompt_tokens)
        yield Line(quantity.token_class, quantity.quantity, quantity.unit, quantity.model or model, usd)


_UNTOLD = ("cache_write_unknown",)


def settle_quantity(quantity: Quantity, card: PriceCard) -> Quantity:
    """A write of untold lifetime by another model, under the shortest lifetime that it has a price for."""
    if quantity.token_class not in _UNTOLD:
        return quantity
    settled = settle_untold(Tokens(cache_write_unknown=int(quantity.quantity)), lifetime=None, card=card)
    name = next(name for name in CLASSES if settled.of(name))
    return replace(quantity, token_class=name)


def _how_settled(tokens: Tokens, lifetime: str | None) -> str:
    if tokens.cache_write_unknown:
        return "the usage does not tell the lifetime of its cache writes, and the price has one for all"
    if lifetime is not None:
        return f"the usage does not tell the lifetime of its cache writes: they are priced for {lifetime}, as asked"
    return "the usage does not tell the lifetime of its cache writes: they are priced at the default, the shortest"


def known_usd(lines: Iterable[Line]) -> Decimal:
    """The dollars of the lines that are known: a lower bound where others are not."""
    return sum((line.usd for line in lines if line.usd is not None), Decimal(0))
