"""Cache writes that a usage keeps silent about and its bill gives away.

A router may tell what was read and leave what was written inside the plain input. Where a second amount of the bill
confirms it, the dearer price of a write tells how much was written: that many tokens, exactly, or none at all.
"""

from dataclasses import replace
from decimal import Decimal

from cost_model.price_card import PriceCard
from cost_model.tokens import Tokens
from cost_model.usage.billed import Bill
from cost_model.writes import LIFETIMES


def find_hidden_writes(tokens: Tokens, bill: Bill, card: PriceCard, lifetime: str | None) -> Tokens:
    """The tokens with the writes that the bill tells; as they were, unless a whole number of them explains all of it.

    `lifetime` None: the shortest that the card prices.
    """
    priced = [each for each in LIFETIMES if f"cache_write_{each}" in card.usd_per_mtok]
    if lifetime is None:
        lifetime = next(iter(priced), None)
    if lifetime not in priced or tokens.prompt != tokens.input + tokens.cache_read:
        return tokens
    name = f"cache_write_{lifetime}"
    prompt = tokens.prompt
    dearer = card.usd(name, 1, prompt) - card.usd("input", 1, prompt)
    if dearer <= 0:
        return tokens
    # More than a few digits of a bill are the noise of somebody's binary fractions.
    written = round((bill.usd - card.cost(tokens)) / dearer, 6)
    if written != written.to_integral_value() or not 0 < written <= tokens.input:
        return tokens
    told: dict[str, int] = {name: int(written)}
    found = replace(tokens, input=tokens.input - int(written), **told)
    return found if _confirmed(found, bill, card, name) else tokens


def _confirmed(found: Tokens, bill: Bill, card: PriceCard, name: str) -> bool:
    prompt = found.prompt
    if bill.cache_saving_usd is not None:
        plain = card.price("input", prompt)
        saving = found.cache_read * (plain - card.price("cache_read", prompt)) if found.cache_read else Decimal(0)
        saving -= found.of(name) * (card.price(name, prompt) - plain)
        return saving.scaleb(-6) == bill.cache_saving_usd
    return bill.output_usd is not None and bill.output_usd == card.usd("output", found.output, prompt)
