"""From stored calls to costs and charges: the same code books a fresh attempt and recomputes a stored one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from decimal import Decimal

import orjson

from cost_model.call_fact import CallFact
from cost_model.errors import PriceMissing, UsageError
from cost_model.ledger import Charge
from cost_model.policies import POLICIES
from cost_model.price_card import SELF_HOSTED, PriceCard
from cost_model.prompt import PromptRange
from cost_model.scope import ExplainedCall, explain
from cost_model.tokens import Tokens
from cost_model.usage import read_told
from cost_model.usage.billed import billed_usd
from cost_model.usage.lines import BookedUsage, book_usage
from cost_model.writes import settle_writes
from experiments.errors import JournalDamaged
from experiments.store.cards import Cards
from experiments.store.prompts import Prompts
from experiments.store.rows import Row, moment, whole
from experiments.store.settlements import Settlement, settlement_of

TOKEN_COLUMNS = {f"{field.name}_tokens": field.name for field in fields(Tokens)}

COMPUTED = (
    "idle_s", "prompt_tokens", *TOKEN_COLUMNS, "basis", "list_usd", "billed_usd", "cost_usd", "cost_low_usd",
    "cost_high_usd", "excess_usd", "unexplained_read_tokens", "usage_error",
)  # fmt: skip
"""The columns of `calls` that are filled here and can be recomputed from the others."""

MOST_USD = 10**6
"""A call that claims more than this, or more than MOST_TOKENS in all, is no call: its usage is kept raw and not
believed. Money columns end there too."""


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What booking a model's calls needs to know of it. `price` is a reference into the price book, None exactly when
    it is declared `self_hosted`; `cache` names a policy of cost_model.policies.POLICIES."""

    flavour: str
    provider: str
    price: str | None
    self_hosted: bool
    cache: str


@dataclass(frozen=True, slots=True)
class Facts:
    """`models` by registry name. `prices_at` None prices each call at its own time."""

    models: Mapping[str, ModelFacts]
    prices_at: datetime | None
    cards: Cards

    def card(self, model: str, requested_at: datetime) -> PriceCard:
        """Raises PriceMissing, JournalDamaged for a model that the experiment does not know."""
        facts = self.of(model)
        if facts.price is None:
            return SELF_HOSTED
        return self.cards.card(facts.price, self.prices_at or requested_at)

    def of(self, model: str) -> ModelFacts:
        try:
            return self.models[model]
        except KeyError:
            known = ", ".join(sorted(self.models)) or "none"
            raise JournalDamaged(
                f"a call names the model {model!r}, which its experiment does not know ({known})"
            ) from None


def explain_calls(calls: Sequence[Row], messages: Sequence[Row], facts: Facts) -> list[Row]:
    """The charges of all calls of one cache scope (a trial's attempt); fills the COMPUTED columns of `calls`.

    Times are ISO-8601 text or aware date-times. A call in flight (outcome null) is left out: nothing is known of it.
    """
    by_key = {row["key"]: row for row in calls}
    charges: list[Row] = []
    known = call_facts(calls, messages, facts)
    unread = {fact.key for fact in known if fact.read_untold}
    for explained in explain(known):
        by_key[explained.key] |= _computed(explained)
        if explained.key in unread:
            by_key[explained.key] |= {"input_tokens": None, "cache_read_tokens": None}
        charges += [_charge(charge) for charge in explained.charges]
    return charges


def call_facts(calls: Sequence[Row], messages: Sequence[Row], facts: Facts) -> list[CallFact]:
    """The facts of all calls of one cache scope that have ended; clears the COMPUTED columns of all of them."""
    recorded = Prompts(messages)
    for row in calls:
        row |= dict.fromkeys(COMPUTED)
    return [_fact(row, recorded, facts) for row in calls if row["outcome"] is not None]


