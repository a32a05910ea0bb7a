"""Calls over OpenAI's SDK: raw bytes out, plain dicts in. Chat Completions and Responses share this."""

from collections.abc import AsyncIterator, Mapping
from typing import Any, Protocol

import httpx2  # noqa: TID253  (loaded by `connect`, when a model of this protocol is hired)
import openai  # noqa: TID253

from agents.clients import Reply
from agents.clients.events import mapping
from agents.clients.failure import BAD_EVENTS, failure, not_an_answer, unended
from agents.errors import TryFailed
from agents.registry import ModelEntry
from agents.transport.call import CALL, CurrentCall
from agents.transport.routes import TIMEOUT


class Answer(Protocol):
    """What an answer is made of, event by event. `ended`: the protocol's terminal event has come."""

    @property
    def ended(self) -> bool: ...

    def add(self, event: Mapping[str, object]) -> None: ...

    def reply(self, tool_seconds: float) -> Reply: ...


class _Events(openai.AsyncStream[object]):
    """Without the events that carry nothing: some servers keep a connection alive by them, and the SDK takes their
    empty text for broken JSON."""

    async def _iter_events(self) -> AsyncIterator[Any]:
        async for event in super()._iter_events():
            if event.data:
                yield event


class OpenAIEndpoint:
    def __init__(self, entry: ModelEntry, key: str, path: str, http: httpx2.AsyncClient) -> None:
        self._entry, self._key = entry, key
        self._sdk = openai.AsyncOpenAI(
            api_key=key, base_url=entry.base_url, http_client=http, max_retries=0, timeout=TIMEOUT
        )
        if entry.provider != "openai":
            # The SDK takes these from the environment and would show them to every provider.
            self._sdk.organization = self._sdk.project = None
        # Absolute: the SDK would put a relative address together, and parse it, anew for every call.
        self._url = f"{entry.base_url}{path}"
        self._headers = {"Content-Type": "application/json", **entry.headers}

    async def ask(self, body: bytes, answer: Answer, call: CurrentCall) -> Reply:
        """Raises TryFailed when there is no whole answer, and whatever the book refuses the call with."""
        token = CALL.set(call)
        try:
            stream = await self._sdk.post(
                self._url,
                content=body,
                cast_to=object,
                stream=True,
                stream_cls=_Events,
                options={"headers": self._headers},
            )
            async with stream:
                kind = stream.response.headers.get("content-type", "")
                if "html" in kind:
                    raise not_an_answer(kind, self._entry)
                async for event in stream:
                    answer.add(mapping(event))
            if not answer.ended:
                raise unended(call, self._entry, self._key)
            return answer.reply(call.tool_seconds)
        except (openai.OpenAIError, httpx2.HTTPError, TryFailed, *BAD_EVENTS) as error:
            raise failure(error, call, self._entry, self._key) from error
        finally:
            CALL.reset(token)
