"""What a trial and each of its roles may spend, and have spent: the guard that is asked before each call.

A call counts once it has ended, so that those in flight at that moment may pass a limit: at most one of each lane that
works side by side with others, and one ping of each role that is kept alive. One attempt is counted for itself.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal


@dataclass(frozen=True, slots=True)
class Ceiling:
    """`tokens` of prompts and answers together; None sets no limit."""

    usd: Decimal | None = None
    tokens: int | None = None


@dataclass(slots=True)
class Spent:
    """As `Ceiling`."""

    usd: Decimal = Decimal(0)
    tokens: int = 0

    def add(self, usd: Decimal, tokens: int) -> None:
        self.usd += usd
        self.tokens += tokens

    def reaches(self, ceiling: Ceiling) -> bool:
        return (ceiling.usd is not None and self.usd >= ceiling.usd) or (
            ceiling.tokens is not None and self.tokens >= ceiling.tokens
        )


def guard_of(trial: Ceiling, roles: Mapping[str, Ceiling]) -> "SpendingGuard | None":
    """None where nothing is limited: then nothing need be counted."""
    limited = any(ceiling != Ceiling() for ceiling in (trial, *roles.values()))
    return SpendingGuard(trial, roles) if limited else None


class SpendingGuard:
    """Implements agents.guard.Guard for one attempt. A role without a ceiling of its own has the trial's alone."""

    def __init__(self, trial: Ceiling, roles: Mapping[str, Ceiling]) -> None:
        self._ceiling = trial
        self._of_role = dict(roles)
        self.spent = Spent()
        self.spent_by: dict[str, Spent] = {}

    def count(self, role: str, usd: Decimal, tokens: int) -> None:
        """One call of the role, which has ended. What is not known of it counts as the most that it can be."""
        self.spent.add(usd, tokens)
        self.spent_by.setdefault(role, Spent()).add(usd, tokens)

    def used_up(self, role: str) -> bool:
        of_role = self.spent_by.get(role)
        return self.spent.reaches(self._ceiling) or (
            of_role is not None and of_role.reaches(self._of_role.get(role, Ceiling()))
        )
