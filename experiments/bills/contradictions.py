"""Whether a line of a bill can be true of the call that it names: a line that cannot settles nothing."""

from cost_model.errors import PriceMissing
from cost_model.price_card import PriceCard
from cost_model.tokens import Tokens
from experiments.bills.bill_line import PROMPT, WRITES, CallLine, Classes, one
from experiments.bills.ledger_call import LedgerCall
from experiments.bills.model_names import ModelNames

USD_DECIMALS = 12

_GROUPS: tuple[tuple[str, Classes], ...] = (
    ("input", one("input")),
    ("cache_read", one("cache_read")),
    ("cache write", WRITES),
    ("prompt", PROMPT),
    ("output", one("output")),
)


def contradiction(line: CallLine, call: LedgerCall, names: ModelNames, card: PriceCard | None) -> str | None:
    """Why the line cannot be true of the call, in words; None where it can.

    `card` holds the prices that the bill is made at; None: nobody knows that they are the experiment's. A call whose
    usage came is compared figure by figure elsewhere: of its line only status and model are looked at.
    """
    if line.tokens is None:
        return None
    if not line.arrived:
        if line.usd or line.tokens != Tokens():
            return f"the bill says that it was refused, and yet bills {_count(line.tokens):,} tokens and ${line.usd:f}"
        return None
    if names.find(line.models) != names.of_call(call):
        told = f"the model {line.models[0][:80]!r}" if line.models else "no model"
        return f"the bill names {told}, and it went to {call.wire_model!r}"
    if call.cost_usd is not None and call.settled_by is None:
        return None
    return _priced(line, line.tokens, card) or _beyond(line, line.tokens, call, card)


def _priced(line: CallLine, tokens: Tokens, card: PriceCard | None) -> str | None:
    if card is None:
        return None
    try:
        usd = card.cost(tokens)
    except PriceMissing as missing:
        return f"the bill has tokens without a price: {missing}"
    if round(usd, USD_DECIMALS) == round(line.usd, USD_DECIMALS):
        return None
    return f"the bill contradicts itself: its tokens cost ${usd.normalize():f}, and it bills ${line.usd:f}"


def _beyond(line: CallLine, tokens: Tokens, call: LedgerCall, card: PriceCard | None) -> str | None:
    """What lies outside of the range that is known of a call before it is settled."""
    if call.settled_by is not None:
        return None
    if card is not None and not call.low <= line.usd <= call.high:
        return f"billed ${line.usd:f}, booked between ${call.low:f} and ${call.high:f}"
    own = [piece for piece in call.pieces if piece.model is None]
    for name, classes in _GROUPS:
        count, (low, high) = sum(tokens.of(each) for each in classes), call.units(classes, own)
        if not low <= count <= high:
            return f"billed {count:,} {name} tokens, and it can have had {int(low):,} to {int(high):,}"
    return None


def _count(tokens: Tokens) -> int:
    return tokens.prompt + tokens.output