def _fact(row: Row, recorded: Prompts, facts: Facts) -> CallFact:
    model, requested_at = str(row["model"]), moment(row["requested_at"])
    first_token_at, most = row["first_token_at"], row["max_output_tokens"]
    lifetime = None if row["lifetime"] is None else str(row["lifetime"])
    blocks, count = recorded.of(row["lane"], row["version"]), whole(row["blocks"])
    if count > len(blocks):
        raise JournalDamaged(f"the call {row['key']} was sent with block {len(blocks)} that was never recorded")
    policy, card = POLICIES[facts.of(model).cache], facts.card(model, requested_at)
    settled = settlement_of(row)
    booked, untold, billed = _usage(row, card, facts) if settled is None else _settled(settled, card)
    tokens = None if booked is None else booked.tokens
    if booked is not None and tokens is not None:
        card = booked.card
        try:
            card.cost(settle_writes(tokens, policy=policy, lifetime=lifetime, card=card))
        except PriceMissing as missing:
            # The ledger gives such tokens a range; this says why.
            row["usage_error"] = "; ".join(filter(None, [str(row["usage_error"] or ""), str(missing)]))
    return CallFact(
        key=str(row["key"]),
        lane=str(row["lane"]),
        model=model,
        requested_at=requested_at,
        first_token_at=None if first_token_at is None else moment(first_token_at),
        # What never reached the provider is billed as a refused call is, whatever its end.
        outcome="refused" if settled is not None and not settled.arrived else row["outcome"],  # type: ignore[arg-type]  # text from a row; the journal holds the literals only
        tokens=tokens,
        policy=policy,
        lifetime=lifetime,
        card=card,
        prompt=PromptRange(blocks, count),
        prompt_bytes=whole(row["prompt_bytes"]),
        max_output_tokens=None if most is None else whole(most),
        billed_usd=billed,
        output_untold=untold,
        beside=() if booked is None else booked.beside,
        read_untold=booked is not None and booked.read_untold,
        settled=settled is not None,
    )


def _settled(settled: Settlement, card: PriceCard) -> tuple[BookedUsage | None, bool, Decimal | None]:
    """As `_usage`, of what a bill told afterwards."""
    booked = None if settled.tokens is None else BookedUsage(settled.tokens, card, ())
    return booked, False, settled.usd if settled.usd_counts else None


def _usage(row: Row, card: PriceCard, facts: Facts) -> tuple[BookedUsage | None, bool, Decimal | None]:
    """What is billed, whether its output is untold, and the bill; usage and bill are None when the provider did not
    tell them, or told what cannot be or has no price. `usage_error` says why."""
    raw = row["usage"]
    if isinstance(raw, str):
        raw = orjson.loads(raw)
    if raw is None:
        return None, False, None
    if not isinstance(raw, Mapping):
        row["usage_error"] = f"usage is {type(raw).__name__}, not an object"
        return None, False, None
    booked, untold, billed, wrong = None, False, None, []
    at = facts.prices_at or moment(row["requested_at"])
    try:
        reading, complaint = read_told(raw, str(row["flavour"]))
        booked = book_usage(reading, str(row["model"]), card, lambda model: facts.cards.card(model, at))
        untold = complaint is not None
        wrong += [str(complaint)] if complaint is not None else []
        wrong += ["usage: the server does not tell what was read from a cache"] if booked.read_untold else []
    except (UsageError, PriceMissing) as error:
        wrong.append(str(error))
    try:
        billed = billed_usd(raw)
    except UsageError as error:
        wrong.append(str(error))
    if billed is not None and billed >= MOST_USD:
        billed = None
        wrong.append(f"usage: a bill of ${MOST_USD} or more for one call")
    row["usage_error"] = "; ".join(dict.fromkeys(wrong)) or None
    return booked, untold, billed


def _computed(call: ExplainedCall) -> Row:
    tokens = call.tokens
    return {
        "idle_s": call.idle_s,
        "prompt_tokens": None if tokens is None else tokens.prompt,
        **{column: None if tokens is None else tokens.of(name) for column, name in TOKEN_COLUMNS.items()},
        "basis": call.basis,
        "list_usd": _usd(call.list_usd),
        "billed_usd": _usd(call.billed_usd),
        "cost_usd": _usd(call.cost_usd),
        "cost_low_usd": _usd(call.cost_low_usd),
        "cost_high_usd": _usd(call.cost_high_usd),
        "excess_usd": _usd(call.excess_usd),
        "unexplained_read_tokens": None if tokens is None else call.unexplained_read,
    }


def _charge(charge: Charge) -> Row:
    return {
        "call": charge.call,
        "line": charge.line,
        "model": charge.model,
        "token_class": charge.token_class,
        "cause": charge.cause,
        "units": charge.units,
        "usd_low": _usd(charge.usd_low),
        "usd_high": _usd(charge.usd_high),
        "excess_usd": _usd(charge.excess_usd),
        "basis": charge.basis,
    }


def _usd(amount: Decimal | None) -> str | None:
    """Text with the 12 decimals of the columns. Prices make no further ones; a provider's own bill may."""
    return None if amount is None else format(round(amount, 12), "f")
