"""The exceptions of the simulated provider.

AgentError
└── SimulatorError   a persona file, a task's script or the bill's path is wrong: one line with the mend
Refused              an answer with an HTTP error status, in neutral form; each protocol gives it its own shape
"""

from agents.errors import AgentError


class SimulatorError(AgentError):
    """What a person gave to the simulated provider is wrong; the message names file, field and mend."""


class Refused(Exception):
    """The request breaks a rule of the provider.

    `kind` is the error type in Anthropic's vocabulary; `param` and `code` stand in OpenAI's error object.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int = 400,
        kind: str = "invalid_request_error",
        param: str | None = None,
        code: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.kind = kind
        self.param = param
        self.code = code
