"""Ctrl-C and SIGTERM during a run: the first cancels it in order, the next one is the caller's."""

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def cancelling(task: "asyncio.Task[object]", told: Callable[[signal.Signals], None]) -> Iterator[None]:
    """The first SIGINT or SIGTERM cancels `task`, after `told(signal)`, which may set handlers for the next one; unless
    it does, that is Python's to handle.

    Must be entered in the thread and loop of the task.
    """
    loop = asyncio.get_running_loop()
    signals = (signal.SIGINT, signal.SIGTERM)

    def first(which: signal.Signals) -> None:
        for each in signals:
            loop.remove_signal_handler(each)
        told(which)
        task.cancel()

    for each in signals:
        loop.add_signal_handler(each, first, each)
    try:
        yield
    finally:
        for each in signals:
            loop.remove_signal_handler(each)
