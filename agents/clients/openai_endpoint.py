"""The endpoint of OpenAI's SDK: Chat Completions and Responses share it."""

from collections.abc import AsyncIterator
from typing import Any

import httpx2  # noqa: TID253  (loaded by `connect`, when a model of this protocol is hired)
import openai  # noqa: TID253

from agents.clients.endpoint import Endpoint
from agents.registry import ModelEntry
from agents.transport.surroundings import TIMEOUT


class _Events(openai.AsyncStream[object]):
    """Without the events that carry nothing: some servers keep a connection alive by them, and the SDK takes their
    empty text for broken JSON."""

    async def _iter_events(self) -> AsyncIterator[Any]:
        async for event in super()._iter_events():
            if event.data:
                yield event


def openai_endpoint(entry: ModelEntry, key: str, path: str, http: httpx2.AsyncClient) -> Endpoint:
    sdk = openai.AsyncOpenAI(api_key=key, base_url=entry.base_url, http_client=http, max_retries=0, timeout=TIMEOUT)
    # The SDK takes these from its environment variables; None given to it would not keep it from that.
    sdk.organization = sdk.project = sdk.admin_api_key = None
    return Endpoint(sdk, _Events, openai.OpenAIError, entry=entry, key=key, path=path)
