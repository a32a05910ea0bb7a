"""An answer's body that several readers may continue one after the other.

An SDK may drain what is left of a body by iterating it again, and an abandoned iteration must not stay open.
"""

from collections.abc import AsyncIterable, AsyncIterator
from typing import Protocol, Self

import httpx2  # noqa: TID253  (this module is loaded by open_http alone)


class Closable(Protocol):
    async def aclose(self) -> None: ...


class Body(httpx2.AsyncByteStream):
    """Its own iterator: iterating it again goes on where the last iteration stopped. May be closed more than once."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        raise NotImplementedError


def body_of(stream: object) -> Body:
    return stream if isinstance(stream, Body) else Continued(stream)


class Continued(Body):
    """A stream of another kind; closes its iteration and then its owner, by default the stream itself."""

    def __init__(self, stream: object, owner: Closable | None = None) -> None:
        if not isinstance(stream, AsyncIterable):
            raise TypeError("an async transport must answer with an async stream")
        self._chunks: AsyncIterator[bytes] = aiter(stream)
        self._owner: object = stream if owner is None else owner
        self._closed = False

    async def __anext__(self) -> bytes:
        if self._closed:
            raise StopAsyncIteration
        return await anext(self._chunks)

    async def aclose(self) -> None:
        if self._closed:
            return
        self._closed = True
        for part in (self._chunks, self._owner):
            close = getattr(part, "aclose", None)
            if close is not None:
                await close()
