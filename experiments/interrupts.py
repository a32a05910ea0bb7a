"""Ctrl-C and SIGTERM during a run: the first cancels it in order, the next one is the caller's."""

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def interruptible(told: Callable[[signal.Signals], None]) -> Iterator[None]:
    """The first SIGINT or SIGTERM cancels the block, which then ends without an exception, after `told(signal)`, which
    may set handlers for the next one; unless it does, that is Python's to handle.

    Must be entered in a task of the main thread.
    """
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    assert task is not None  # noqa: S101  (a coroutine runs in a task)
    signals = (signal.SIGINT, signal.SIGTERM)
    interrupted = False

    def first(which: signal.Signals) -> None:
        nonlocal interrupted
        interrupted = True
        for each in signals:
            loop.remove_signal_handler(each)
        try:
            told(which)
        finally:
            task.cancel()

    for each in signals:
        loop.add_signal_handler(each, first, each)
    try:
        yield
    except asyncio.CancelledError:
        if not interrupted:
            raise
        task.uncancel()
    finally:
        for each in signals:
            loop.remove_signal_handler(each)
