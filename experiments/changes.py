"""What a trial's agents have changed in the working directory so far, told to those who ask: the reviewers.

A copy from before the agents began lies on the host, where no agent can write, and each diff is made against a copy of
now. No tool inside the sandbox is needed, and no repository.
"""

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from experiments.passing_folder import passing_folder
from harbor_tasks.errors import SandboxBroken
from harbor_tasks.sandbox import Sandbox
from harbor_tasks.tree_diff import tree_diff

COPY_SECONDS = 60.0
"""A working directory that takes longer to copy is not compared."""


class Changes:
    """Regular files alone: links, pipes and devices are no part of a copy, and what cannot be read counts as gone."""

    def __init__(self, sandbox: Sandbox, folder: Path) -> None:
        self._sandbox = sandbox
        self._before = folder / "before"
        self._unknown = ""

    @classmethod
    @asynccontextmanager
    async def since_now(cls, sandbox: Sandbox) -> AsyncIterator["Changes"]:
        """Copies the working directory as it is; the copy lives as long as the block."""
        # Too large or too slow is told to whoever asks, and breaks nothing; so does what is left of a removed folder.
        with passing_folder() as folder:
            changes = cls(sandbox, folder)
            changes._unknown = await changes._copy(changes._before)
            yield changes

    async def diff(self) -> str:
        """The diff, or in one line why there is none. Bounded in size and time."""
        if self._unknown:
            return self._unknown
        with tempfile.TemporaryDirectory(dir=self._before.parent, ignore_cleanup_errors=True) as folder:
            now = Path(folder, "now")
            return await self._copy(now) or await asyncio.to_thread(tree_diff, self._before, now)

    async def _copy(self, target: Path) -> str:
        """In words why it could not be copied; nothing when it was."""
        try:
            async with asyncio.timeout(COPY_SECONDS):
                await self._sandbox.download(self._sandbox.workdir, target)
        except TimeoutError:
            return f"[no diff: copying the working directory took longer than {COPY_SECONDS:g} s]"
        except FileNotFoundError:
            return "[no diff: the working directory is gone]"
        except SandboxBroken as broken:
            return f"[no diff: {' '.join(str(broken).split())[:300]}]"
        return ""
