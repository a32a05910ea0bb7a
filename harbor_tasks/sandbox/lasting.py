"""A shell for an agent: what a command does to its own session is the agent's doing, not a fault of the machine."""

import time
from collections.abc import Mapping

from harbor_tasks.errors import SandboxBroken
from harbor_tasks.sandbox import Output, Sandbox, Shell

SHELL_GONE = 137


class LastingShell:
    """A `Shell` over sessions of one sandbox: where a command ends its session, the next one gets a fresh one.

    Otherwise an agent that fails could end its shell and have the trial counted as broken instead.
    """

    def __init__(self, sandbox: Sandbox, env: Mapping[str, str] | None = None, user: str | None = None) -> None:
        self._sandbox = sandbox
        self._env = env
        self._user = user
        self._session: Shell | None = None

    async def run(self, command: str, *, timeout_s: float, keep: bool = True) -> Output:
        """A command that ended its session has exit code 137 and is told so. Raises SandboxBroken when no session can
        be started, which is the machine's fault."""
        if self._session is None:
            self._session = await self._sandbox.shell(self._env, self._user)
        started = time.monotonic()
        try:
            return await self._session.run(command, timeout_s=timeout_s, keep=keep)
        except SandboxBroken as broken:
            await self.close()
            self._session = await self._sandbox.shell(self._env, self._user)
            text = f"{broken}; a new shell begins in {self._sandbox.workdir}, without what was exported"
            return Output(SHELL_GONE, text, len(text.encode()), False, time.monotonic() - started)

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()
