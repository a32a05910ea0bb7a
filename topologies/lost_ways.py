"""Notices a node that goes to a node which is not there: LangGraph only logs it, and the graph would end as if all were
well."""

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from topologies.errors import TopologyError

_LOST: ContextVar[list[str] | None] = ContextVar("lost", default=None)
_WAY = re.compile(r"wrote to unknown channel branch:to:(.*), ignoring it")


class _Listening(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        lost, way = _LOST.get(), _WAY.search(record.getMessage())
        if lost is None or way is None:
            return True
        lost.append(way[1])
        return False


_LISTENING = _Listening()


@contextmanager
def no_way_lost(topology: str) -> Iterator[None]:
    """Raises TopologyError at the end when a node went where none is."""
    # Added once: the same filter is never added twice.
    logging.getLogger("langgraph").addFilter(_LISTENING)
    lost: list[str] = []
    token = _LOST.set(lost)
    try:
        yield
    finally:
        _LOST.reset(token)
    if lost:
        raise TopologyError(f"topology '{topology}': a node goes to {lost[0]!r}, which is no node of its graph")
