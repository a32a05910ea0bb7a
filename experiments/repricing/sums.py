"""Sums of dollars and calls, by arm, task, role and model, that add up over batches of calls."""

from dataclasses import dataclass, field, fields
from decimal import Decimal
from typing import NamedTuple

NOTHING = Decimal(0)


class Place(NamedTuple):
    """Whose calls; `model` is the registry's name of the model that was called."""

    arm: str
    task: str
    role: str
    model: str


class Part(NamedTuple):
    """A token class of these calls; `cause` is "" where nobody asked for causes."""

    place: Place
    token_class: str
    cause: str


@dataclass(slots=True)
class Dollars:
    """USD. `low` = `high` when exact. `excess`: what rebuilds cost over reading the same tokens, part of `low`."""

    low: Decimal = NOTHING
    high: Decimal = NOTHING
    excess: Decimal = NOTHING

    def add(self, low: Decimal, high: Decimal, excess: Decimal = NOTHING) -> None:
        self.low += low
        self.high += high
        self.excess += excess


@dataclass(slots=True)
class Counts:
    """`calls` have ended; of them the dollars of `inexact` are a range, and `billed` have a provider's own bill. Calls
    `in_flight` have not ended and are in no sum. `anew`: attempts whose causes had to be found afresh."""

    calls: int = 0
    inexact: int = 0
    billed: int = 0
    in_flight: int = 0
    anew: int = 0

    def add(self, other: "Counts") -> None:
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))


@dataclass(slots=True)
class Sums:
    """`cost` is what the calls cost: a provider's bill where there is one, else the list price. `listed` are the list
    prices by class (and cause; excess is known by cause only)."""

    cost: dict[Place, Dollars] = field(default_factory=dict)
    listed: dict[Part, Dollars] = field(default_factory=dict)
    counts: dict[Place, Counts] = field(default_factory=dict)

    def cost_of(self, place: Place) -> Dollars:
        return self.cost.setdefault(place, Dollars())

    def listed_of(self, part: Part) -> Dollars:
        return self.listed.setdefault(part, Dollars())

    def counts_of(self, place: Place) -> Counts:
        return self.counts.setdefault(place, Counts())

    def add(self, other: "Sums") -> None:
        for place, cost in other.cost.items():
            self.cost_of(place).add(cost.low, cost.high, cost.excess)
        for part, listed in other.listed.items():
            self.listed_of(part).add(listed.low, listed.high, listed.excess)
        for place, counts in other.counts.items():
            self.counts_of(place).add(counts)
