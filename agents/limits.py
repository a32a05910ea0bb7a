"""What a role may use up."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Limits:
    """`max_turns` bounds the turns of each role over all its visits. `command_timeout_s` is real seconds a command.

    `max_output_tokens` bounds each answer (the model's own limit does so too). `deadline` is a moment on the trial's
    clock; None: no limit.
    """

    max_turns: int
    command_timeout_s: float
    max_output_tokens: int
    deadline: datetime | None
