"""What a role may use up."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

LOOP = 5
"""The same command with the same output so often in a row is a loop, unless somebody says otherwise."""

TellTime = Literal["late", "always", "never"]
"""late: when half, a quarter and a tenth of the time are left. always: also at the beginning of each visit."""


@dataclass(frozen=True, slots=True)
class Limits:
    """`max_turns` bounds the turns of each role over all its visits. `command_timeout_s` is real seconds a command.

    `max_output_tokens` bounds each answer (the model's own limit does so too). `deadline` is a moment on the trial's
    clock; None: no limit. `seconds` is the whole time that it leaves the trial (None: no role is told of it), and
    `tell_time` when a role is told how much of it is left.
    """

    max_turns: int
    command_timeout_s: float
    max_output_tokens: int
    deadline: datetime | None
    loop_after: int = LOOP
    seconds: float | None = None
    tell_time: TellTime = "late"
