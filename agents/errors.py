"""The exceptions of this room.

AgentError
├── RegistryError    a model file or a choice of model is wrong: one line naming file, field and mend
├── ProviderRefused  the provider gave an answer that retries cannot mend: an infrastructure fault, never a score
├── JudgeMissing     the process that judges commands cannot be started: an infrastructure fault, never a score
├── CommandRefused   the role's policy does not let a command run
├── TryFailed        one HTTP request brought no answer; the retry loop decides what comes of it
└── VisitEnded       control flow: the role's visit is over without a hand-over, `ended_by` says why
DeadlinePassed       control flow: the moment given to `Clock.deadline` has come (no AgentError: nothing went wrong)
"""

from typing import Literal

EndedBy = Literal["agent_timeout", "max_turns", "loop", "context_full", "refusal", "no_handover", "over_budget"]

Fault = Literal["key", "credit", "model", "region", "address", "unreachable", "proxy", "tls"]
"""What a person must mend: a wrong key, an account without credit, a model that the provider does not have, a region
that it does not serve, a base_url behind which no such API answers, a host that cannot be reached, a proxy that does
not let the call through, a certificate that cannot be verified."""


class AgentError(Exception):
    """Base of everything this room raises on purpose."""


class RegistryError(AgentError):
    """What a person wrote about models is wrong; the message says how to mend it."""


class ProviderRefused(AgentError):
    """No answer could be had. The message is one line with the provider's own words, the advice, and no key in it.

    `fault` says what is wrong where that is known, `advice` (one line, "" when there is none) what a person does then.
    """

    def __init__(self, message: str, *, fault: Fault | None = None, advice: str = "") -> None:
        super().__init__(f"{message}; {advice}" if advice else message)
        self.fault = fault
        self.advice = advice


class TryFailed(AgentError):
    """One try brought no answer.

    `status` is the HTTP status (None without a response), `retry_after_s` what the provider asked for in seconds.
    `context_full`: the prompt is longer than the model takes, which no retry mends. `fault` and `advice` are those of
    ProviderRefused.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        retryable: bool = True,
        retry_after_s: float | None = None,
        context_full: bool = False,
        fault: Fault | None = None,
        advice: str = "",
    ) -> None:
        super().__init__(message)
        self.status = status
        self.retryable = retryable
        self.retry_after_s = retry_after_s
        self.context_full = context_full
        self.fault = fault
        self.advice = advice


class VisitEnded(AgentError):
    """The visit ended without a hand-over; the state that it leaves is verified all the same."""

    def __init__(self, ended_by: EndedBy) -> None:
        super().__init__(ended_by)
        self.ended_by: EndedBy = ended_by


class JudgeMissing(AgentError):
    """No command of a role with a policy can be judged; the message says how to find out why."""


class CommandRefused(AgentError):
    """The role's policy does not let a command run; the message is what the model is told."""


class DeadlinePassed(Exception):
    """Raised inside `Clock.deadline` when its moment has come."""
