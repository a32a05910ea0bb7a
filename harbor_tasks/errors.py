"""The exceptions of this room.

TaskError
├── TaskInvalid     a task directory is wrong: one line naming file, field and how to mend it
└── TaskRefused     the task is valid, but this sandbox cannot honour it: names the Dockerfile line or the field
SandboxError
├── SandboxMissing  no sandbox of this kind can start on this machine; says what to install or set
├── SandboxBroken   it started and then failed: an infrastructure fault, never a score
│   ├── StorageExceeded  it was ended because the task's files passed environment.storage_mb: the agent's doing
│   └── SandboxSpoiled   what was done inside keeps shells from starting, also after a restart: the agent's doing
└── StateUnfit      a sandbox's state cannot be kept, or what was kept cannot be laid into a sandbox
"""


class TaskError(Exception):
    """Base of what is wrong with a task."""


class TaskInvalid(TaskError):
    """The directory is not a valid task."""


class TaskRefused(TaskError):
    """A valid task that this sandbox cannot honour; the reason is the message."""


class SandboxError(Exception):
    """Base of what is wrong with a sandbox."""


class SandboxMissing(SandboxError):
    """Cannot start here; the message says what to install or set."""


class SandboxBroken(SandboxError):
    """Failed while in use: an infrastructure fault."""


class StorageExceeded(SandboxBroken):
    """Ended by us because of what was written inside. Trying again would end the same way."""


class SandboxSpoiled(SandboxBroken):
    """The engine answers, and a restart does not help: what the agent did keeps shells from starting."""


class StateUnfit(SandboxError):
    """Too large to be kept, damaged, or of another kind of sandbox."""
