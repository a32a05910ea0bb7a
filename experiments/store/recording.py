"""What a run holds while it runs: the journal that its trials write, and a merge into the database every few seconds.

A run never waits for a reader: while the file is held, rows stay in the journal, and the next command merges them.
"""

import asyncio
import contextlib
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from experiments.errors import StoreLocked
from experiments.store.journal import Journal, journal_folder
from experiments.store.segment import decode
from experiments.store.store import Store

MERGE_EVERY_S = 3.0


class Recording:
    """Async context manager: open it for the length of a run, give `journal` to its trials.

    Leaving it merges what is finished, closes the journal, and removes the segment when all of it is in the database.
    `left` then tells in one line why rows had to stay in the journal, None when nothing did.
    """

    def __init__(self, store: Store, run_id: str, *, merge_every_s: float = MERGE_EVERY_S) -> None:
        """`run_id` names the segment file: letters, digits, dash."""
        if not run_id.replace("-", "").isalnum():
            raise ValueError(f"a run id is letters, digits and dashes, not {run_id!r}")
        self._store = store
        self._merge_every_s = merge_every_s
        self.journal = Journal(journal_folder(store.path) / f"{run_id}.jsonl")
        self.left: str | None = None
        self._pending: list[Sequence[bytes]] = []
        self._stop = asyncio.Event()
        self._merging: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """Raises StoreLocked when this run id is in use, JournalFull when the segment cannot be created."""
        await self.journal.__aenter__()
        self._merging = asyncio.create_task(self._merge_regularly())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Raises JournalFull when the last records could not be written, StoreError for an unusable database."""
        self._stop.set()
        try:
            if self._merging is not None:
                await self._merging
        finally:
            await self.journal.__aexit__(kind, error, trace)
        try:
            recovered = await asyncio.to_thread(self._store.recover)
        except StoreLocked as locked:
            self.left = f"{locked}; nothing is lost: the rows stay in the journal and the next command merges them"
        else:
            self.left = "; ".join(recovered.left) or None

    async def merge(self) -> None:
        """Merges every attempt that has ended so far. Raises StoreLocked: they stay pending."""
        self._pending += self.journal.take_finished()
        batch = list(self._pending)
        await asyncio.to_thread(
            self._store.merge, [[decode(line, str(self.journal.path)) for line in lines] for lines in batch]
        )
        del self._pending[: len(batch)]

    async def _merge_regularly(self) -> None:
        while not self._stop.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._merge_every_s):
                    await self._stop.wait()
            with contextlib.suppress(StoreLocked):
                await self.merge()
