"""Renews a read copy of the database while a run goes on."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from experiments.errors import StoreError, StoreLocked
from experiments.store.snapshot import publish

EVERY_S = 5.0
_PATIENCE_S = 2.0


@asynccontextmanager
async def published(
    database: Path, target: Path, told: Callable[[str], None], *, every_s: float = EVERY_S
) -> AsyncIterator[None]:
    """A copy at once, then every so often while the block runs, and one more at its end.

    Raises StoreError when the first cannot be made. Where a later one cannot, that is told once, and the run goes on.
    """
    await _publish(database, target)
    ended = asyncio.Event()
    renewing = asyncio.create_task(_renew(database, target, told, every_s, ended))
    try:
        yield
    finally:
        ended.set()
        await renewing


async def _renew(
    database: Path, target: Path, told: Callable[[str], None], every_s: float, ended: asyncio.Event
) -> None:
    said = False
    while True:
        with suppress(TimeoutError):
            async with asyncio.timeout(every_s):
                await ended.wait()
        last = ended.is_set()
        try:
            await _publish(database, target)
        except StoreLocked:
            # Somebody reads or merges just now; the next one will do.
            pass
        except StoreError as error:
            if not said:
                told(f"no read copy: {error}")
            said = True
        if last:
            return


async def _publish(database: Path, target: Path) -> None:
    await asyncio.to_thread(publish, database, target, patience_s=_PATIENCE_S)
