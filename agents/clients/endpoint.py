"""One protocol's address over its SDK: raw bytes out, plain dicts in. Both SDKs name things alike and share this."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Protocol

import httpx2  # noqa: TID253  (loaded by `connect`, when a model of a protocol is hired)
import orjson

from agents.clients import Reply, ToolCall
from agents.clients.events import mapping
from agents.clients.failure import BAD_EVENTS, failure, not_an_answer, unended
from agents.errors import TryFailed
from agents.registry import ModelEntry
from agents.transport.call import CALL, CurrentCall
from agents.wire_text import holds, wire_text, without

_REASON_CHARACTERS = 200


class Answer(Protocol):
    """What an answer is made of, event by event. `ended`: the protocol's terminal event has come."""

    @property
    def ended(self) -> bool: ...

    def add(self, event: Mapping[str, object]) -> None: ...

    def reply(self, tool_seconds: float) -> Reply: ...


class Endpoint:
    """`sdk` is an async client of either SDK, of which nothing but `post` is used; `broken` is the base of what it
    raises. Whatever the SDK took from its own environment variables is taken out: the entry alone says what is sent."""

    def __init__(
        self, sdk: Any, stream: type, broken: type[Exception], *, entry: ModelEntry, key: str, path: str
    ) -> None:
        self._sdk, self._stream, self._broken = sdk, stream, broken
        self._entry, self._key = entry, key
        # A variable of other headers could replace the entry's own key, and show another to every provider.
        sdk._custom_headers = {}
        # Absolute: the SDK would put a relative address together, and parse it, anew for every call.
        self._url = f"{entry.base_url}{path}"
        self._headers = {"Content-Type": "application/json", **entry.headers}

    async def ask(self, body: bytes, answer: Answer, call: CurrentCall) -> Reply:
        """Raises TryFailed when there is no whole answer, and whatever the book refuses the call with."""
        with self._acting(call):
            stream = await self._sdk.post(
                self._url,
                content=body,
                cast_to=object,
                stream=True,
                stream_cls=self._stream,
                options={"headers": self._headers},
            )
            async with stream:
                kind = stream.response.headers.get("content-type", "")
                if "html" in kind:
                    raise not_an_answer(kind, self._entry, self._key)
                async for event in stream:
                    answer.add(mapping(event))
            if not answer.ended:
                raise unended(call, self._entry, self._key)
            return _fit_to_keep(answer.reply(call.tool_seconds), self._key)

    async def ping(self, body: bytes, call: CurrentCall) -> None:
        """Sends `body`, which asks for no stream, and reads nothing in its answer: the meter has. Raises as `ask`."""
        with self._acting(call):
            await self._sdk.post(self._url, content=body, cast_to=object, options={"headers": self._headers})

    @contextmanager
    def _acting(self, call: CurrentCall) -> Iterator[None]:
        token = CALL.set(call)
        try:
            yield
        except (self._broken, httpx2.HTTPError, TryFailed, *BAD_EVENTS) as error:
            raise failure(error, call, self._entry, self._key) from error
        finally:
            CALL.reset(token)


def _fit_to_keep(reply: Reply, key: str) -> Reply:
    """The reply without the key, should the server have echoed it. Raises TryFailed when it is nested so deeply that it
    cannot go back."""
    reply = replace(reply, finish_reason=wire_text(reply.finish_reason[:_REASON_CHARACTERS]))
    try:
        told = orjson.dumps(reply)
    except orjson.JSONEncodeError:
        raise TryFailed("the answer is nested too deeply to be sent back", retryable=False) from None
    if not holds(told, [key]):
        return reply
    kept = without(orjson.loads(told), [key])
    calls = tuple(ToolCall(**call) for call in kept.pop("tool_calls"))
    return Reply(tool_calls=calls, **kept)
