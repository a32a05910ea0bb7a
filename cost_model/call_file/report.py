"""What the calls of a file cost and why, in plain values: what `fullchain usage --calls` prints. No I/O.

Dollars are text, digit for digit; null is not known, and then the least and the most stand beside it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from decimal import Decimal
from typing import Any

from cost_model.call_file.scope import CallScope, FileCall
from cost_model.causes import BESIDE, OUTPUT
from cost_model.idle import Expiry, expiries
from cost_model.ledger import Charge
from cost_model.scope import ExplainedCall, explain
from cost_model.tokens import Tokens
from cost_model.usage.report import counted, usd_text

_TOKENS = tuple(each.name for each in fields(Tokens))


def report_calls(scope: CallScope) -> dict[str, Any]:
    """`calls` in order of request, then `totals` over them, the `models` with their cache and prices, and warnings."""
    stored = [call.stored for call in scope.calls]
    explained = explain([call.fact for call in stored])
    expired = {expiry.call: expiry for expiry in expiries(stored, explained)}
    told = [
        _Told(call, one, expired.get(one.key)) for call, one in zip(scope.calls, explained, strict=True)
    ]  # fmt: skip
    warnings = [*counted(each.call.warnings for each in told), *scope.warnings]
    if scope.repeated:
        warnings.append(f"{scope.repeated} of the lines told of a call once more: each call is counted once")
    foreign = sum(1 for one in explained if one.unexplained_read)
    if foreign:
        warnings.append(f"{foreign} of the calls read from the cache what no earlier call of the file can have written")
    return {
        "calls": [_call(each) for each in told],
        "totals": _totals(told),
        "models": _models(scope.calls),
        "warnings": warnings,
    }


@dataclass(frozen=True, slots=True)
class _Told:
    call: FileCall
    explained: ExplainedCall
    expiry: Expiry | None

    @property
    def own_model(self) -> str:
        return self.call.stored.fact.model

    @property
    def prompt_tokens(self) -> int | None:
        """None: not known. Of a refused call nothing was billed."""
        if self.explained.tokens is not None:
            return self.explained.tokens.prompt
        return None if self.explained.charges else 0

    def of_prompt(self) -> Iterable[Charge]:
        return (charge for charge in self.explained.charges if charge.cause not in (OUTPUT, BESIDE))

    def tokens(self) -> dict[str, int | None]:
        """By class; of an untold output what it had at least is no count of it."""
        known = self.explained.tokens
        if known is None:
            return dict.fromkeys(_TOKENS, self.prompt_tokens)
        counts: dict[str, int | None] = {name: getattr(known, name) for name in _TOKENS}
        untold = dict.fromkeys(self.call.untold)
        if "output" in untold or any(c.cause == OUTPUT and c.units is None for c in self.explained.charges):
            untold |= {"output": None, "reasoning": None}
        return counts | untold


@dataclass(slots=True)
class _Sum:
    """Charges added up. `units` and `high` None: not known, nothing bounds it."""

    units: int | None = 0
    low: Decimal = Decimal(0)
    high: Decimal | None = Decimal(0)
    excess: Decimal = Decimal(0)

    def add(self, charge: Charge, *, open_above: bool) -> None:
        self.units = None if self.units is None or charge.units is None else self.units + charge.units
        self.low += charge.usd_low
        self.high = None if self.high is None or open_above else self.high + charge.usd_high
        self.excess += charge.excess_usd

    def shown(self, *, excess: bool = True) -> dict[str, Any]:
        made = {"units": self.units, **_range("usd", self.low, self.high)}
        return {**made, "excess_usd": usd_text(self.excess)} if excess else made


@dataclass(slots=True)
class _Cost:
    """What calls cost, added up: `known` of them exactly."""

    calls: int = 0
    known: int = 0
    low: Decimal = Decimal(0)
    high: Decimal | None = Decimal(0)
    excess: Decimal = Decimal(0)
    classes: dict[str, _Sum] = field(default_factory=dict)

    def add(self, told: _Told) -> None:
        one, open_above = told.explained, told.call.open_above
        self.calls += 1
        self.known += one.cost_usd is not None
        self.low += one.cost_low_usd
        self.high = None if self.high is None or open_above else self.high + one.cost_high_usd
        self.excess += one.excess_usd
        for name, charge in _classes(told):
            self.classes.setdefault(name, _Sum()).add(charge, open_above=open_above)

    def shown(self) -> dict[str, Any]:
        return {
            "calls": self.calls,
            "known": self.known,
            "unknown": self.calls - self.known,
            **_range("cost_usd", self.low, self.high, exact=self.known == self.calls),
            "excess_usd": usd_text(self.excess),
        }

    def by_class(self) -> dict[str, Any]:
        return {name: total.shown(excess=False) for name, total in self.classes.items()}


def _classes(told: _Told) -> Iterable[tuple[str, Charge]]:
    """Each charge under its class; that of another model than the call's own under "model:class"."""
    for charge in told.explained.charges:
        own = charge.model == told.own_model
        yield charge.token_class if own else f"{charge.model}:{charge.token_class}", charge


