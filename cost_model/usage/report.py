"""What a document of usages comes to, in plain values: what `fullchain usage` prints. No I/O."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from datetime import datetime
from decimal import Decimal
from typing import Any

from cost_model.errors import PriceMissing, UsageError
from cost_model.ledger import output_range
from cost_model.price_card import SELF_HOSTED, PriceCard
from cost_model.prices import PriceBook
from cost_model.tokens import Tokens
from cost_model.usage import read_told
from cost_model.usage.document import FoundCall, calls_in
from cost_model.usage.lines import Line, PricedUsage, known_usd, price_usage, unpriced
from cost_model.usage.modifiers import ORDINARY
from cost_model.usage.reading import Quantity, Reading

SELF_HOSTED_MODEL = "self-hosted"
"""The built-in model whose tokens cost nothing."""

NO_MODEL = "unknown"


@dataclass(frozen=True, slots=True)
class Question:
    """What is known of the calls beside their usages.

    `model` None: each as its response names it. `api` None: recognised. `at` None: each at its own time where it tells
    one, else at `now`. `tier` and `lifetime` hold where the usage does not tell them. `cache_hours`: for how long the
    cached content of each call was held, where that is billed.
    """

    prices: PriceBook
    now: datetime
    model: str | None = None
    api: str | None = None
    at: datetime | None = None
    tier: str | None = None
    lifetime: str | None = None
    cache_hours: Decimal | None = None


@dataclass(frozen=True, slots=True)
class _Answer:
    """One call. `tokens` has None where a count is not known; all of them when no usage came."""

    model: str
    api: str | None
    at: datetime
    tokens: Mapping[str, int | None]
    priced: PricedUsage | None
    warnings: tuple[str, ...]
    estimate: dict[str, Any] | None = None


def report(document: object, question: Question) -> dict[str, Any]:
    """`tokens` and `cost` by class, `cost_usd` and where its prices come from; null is not known.

    Raises DocumentError, UsageError (a usage contradicts itself; it is in `raw`), PriceMissing.
    """
    found = calls_in(document)
    answers = []
    for number, call in enumerate(found.calls, start=1):
        try:
            answers.append(_answer(call, question))
        except UsageError as error:
            raise UsageError(f"call {number}: {error}" if len(found.calls) > 1 else str(error), error.raw) from None
    warnings = counted(answer.warnings for answer in answers)
    if found.repeated:
        warnings.append(f"{found.repeated} of the entries told of a call once more: each call is counted once")
    if found.skipped:
        warnings.append(f"{found.skipped} of the entries hold no usage and were left out")
    whole = _totals(answers)
    if len(answers) > 1:
        whole["calls"] = [{**_names(answer), **_totals([answer])} for answer in answers]
        shared = {
            key: value for key, value in _names(answers[0]).items() if all(_names(a)[key] == value for a in answers)
        }
    else:
        shared = _names(answers[0])
    return {**shared, **whole, "warnings": warnings}


def _answer(call: FoundCall, question: Question) -> _Answer:
    model = question.model or call.model
    at = question.at or call.at or question.now
    if call.usage is None:
        why = "no usage came: what it cost is not known (a provider bills what it has begun)"
        estimate = _estimate(call, model, at, question)
        return _Answer(model or NO_MODEL, None, at, dict.fromkeys(_TOKEN_FIELDS), None, (why,), estimate)
    warnings = list(call.doubts)
    usage = with_tier(call, question.tier, warnings)
    reading, untold = read_told(usage, question.api)
    if untold is not None:
        warnings.append(f"the output is not known, at least {untold.told.output} tokens ({untold})")
    if call.output_untold:
        reading = replace(reading, untold=reading.untold | {"output"})
        warnings.append("the stream broke off: its output is not known")
    if "cache_read" in reading.untold:
        warnings.append("the server does not tell what was read from a cache: up to all of the input")
    reading = _with_storage(reading, question.cache_hours, warnings)
    priced = _price(reading, model, at, question, warnings)
    warnings += priced.notes
    tokens: dict[str, int | None] = {name: getattr(priced.tokens, name) for name in _TOKEN_FIELDS}
    tokens |= dict.fromkeys(reading.untold)
    if "output" in reading.untold:
        tokens["reasoning"] = None
    estimate = _estimate(call, model, at, question) if "output" in reading.untold else None
    return _Answer(model or NO_MODEL, reading.api, at, tokens, priced, tuple(warnings), estimate)


def _estimate(call: FoundCall, model: str | None, at: datetime, question: Question) -> dict[str, Any] | None:
    """The output that a broken stream had brought, by its bytes: a range, and what that much costs at least and most.

    It is no part of the cost: the prompt and what the provider had made beyond come on top.
    """
    if not call.heard_bytes:
        return None
    fewest, most = output_range(call.heard_bytes)
    made: dict[str, Any] = {"output_tokens_low": fewest, "output_tokens_high": most}
    if model is not None:
        with suppress(PriceMissing):
            card = _card(model, at, question)
            made["output_usd_low"] = usd_text(card.usd("output", fewest, 0))
            made["output_usd_high"] = usd_text(card.usd("output", most, 0))
    return made


def _card(model: str, at: datetime, question: Question) -> PriceCard:
    return SELF_HOSTED if model == SELF_HOSTED_MODEL else question.prices.card(model, at)


def with_tier(call: FoundCall, tier: str | None, warnings: list[str]) -> Mapping[str, object]:
    """What the response tells wins over what was asked for: a priority request may come back as an ordinary one. A
    batch's responses do not all tell that they were one."""
    usage = call.usage or {}
    if tier is None and call.batch:
        tier = "batch"
    told = usage.get("service_tier")
    if tier is None or told == tier:
        return usage
    if told is None or (tier == "batch" and told in ORDINARY) or told == "auto":
        return {**usage, "service_tier": tier}
    warnings.append(f"the response was served at service_tier {str(told)[:40]!r}, not {tier!r}: it is priced as that")
    return usage


