"""What a keep-alive ping sends: a request that was sent before, asking for next to no answer and for no stream of it.

Neither the output limit nor streaming is part of what a provider's cache knows a prompt by.
"""

import orjson


def ping_of(body: bytes, limit: str, tokens: int) -> bytes:
    """`body` is a request as JSON, `limit` the name of its output limit, `tokens` the least that it may be."""
    request: dict[str, object] = orjson.loads(body)
    request.pop("stream_options", None)
    return orjson.dumps({**request, "stream": False, limit: tokens})
