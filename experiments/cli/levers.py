"""From the options of `fullchain whatif` to the change that is replayed, and what is said about it."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

from experiments.errors import QueryError

if TYPE_CHECKING:
    from cost_model.call_fact import CallFact
    from cost_model.price_card import PriceCard
    from cost_model.usage.lines import Line
    from cost_model.what_if.change import Change, OtherModel, RoleChange
    from cost_model.what_if.keep_alive import KeepAlive
    from cost_model.what_if.truncation import Truncation
    from experiments.store.ledger import Facts

FACTOR = re.compile(r"\d{1,6}(\.\d{1,6})?|\d{1,6}/\d{1,6}")
LONGEST_INTERVAL_S = 86_400
MOMENT = "a date such as 2026-12-01, or a date-time such as 2026-12-01T08:00:00Z"


@dataclass(frozen=True, slots=True)
class Levers:
    """The options as they were written."""

    role: str | None = None
    ttl: str | None = None
    keep_alive: float | None = None
    pings: int | None = None
    ping_output: int = 0
    faster: str | None = None
    model: str | None = None
    truncate: str | None = None
    fewer_handovers: int = 0
    at: str | None = None
    models: tuple[Path, ...] = ()
    prices: tuple[Path, ...] = ()

    @property
    def of_a_role(self) -> bool:
        return any(each is not None for each in (self.ttl, self.keep_alive, self.faster, self.model, self.truncate))

    @property
    def none(self) -> bool:
        return not (self.of_a_role or self.fewer_handovers or self.at or self.prices)


def change_of(levers: Levers, facts: "Facts", repriced: "Mapping[str, CallFact] | None" = None) -> "Change":
    """`repriced`: the calls at the prices that the levers ask for, by key.

    Raises QueryError for an option that is not what it must be, RegistryError, PriceFileError.
    """
    from cost_model.what_if.change import Change

    if levers.of_a_role and levers.role is None:
        raise QueryError("--ttl, --keep-alive, --faster, --model and --truncate change one role: name it with --role")
    if levers.pings is not None and levers.keep_alive is None:
        raise QueryError("--pings bounds the pings of --keep-alive SECONDS: give that too")
    if levers.role is not None and not levers.of_a_role:
        raise QueryError(
            f"nothing is changed about {levers.role!r}: add --ttl, --keep-alive, --faster, --model or --truncate"
        )
    roles = {} if levers.role is None else {levers.role: _role(levers, facts)}
    change = Change(roles, levers.fewer_handovers)
    return change if repriced is None else _at_other_prices(levers, change, repriced)


def _role(levers: Levers, facts: "Facts") -> "RoleChange":
    from cost_model.what_if.change import RoleChange

    return RoleChange(
        lifetime=levers.ttl,
        keep_alive=None if levers.keep_alive is None else _pings(levers.keep_alive, levers),
        times_faster=Fraction(1) if levers.faster is None else _factor(levers.faster),
        model=None if levers.model is None else _model(levers.model, levers, facts),
        truncation=None if levers.truncate is None else _truncation(levers.truncate),
    )


def _pings(interval_s: float, levers: Levers) -> "KeepAlive":
    from cost_model.what_if.keep_alive import KeepAlive

    if not 1 <= interval_s <= LONGEST_INTERVAL_S:
        raise QueryError(f"--keep-alive {interval_s:g}: expected seconds from 1 to {LONGEST_INTERVAL_S:,}")
    return KeepAlive(timedelta(seconds=interval_s), levers.pings, levers.ping_output)


def _factor(text: str) -> Fraction:
    try:
        factor = Fraction(text) if FACTOR.fullmatch(text) else Fraction(0)
    except ZeroDivisionError:
        factor = Fraction(0)
    if factor <= 0:
        raise QueryError(f"--faster {text}: expected a number above 0: 2 for twice as fast, 1/2 for half as fast")
    return factor


def _truncation(text: str) -> "Truncation":
    from cost_model.what_if.truncation import Truncation

    parts = text.split(":")
    try:
        if not all(part.isascii() and part.isdigit() and len(part) < 10 for part in parts) or len(parts) > 3:
            raise ValueError("expected ABOVE:KEEP or ABOVE:KEEP:HEAD in tokens, such as 100000:40000:8000")
        if len(parts) < 2:
            raise ValueError("expected both ABOVE and KEEP in tokens, such as 100000:40000")
        above, keep, *head = map(int, parts)
        return Truncation(above, keep, *head)
    except ValueError as error:
        raise QueryError(f"--truncate {text}: {error}") from None


def _model(name: str, levers: Levers, facts: "Facts") -> "OtherModel":
    from agents.registry import find_model, load_models
    from cost_model.policies import POLICIES
    from cost_model.price_card import SELF_HOSTED
    from cost_model.prices import PriceBook
    from cost_model.what_if.change import OtherModel

    entry, book = find_model(load_models(levers.models), name), PriceBook(levers.prices)
    fixed = moment(levers.at) if levers.at else facts.prices_at
    ref = entry.price
    if ref is None:
        return OtherModel(name, POLICIES[entry.cache], lambda _: SELF_HOSTED)
    return OtherModel(name, POLICIES[entry.cache], lambda at: book.card(ref, fixed or at))


def _at_other_prices(levers: Levers, change: "Change", repriced: "Mapping[str, CallFact]") -> "Change":
    """`change`, and every call at the prices of `repriced`: its tier, region and whatever is beside it included.

    A role on another model has that one's prices already, of the same book and moment.
    """

    def card(call: "CallFact") -> "PriceCard":
        return call.card if _exchanged(call, repriced, levers) else repriced[call.key].card

    def beside(call: "CallFact") -> "Sequence[Line]":
        return repriced[call.key].beside

    return replace(change, card=card, beside=beside)


def _exchanged(call: "CallFact", repriced: "Mapping[str, CallFact]", levers: Levers) -> bool:
    return levers.model is not None and call.model != repriced[call.key].model


def moment(text: str) -> datetime:
    """The moment of an --at DATE; UTC unless it says otherwise. Raises QueryError."""
    try:
        given = datetime.fromisoformat(text)
    except ValueError:
        raise QueryError(f"--at {text}: expected {MOMENT}") from None
    if not 2000 <= given.year <= 2100:
        raise QueryError(f"--at {text}: expected a year from 2000 to 2100")
    return given.astimezone(UTC) if given.tzinfo else given.replace(tzinfo=UTC)


def described(levers: Levers) -> list[str]:
    """What is changed, a phrase each."""
    role = levers.role
    told = []
    if levers.ttl is not None:
        told.append(f"{role} caches nothing" if levers.ttl == "none" else f"{role} asks for a lifetime of {levers.ttl}")
    if levers.pings == 0:
        told.append(f"{role} is not kept alive by pings")
    elif levers.keep_alive is not None:
        most = "as many as a wait takes" if levers.pings is None else f"at most {levers.pings} a wait"
        told.append(f"{role} is kept alive by a ping every {levers.keep_alive:g} s ({most})")
    if levers.faster is not None:
        told.append(f"{role} is {levers.faster} times as fast")
    if levers.model is not None:
        told.append(f"{role} has the prices and the cache of {levers.model}")
    if levers.truncate is not None:
        told.append(f"{role} is truncated ({levers.truncate} tokens)")
    if levers.fewer_handovers:
        told.append(f"the last {_times(levers.fewer_handovers)} did not happen")
    if levers.prices:
        told.append(f"prices of {', '.join(str(path) for path in levers.prices)}")
    if levers.at is not None:
        told.append(f"prices of {levers.at}")
    return told


def caveats(levers: Levers) -> Sequence[str]:
    """What a replay assumes, and what none can know, where it matters to what was asked."""
    told = ["taken as measured: how the lanes grow, what is written, which commands run"]
    if levers.faster is not None:
        told.append(f"assumed: all of the time in which {levers.role} holds the floor is scaled, its commands too")
    if levers.keep_alive is not None:
        told.append("assumed: pings go on until the lane's next call, or the end of the trial")
    if levers.model is not None:
        told.append("not known: how another model counts, writes and works; only its prices and cache are exchanged")
    if levers.fewer_handovers:
        told.append("not known: whether the work would have passed; a trial keeps its first hand-over")
    if levers.truncate is not None:
        told.append("not known: what the model would have done without what it forgot")
    return told


def _times(count: int) -> str:
    return "hand-over" if count == 1 else f"{count} hand-overs"
