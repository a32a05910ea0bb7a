"""What a role may still spend, asked before each of its calls. In which unit and at which prices agents do not know."""

from typing import Protocol


class Guard(Protocol):
    """One attempt's."""

    def used_up(self, role: str) -> bool:
        """Whether what is spent has reached a limit, of the whole trial or of this role: it makes no further call."""
