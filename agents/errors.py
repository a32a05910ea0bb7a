"""The exceptions of this room.

AgentError
├── RegistryError    a model file or a choice of model is wrong: one line naming file, field and mend
├── ProviderRefused  the provider gave an answer that retries cannot mend: an infrastructure fault, never a score
├── TryFailed        one HTTP request brought no answer; the retry loop decides what comes of it
└── VisitEnded       control flow: the role's visit is over without a hand-over, `ended_by` says why
DeadlinePassed       control flow: the moment given to `Clock.deadline` has come (no AgentError: nothing went wrong)
"""

from typing import Literal

EndedBy = Literal["agent_timeout", "max_turns", "loop", "context_full", "refusal", "no_handover", "over_budget"]


class AgentError(Exception):
    """Base of everything this room raises on purpose."""


class RegistryError(AgentError):
    """What a person wrote about models is wrong; the message says how to mend it."""


class ProviderRefused(AgentError):
    """No answer could be had. The message is one bounded line with the provider's own words and no key in it."""


class TryFailed(AgentError):
    """One try brought no answer.

    `status` is the HTTP status (None without a response), `retry_after_s` what the provider asked for in seconds.
    `context_full`: the prompt is longer than the model takes, which no retry mends.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        retryable: bool = True,
        retry_after_s: float | None = None,
        context_full: bool = False,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.retryable = retryable
        self.retry_after_s = retry_after_s
        self.context_full = context_full


class VisitEnded(AgentError):
    """The visit ended without a hand-over; the state that it leaves is verified all the same."""

    def __init__(self, ended_by: EndedBy) -> None:
        super().__init__(ended_by)
        self.ended_by: EndedBy = ended_by


class DeadlinePassed(Exception):
    """Raised inside `Clock.deadline` when its moment has come."""