def _range(name: str, low: Decimal, high: Decimal | None, *, exact: bool = True) -> dict[str, Any]:
    """One amount where it is exact, else null with the least and the most; most null: nothing bounds it."""
    if exact and low == high:
        return {name: usd_text(low)}
    stem = name.removesuffix("usd")
    return {name: None, f"{stem}low_usd": usd_text(low), f"{stem}high_usd": usd_text(high)}


def _call(told: _Told) -> dict[str, Any]:
    line, fact, one = told.call.line, told.call.stored.fact, told.explained
    causes: dict[str, _Sum] = {}
    for charge in told.of_prompt():
        causes.setdefault(charge.cause, _Sum()).add(charge, open_above=told.call.open_above)
    cost = _Cost()
    cost.add(told)
    return {
        "key": one.key,
        "role": line.role,
        "lane": fact.lane,
        "model": fact.model,
        "api": told.call.api,
        "requested_at": fact.requested_at.isoformat(),
        "outcome": fact.outcome,
        "idle_s": one.idle_s,
        "prompt_tokens": told.prompt_tokens,
        "tokens": told.tokens(),
        "causes": {cause: total.shown() for cause, total in causes.items()},
        "classes": cost.by_class(),
        **_range("cost_usd", cost.low, cost.high, exact=one.cost_usd is not None),
        "list_usd": usd_text(one.list_usd),
        "billed_usd": usd_text(one.billed_usd),
        "excess_usd": usd_text(one.excess_usd),
        "expiry": None if told.expiry is None else _expiry(told.expiry),
        "unexplained_read_tokens": None if one.tokens is None else one.unexplained_read,
        "basis": one.basis,
    }


def _expiry(expiry: Expiry) -> dict[str, Any]:
    holder, kind = expiry.holder or (None, None)
    return {
        "holder": holder,
        "kind": kind,
        "idle_s": expiry.idle_s,
        "held": [{"holder": who, "kind": what, "seconds": round(held, 6)} for who, what, held in expiry.held],
        "tokens": expiry.tokens,
        "excess_usd": usd_text(expiry.excess_usd),
    }


def _totals(told: Sequence[_Told]) -> dict[str, Any]:
    whole, roles, causes = _Cost(), dict[str, _Cost](), dict[str, _Sum]()
    tokens: dict[str, int | None] = dict.fromkeys(_TOKENS, 0)
    for each in told:
        whole.add(each)
        roles.setdefault(each.call.line.role, _Cost()).add(each)
        for charge in each.of_prompt():
            causes.setdefault(charge.cause, _Sum()).add(charge, open_above=each.call.open_above)
        for name, count in each.tokens().items():
            before = tokens[name]
            tokens[name] = None if before is None or count is None else before + count
    listed = [each.explained.list_usd for each in told]
    return {
        **whole.shown(),
        "list_usd": usd_text(sum((usd for usd in listed if usd is not None), Decimal(0)))
        if None not in listed
        else None,
        "tokens": tokens,
        "classes": whole.by_class(),
        "causes": {cause: total.shown() for cause, total in causes.items()},
        "roles": {role: {**cost.shown(), "classes": cost.by_class()} for role, cost in roles.items()},
    }


def _models(calls: Sequence[FileCall]) -> dict[str, Any]:
    """Of each model whose prompts were sent: how they are taken to be cached, and where their prices come from."""
    caches: dict[str, dict[str, None]] = {}
    prices: dict[str, dict[str, None]] = {}
    for call in calls:
        fact = call.stored.fact
        caches.setdefault(fact.model, {})[fact.policy.name] = None
        prices.setdefault(fact.model, {})[fact.card.source] = None
    return {model: {"cache": list(caches[model]), "prices": list(prices[model])} for model in caches}
