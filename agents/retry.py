"""Tries again what passes: rate limits, overload, broken connections, cut streams. Every try is a booked call.

The SDKs' own retries are off. Waiting is done on the trial's clock, so that a back-off costs virtual time alone when
the model is simulated.
"""

from collections.abc import Awaitable, Callable
from random import Random
from typing import TypeVar

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, stop_after_attempt

from agents.errors import ProviderRefused, TryFailed, VisitEnded

TRIES = 8
FIRST_WAIT_S, LONGEST_WAIT_S = 1.0, 60.0
LONGEST_RETRY_AFTER_S = 300.0
"""A provider that asks for more is taken at this much, and asked again."""

T = TypeVar("T")


async def with_retries(
    ask: Callable[[], Awaitable[T]], *, name: str, sleep: Callable[[float], Awaitable[None]], tries: int = TRIES
) -> T:
    """`name` stands in the error and seeds the jitter, which is thus the same in every run.

    Raises ProviderRefused when no try brought an answer, VisitEnded("context_full") when the prompt is too long.
    """
    # Tenacity takes a tenth of a call's CPU, so it is set up only once a try has failed, and is given that failure.
    try:
        return await ask()
    except TryFailed as error:
        failures = [error]
    jitter = Random(name)  # noqa: S311  (spreads waits, guards nothing)

    def wait(state: RetryCallState) -> float:
        error = None if state.outcome is None else state.outcome.exception()
        if isinstance(error, TryFailed) and error.retry_after_s is not None:
            return min(error.retry_after_s, LONGEST_RETRY_AFTER_S)
        longest: float = min(LONGEST_WAIT_S, FIRST_WAIT_S * 2 ** (state.attempt_number - 1))
        return longest * jitter.uniform(0.75, 1.0)

    retrying = AsyncRetrying(
        sleep=sleep,
        wait=wait,
        stop=stop_after_attempt(tries),
        retry=retry_if_exception(lambda error: isinstance(error, TryFailed) and error.retryable),
        reraise=True,
    )

    async def next_try() -> T:
        if failures:
            raise failures.pop()
        return await ask()

    try:
        return await retrying(next_try)
    except TryFailed as error:
        if error.context_full:
            raise VisitEnded("context_full") from error
        given_up = f" (given up after {tries} tries)" if error.retryable else ""
        raise ProviderRefused(f"{name}: {error}{given_up}", fault=error.fault, advice=error.advice) from error
