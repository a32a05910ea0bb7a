"""Measured and repriced dollars side by side, a line each for whatever is asked."""

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum

from cost_model.tokens import PROMPT_CLASSES
from experiments.repricing.repricing import Repriced
from experiments.repricing.sums import Counts, Dollars, Part, Place


class By(StrEnum):
    """What splits the dollars of a role and a model further. Classes and causes are at list prices."""

    classes = "class"
    causes = "cause"
    tasks = "task"


@dataclass(frozen=True, slots=True)
class Line:
    """`part`: a class, cause or task; "" where nothing is split."""

    arm: str
    role: str
    model: str
    part: str
    measured: Dollars
    repriced: Dollars


@dataclass(frozen=True, slots=True)
class ArmLines:
    """`measured` and `repriced` are the arm's whole cost, with providers' bills where there are any. `was` and `now`
    count its calls as they are stored and as they are repriced."""

    arm: str
    simulated: bool
    lines: tuple[Line, ...]
    measured: Dollars
    repriced: Dollars
    was: Counts
    now: Counts


def by_arm(found: Repriced, by: By | None) -> list[ArmLines]:
    """The arms in the spec's order; lines by role, model and part."""
    return [_arm(found, arm, simulated, by) for arm, simulated in found.arms.items()]


def whole(arms: Iterable[ArmLines]) -> tuple[Dollars, Dollars]:
    measured, repriced = Dollars(), Dollars()
    for arm in arms:
        _add(measured, arm.measured)
        _add(repriced, arm.repriced)
    return measured, repriced


def _arm(found: Repriced, arm: str, simulated: bool, by: By | None) -> ArmLines:
    sides = (
        _split(found.measured.cost, found.measured.listed, arm, by),
        _split(found.repriced.cost, found.repriced.listed, arm, by),
    )
    names = sorted({name for side in sides for name in side}, key=_order)
    lines = tuple(Line(arm, *name, *(side.get(name, Dollars()) for side in sides)) for name in names)
    measured, repriced = (
        _sum(cost for place, cost in sums.cost.items() if place.arm == arm) for sums in (found.measured, found.repriced)
    )
    was, now = (
        _count(counts for place, counts in sums.counts.items() if place.arm == arm)
        for sums in (found.measured, found.repriced)
    )
    return ArmLines(arm, simulated, lines, measured, repriced, was, now)


def _count(counts: Iterable[Counts]) -> Counts:
    total = Counts()
    for each in counts:
        total.add(each)
    return total


def _split(
    cost: dict[Place, Dollars], listed: dict[Part, Dollars], arm: str, by: By | None
) -> dict[tuple[str, str, str], Dollars]:
    sums: dict[tuple[str, str, str], Dollars] = {}
    if by in (By.classes, By.causes):
        for part, dollars in listed.items():
            if part.place.arm == arm:
                name = part.cause if by == By.causes else part.token_class
                _add(sums.setdefault((part.place.role, part.place.model, name), Dollars()), dollars)
        return sums
    for place, dollars in cost.items():
        if place.arm == arm:
            _add(sums.setdefault((place.role, place.model, place.task if by else ""), Dollars()), dollars)
    return sums


def _order(name: tuple[str, str, str]) -> tuple[str, str, int, str]:
    role, model, part = name
    # Output comes last, after what has no place in a prompt.
    place = PROMPT_CLASSES.index(part) if part in PROMPT_CLASSES else len(PROMPT_CLASSES) + (part == "output")
    return role, model, place, part


def _sum(amounts: Iterable[Dollars]) -> Dollars:
    total = Dollars()
    for each in amounts:
        _add(total, each)
    return total


def _add(to: Dollars, dollars: Dollars) -> None:
    to.add(dollars.low, dollars.high, dollars.excess)


def ratio(measured: Dollars, repriced: Dollars) -> Decimal | None:
    """Repriced over measured; None where one is a range, or nothing was measured to compare with."""
    if measured.low != measured.high or repriced.low != repriced.high or not measured.low:
        return None
    return repriced.low / measured.low