def _with_storage(reading: Reading, hours: Decimal | None, warnings: list[str]) -> Reading:
    cached = reading.tokens.cache_read
    if hours is not None and cached:
        storage = Quantity("storage", cached * hours, "token-hour")
        return replace(reading, beside=(*reading.beside, storage))
    if reading.api == "gemini" and cached:
        warnings.append("if the cache was an explicit one, the hours it was held are billed too: give --cache-hours")
    return reading


def _price(reading: Reading, model: str | None, at: datetime, question: Question, warnings: list[str]) -> PricedUsage:
    if model is None:
        warnings.append("the model is not known, so no price is: give --model")
        return unpriced(reading, NO_MODEL)

    def card_of(name: str) -> PriceCard:
        return _card(name, at, question)

    try:
        return price_usage(reading, model, card_of(model), card_of, question.lifetime)
    except PriceMissing as missing:
        if reading.bill is None:
            raise
        warnings.append(f"no list price, the provider's bill stands alone: {missing}")
        return unpriced(reading, model)


_TOKEN_FIELDS = tuple(field.name for field in fields(Tokens))


def _names(answer: _Answer) -> dict[str, Any]:
    card = answer.priced.card if answer.priced else None
    price = None
    if card is not None:
        price = {
            "model": card.ref,
            "source": card.source,
            "at": answer.at.isoformat(),
            "valid_from": card.valid_from.isoformat() if card.valid_from else None,
            "valid_until": card.valid_until.isoformat() if card.valid_until else None,
        }
    return {"api": answer.api, "model": answer.model, "price": price}


def _totals(answers: Sequence[_Answer]) -> dict[str, Any]:
    """Sums over calls; null where one of them is not known, with the known part as a lower bound beside it."""
    priced = [answer.priced for answer in answers if answer.priced is not None]
    lines = [line for each in priced for line in each.lines]
    whole = len(priced) == len(answers)
    listed = _sum(each.list_usd for each in priced) if whole else None
    bills = [each.billed_usd for each in priced]
    usd = _sum(each.usd for each in priced) if whole else None
    made: dict[str, Any] = {
        "tokens": {name: _sum(answer.tokens[name] for answer in answers) for name in _TOKEN_FIELDS},
        "cost": _by_class(lines, answers) if whole else dict.fromkeys(_by_class(lines, answers)),
        "cost_usd": usd_text(usd),
        "list_usd": usd_text(listed),
        "billed_usd": usd_text(_sum(bills)) if whole and any(b is not None for b in bills) else None,
        "lines": [_line(line) for line in _added(lines)],
    }
    if usd is None:
        least = sum((each.usd if each.usd is not None else known_usd(each.lines) for each in priced), Decimal(0))
        made["cost_at_least_usd"] = usd_text(least) if priced else None
        if len(answers) == 1 and answers[0].estimate is not None:
            made["estimate"] = answers[0].estimate
    return made


def _by_class(lines: Iterable[Line], answers: Sequence[_Answer]) -> dict[str, str | None]:
    """Dollars by class; those of another model than the calls' own under "model:class"."""
    own = {answer.model for answer in answers}
    made: dict[str, Decimal | None] = {}
    for line in lines:
        name = line.token_class if line.model in own else f"{line.model}:{line.token_class}"
        before = made.get(name, Decimal(0))
        made[name] = None if before is None or line.usd is None else before + line.usd
    return {name: usd_text(usd) for name, usd in made.items()}


def _added(lines: Iterable[Line]) -> list[Line]:
    """One line a class and model."""
    made: dict[tuple[str, str], Line] = {}
    for line in lines:
        key = line.model, line.token_class
        before = made.get(key)
        made[key] = (
            line
            if before is None
            else replace(line, quantity=_sum((before.quantity, line.quantity)), usd=_sum((before.usd, line.usd)))
        )
    return list(made.values())


def _line(line: Line) -> dict[str, Any]:
    quantity = line.quantity
    if quantity is not None and quantity == quantity.to_integral_value():
        quantity = int(quantity)  # type: ignore[assignment]  # a whole number is written as one
    return {
        "class": line.token_class,
        "quantity": usd_text(quantity) if isinstance(quantity, Decimal) else quantity,
        "unit": line.unit,
        "model": line.model,
        "usd": usd_text(line.usd),
    }


def _sum(amounts: Iterable[Any]) -> Any:
    """None as soon as one is."""
    total: Any = 0
    for amount in amounts:
        if amount is None:
            return None
        total += amount
    return total


def usd_text(usd: Decimal | None) -> str | None:
    """Dollars in full, without needless zeros: JSON's numbers would be rounded by who reads them."""
    if usd is None:
        return None
    return f"{Decimal(usd).normalize():f}"


def counted(warnings: Iterable[Iterable[str]]) -> list[str]:
    """Each warning once, with how many calls it came of."""
    times: dict[str, int] = {}
    for each in warnings:
        for warning in each:
            times[warning] = times.get(warning, 0) + 1
    return [text if count == 1 else f"{text} ({count} calls)" for text, count in times.items()]
