"""Whether the addresses of the models answer, and whether this machine's clock agrees with theirs.

An address is asked for its root by a request without a key. Whatever HTTP answer comes shows that it can be reached.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

from agents.model_entry import ModelEntry
from experiments.doctor import Line
from experiments.doctor.keys import lacks

if TYPE_CHECKING:
    import httpx2

TIMEOUT_S = 5.0
MOST_SKEW = timedelta(seconds=30)
"""Cache lifetimes begin at five minutes, and a dated price changes at a midnight: less than this moves nothing."""
_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class _Answer:
    """`error` None: it answered, and `ahead` is how far our clock is ahead of its own, None where it told no time."""

    error: str | None = None
    ahead: timedelta | None = None


async def reached(models: Mapping[str, ModelEntry], *, offline: bool) -> AsyncIterator[Line]:
    """A line an address of the models that could be asked as things stand, and one for the clock."""
    import httpx2

    asked = {entry.base_url: entry for entry in models.values() if not entry.simulated and lacks(entry) is None}
    if offline or not asked:
        why = "not asked (--offline)" if offline else "none is asked: no model has its key"
        yield Line("note", "models", why)
        yield Line("note", "clock", f"{_now():%Y-%m-%d %H:%M:%S} UTC, compared with nobody's")
        return
    room = asyncio.Semaphore(_AT_ONCE)
    async with httpx2.AsyncClient(timeout=TIMEOUT_S) as http:

        async def ask(url: str) -> _Answer:
            async with room:
                return await _asked(http, url)

        async with asyncio.TaskGroup() as group:
            asking = {url: group.create_task(ask(url)) for url in asked}
    answers = {url: task.result() for url, task in asking.items()}
    for url, answer in answers.items():
        provider = asked[url].provider
        if answer.error is None:
            yield Line("ok", "models", f"{provider} answers at {url}")
        elif asked[url].key_variable is None:
            # Shipped entries of local servers: whoever has none misses nothing.
            yield Line("note", "models", f"{provider} does not answer at {url} ({answer.error}): start it to use it")
        else:
            mend = "see to the network, to HTTPS_PROXY, and to base_url"
            yield Line("off", "models", f"{provider} does not answer at {url} ({answer.error}): {mend}")
    yield _clock(answers)


def _clock(answers: Mapping[str, _Answer]) -> Line:
    told = {url: answer.ahead for url, answer in answers.items() if answer.ahead is not None}
    if not told:
        return Line("note", "clock", f"{_now():%Y-%m-%d %H:%M:%S} UTC, compared with nobody's")
    # One odd server says nothing about us.
    url = sorted(told, key=lambda each: told[each])[len(told) // 2]
    ahead = told[url]
    if abs(ahead) > MOST_SKEW:
        side = "ahead of" if ahead > timedelta(0) else "behind"
        seconds = abs(ahead).total_seconds()
        return Line("off", "clock", f"{seconds:,.0f} s {side} that of {url}: switch on time synchronisation (NTP)")
    return Line("ok", "clock", f"within {MOST_SKEW.total_seconds():.0f} s of that of {url}")


async def _asked(http: "httpx2.AsyncClient", url: str) -> _Answer:
    import httpx2

    try:
        async with asyncio.timeout(TIMEOUT_S), http.stream("GET", url) as answer:
            date = answer.headers.get("date")
    except TimeoutError:
        return _Answer(error=f"no answer within {TIMEOUT_S:g} s")
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
        return _Answer(error=" ".join(str(error).split())[:200] or type(error).__name__)
    try:
        told = parsedate_to_datetime(date) if date else None
    except ValueError:
        told = None
    if told is None or told.tzinfo is None:
        return _Answer()
    return _Answer(ahead=_now() - told)


def _now() -> datetime:
    return datetime.now(UTC)
