"""From tokens and their causes to charges in dollars: the crossing of token classes and causes.

Both split the same prompt by position. What is read stands at its head, then what is written, longer lifetimes first,
then plain input; causes are stretches of it. A charge is one overlap of the two, so both margins come out exactly.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Literal

from cost_model.causes import BESIDE, OUTPUT, REBUILDS, UNKNOWN, Cause
from cost_model.errors import PriceMissing
from cost_model.price_card import PriceCard
from cost_model.tokens import CLASSES, PROMPT_CLASSES, Tokens
from cost_model.usage.lines import Line

Basis = Literal["reported", "arithmetic", "estimated"]
"""How a figure came about. reported: the provider's own number. arithmetic: exact, worked out of such numbers.
estimated: worked out of bytes, or a range."""


@dataclass(frozen=True, slots=True)
class Charge:
    """One line of a call's bill. `line` counts from 0 within the call.

    `units` are tokens, None when not known. Dollars are exact when low = high. `excess_usd` is what a rebuild cost
    over reading the same tokens, part of the dollars. The line of an unknown prompt has class and cause "unknown".
    """

    call: str
    line: int
    model: str
    token_class: str
    cause: Cause
    units: int | None
    usd_low: Decimal
    usd_high: Decimal
    excess_usd: Decimal
    basis: Basis


@dataclass(frozen=True, slots=True)
class Stretch:
    """A piece of the prompt with one cause, from the end of the stretch before it to `end` (in tokens).

    `estimated`: the end was worked out of bytes.
    """

    cause: Cause
    end: int
    estimated: bool = False


@dataclass(frozen=True, slots=True)
class Overlap:
    token_class: str
    cause: Cause
    units: int
    basis: Basis


def cross(tokens: Tokens, stretches: Sequence[Stretch]) -> Iterator[Overlap]:
    """Every overlap of a token class with a stretch, in order of position.

    The stretches ascend and the last one ends with the prompt. A class within one stretch is as reported; one that is
    cut by the end of a stretch is arithmetic, or estimated where that end is.
    """
    start = 0
    number = 0
    for token_class in PROMPT_CLASSES:
        class_start, class_end = start, start + tokens.of(token_class)
        while start < class_end:
            stretch = stretches[number]
            end = min(class_end, stretch.end)
            cuts = []
            if start > class_start:
                cuts.append(stretches[number - 1])
            if end < class_end:
                cuts.append(stretch)
            if end > start:
                basis: Basis = "reported"
                if cuts:
                    basis = "estimated" if any(cut.estimated for cut in cuts) else "arithmetic"
                yield Overlap(token_class, stretch.cause, end - start, basis)
            start = end
            if stretch.end <= end:
                number += 1


def charges(call: str, model: str, card: PriceCard, tokens: Tokens, stretches: Sequence[Stretch]) -> tuple[Charge, ...]:
    """The bill of a call whose usage is known. The dollars sum exactly to the card's cost of the tokens.

    Tokens of a class that the card does not price cost between nothing and its dearest price: a provider may bill what
    nobody foresaw, and then the call has a range, never a made-up amount and never no line at all.
    """
    prompt = tokens.prompt
    lines = list(cross(tokens, stretches))
    if tokens.output:
        lines.append(Overlap("output", OUTPUT, tokens.output, "reported"))
    bill = []
    for number, line in enumerate(lines):
        low, high = usd_range(card, line.token_class, line.units, prompt)
        basis: Basis = line.basis if low == high else "estimated"
        read_low, read_high = usd_range(card, "cache_read", line.units, prompt)
        known = line.cause in REBUILDS and low == high and read_low == read_high
        excess = low - read_low if known else Decimal(0)
        bill.append(Charge(call, number, model, line.token_class, line.cause, line.units, low, high, excess, basis))
    return tuple(bill)


def untold_reads(bill: Sequence[Charge], call: str, model: str, card: PriceCard, tokens: Tokens) -> tuple[Charge, ...]:
    """The bill of a call of whose input nobody told how much was read from a cache: from none of it to all.

    It has one line of unknown class and cause for its input; the lines of other classes stay.
    """
    prices = [usd_range(card, name, tokens.input, tokens.prompt) for name in ("input", "cache_read")]
    if "cache_read" not in card.usd_per_mtok:
        prices = prices[:1]
    low, high = min(low for low, _ in prices), max(high for _, high in prices)
    basis: Basis = "reported" if low == high else "estimated"
    unknown = Charge(call, 0, model, "unknown", UNKNOWN, tokens.input, low, high, Decimal(0), basis)
    rest = [charge for charge in bill if charge.token_class not in _INPUT]
    return (unknown, *(replace(charge, line=number) for number, charge in enumerate(rest, start=1)))


_INPUT = ("input",)


def beside_charges(call: str, first: int, lines: Sequence[Line]) -> tuple[Charge, ...]:
    """What was billed beside the tokens of the call's model, as the lines `first` and following of its bill.

    Raises ValueError for a line whose quantity or dollars are not known: such a call has no exact bill.
    """
    made = []
    for number, line in enumerate(lines, start=first):
        if line.quantity is None or line.usd is None or line.quantity != line.quantity.to_integral_value():
            raise ValueError(f"{line.token_class} of {line.model} is no whole quantity with known dollars")
        units = int(line.quantity)
        made.append(
            Charge(
                call, number, line.model, line.token_class, BESIDE, units, line.usd, line.usd, Decimal(0), "reported"
            )
        )
    return tuple(made)


def usd_range(card: PriceCard, token_class: str, count: int, prompt_tokens: int) -> tuple[Decimal, Decimal]:
    """The least and the most that the tokens cost: the same where the card prices their class."""
    try:
        usd = card.usd(token_class, count, prompt_tokens)
    except PriceMissing:
        dearest = max(card.price(name, prompt_tokens) for name in CLASSES if name in card.usd_per_mtok)
        return Decimal(0), (dearest * count).scaleb(-6)
    return usd, usd


DENSE_TOKENS_PER_BYTE = Decimal("0.5")
"""More tokens than this hardly come out of a byte of a request: text has one in about four bytes, code one in three."""

SPARSE_TOKENS_PER_BYTE = Decimal("0.125")
"""Fewer hardly come out of it."""


def output_range(heard_bytes: int) -> tuple[int, int]:
    """The fewest and the most tokens that so many bytes of an answer hardly fall short of, or exceed."""
    return math.floor(heard_bytes * SPARSE_TOKENS_PER_BYTE), math.ceil(heard_bytes * DENSE_TOKENS_PER_BYTE)


MOST_OUTPUT_TOKENS = 128_000
"""Taken as the longest possible answer where the request set no limit."""


def unknown_charges(
    call: str,
    model: str,
    card: PriceCard,
    *,
    prompt_bytes: int,
    tokens_per_byte: Decimal | None,
    certainly_read: bool,
    max_output_tokens: int | None,
) -> tuple[Charge, ...]:
    """The range of a call whose usage never came: one line for its prompt, one for its output.

    Low: the prompt at the cheapest prompt price, or nothing unless the provider certainly took it in, and no output.
    High: the prompt at the dearest prompt price and the longest answer. `tokens_per_byte` is what the lane's latest
    known call had, None when there is none.
    """
    fewest = int(prompt_bytes * (tokens_per_byte or SPARSE_TOKENS_PER_BYTE))
    most = int(prompt_bytes * (tokens_per_byte or DENSE_TOKENS_PER_BYTE)) + 1
    low = min(_prompt_prices(card, fewest)) * fewest if certainly_read else Decimal(0)
    high = max(_prompt_prices(card, most)) * most
    longest = MOST_OUTPUT_TOKENS if max_output_tokens is None else max_output_tokens
    none = Decimal(0)
    return (
        Charge(call, 0, model, "unknown", UNKNOWN, None, low.scaleb(-6), high.scaleb(-6), none, "estimated"),
        Charge(call, 1, model, "output", OUTPUT, None, none, card.usd("output", longest, most), none, "estimated"),
    )


def settled_charge(call: str, model: str, usd: Decimal) -> tuple[Charge, ...]:
    """The bill of a call of which a bill told the dollars alone: one line of unknown class and cause, exact."""
    return (Charge(call, 0, model, "unknown", UNKNOWN, None, usd, usd, Decimal(0), "reported"),)


def unfinished_output(
    bill: Sequence[Charge], call: str, model: str, card: PriceCard, tokens: Tokens, max_output_tokens: int | None
) -> tuple[Charge, ...]:
    """The bill of a call whose prompt is known: of the output its usage tells the least, not the whole, because the
    answer broke off or never said how long it was."""
    prompt_lines = [charge for charge in bill if charge.cause != OUTPUT]
    longest = max(tokens.output, MOST_OUTPUT_TOKENS if max_output_tokens is None else max_output_tokens)
    low, _ = usd_range(card, "output", tokens.output, tokens.prompt)
    _, high = usd_range(card, "output", longest, tokens.prompt)
    output = Charge(call, len(prompt_lines), model, "output", OUTPUT, None, low, high, Decimal(0), "estimated")
    return (*prompt_lines, output)


def _prompt_prices(card: PriceCard, prompt_tokens: int) -> list[Decimal]:
    priced = [name for name in PROMPT_CLASSES if name in card.usd_per_mtok]
    return [card.price(name, prompt_tokens) for name in priced] or [card.price("input", prompt_tokens)]
