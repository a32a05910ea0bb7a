"""The bill of the simulated provider: one JSON line a request, by call key, with tokens by class and exact dollars.

It is whole: a line is written before the answer to its request begins, so a call of a run that it covers and does not
list never reached the provider.
"""

from collections.abc import Sequence

from cost_model.tokens import CLASSES, Tokens
from experiments.bills.bill_line import Bill, CallLine, one
from experiments.bills.reading import MOST_CALL_USD, Document, Fields
from experiments.errors import BillError

NAME = "simulator"
PROVIDER = "simulated"

MOST_TOKENS = 10**9
REFUSED = 400


def fits(document: Document) -> bool:
    return any(isinstance(item, dict) and {"call", "tokens", "usd"} <= item.keys() for item in document.values)


def read(documents: Sequence[Document]) -> Bill:
    """Raises BillError."""
    calls, nameless = [], 0
    for document in documents:
        for number, item in enumerate(document.values, start=1):
            line = Fields(item, f"{document.name}:{number}")
            if "call" in line:
                calls.append(_call(line))
            else:
                nameless += 1
    warnings = (f"{nameless} lines name no call: they are other clients' traffic",) if nameless else ()
    files = tuple(document.name for document in documents)
    return Bill(NAME, PROVIDER, files, calls=tuple(calls), complete=True, warnings=warnings)


def _call(line: Fields) -> CallLine:
    model = line.text("model")
    tokens = _tokens(Fields(line.get("tokens"), f"{line.where}, tokens"))
    status = line.needed_units("status")
    return CallLine(
        reference=line.needed_text("call"),
        models=() if model is None else (model,),
        at=line.moment("requested_at"),
        units={one(name): tokens.of(name) for name in CLASSES if tokens.of(name)},
        usd=line.needed_amount("usd", most=MOST_CALL_USD),
        where=line.where,
        told=line.raw(),
        tokens=tokens,
        arrived=status < REFUSED,
    )


def _tokens(fields: Fields) -> Tokens:
    unknown = next((name for name in fields.raw() if name not in CLASSES), None)
    if unknown is not None:
        raise BillError(f"{fields.where}: {unknown!r} is no token class; expected some of {', '.join(CLASSES)}")
    counts = {name: fields.units(name) or 0 for name in fields.raw()}
    if sum(counts.values()) > MOST_TOKENS:
        raise BillError(
            f"{fields.where}: more than {MOST_TOKENS:,} tokens in one call; give the bill as it was written"
        )
    return Tokens(**counts)
