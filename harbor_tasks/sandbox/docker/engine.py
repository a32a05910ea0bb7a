"""The engine that answers, and calls of its API off the event loop.

The SDK blocks. Its calls run on threads of their own: asyncio's own pool is small, and whoever waits for a container
would hold up everything else that needs a thread.
"""

import asyncio
import socket
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from harbor_tasks.errors import SandboxBroken, SandboxMissing
from harbor_tasks.sandbox.docker.places import Place, install, places

if TYPE_CHECKING:
    from docker import APIClient
    from requests import Response  # noqa: TID251 (the SDK's own; never called here)

THREADS = 32
CALL_TIMEOUT_S = 60.0
"""Between two bytes of an answer."""
PROBE_TIMEOUT_S = 5.0
"""An engine that answers later than this, on the same machine, is none to run trials on."""
REGISTRY_TIMEOUT_S = 5.0

_Result = TypeVar("_Result")
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


class Engine:
    """One engine. `described` names it: version, address, how it was found, storage driver and platform."""

    def __init__(
        self, api: "APIClient", place: Place, version: Mapping[str, Any], info: Mapping[str, Any], *, bridged: bool
    ) -> None:
        self.api = api
        self.place = place
        self.info = info
        self.bridged = bridged
        self.architecture = _architecture(str(version.get("Arch", "")))
        self.platform = f"{version.get('Os', 'linux')}/{self.architecture}"
        self.described = (
            f"Docker {version.get('Version', '?')} at {place.url} ({place.found_by}), "
            f"{info.get('Driver', '?')}, {self.platform}"
        )
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="docker")
        weakref.finalize(self, _end, api, self._threads)

    async def call(self, ask: "Callable[[APIClient], _Result]") -> _Result:
        """Runs it on one of the threads. Raises SandboxBroken, in one line, when the engine refuses or is gone.

        A thread cannot be cancelled: where the caller is, the call goes on to its end.
        """
        from docker.errors import DockerException

        try:
            return await self.work(partial(ask, self.api))
        # What the SDK's transport raises when the engine is gone is an OSError.
        except (DockerException, OSError) as error:
            raise refusal(error) from error

    async def work(self, task: Callable[[], _Result]) -> _Result:
        return await asyncio.get_running_loop().run_in_executor(self._threads, task)

    async def has_registry(self, name: str) -> str | None:
        """Why the engine cannot tell of an image by this name in its registry; None when it can."""
        from docker.errors import DockerException

        def ask() -> None:
            with _client(self.place, REGISTRY_TIMEOUT_S, 1, str(self.api.api_version)) as own:
                own.inspect_distribution(name)

        try:
            await self.work(ask)
        except (DockerException, OSError) as error:
            return str(refusal(error))
        return None

    async def follow(
        self,
        ask: "Callable[[APIClient], Iterator[dict[str, Any]]]",
        each: Callable[[dict[str, Any]], None],
        *,
        timeout_s: float,
    ) -> None:
        """Hands every message of a long answer (a build, a pull) to `each`, which runs on another thread.

        Raises TimeoutError when it has not ended by then, SandboxBroken when the engine refuses. Whoever stops waiting
        ends the connection, and the engine then ends the work.
        """
        from docker.errors import DockerException

        stop = threading.Event()
        answers: list[Response] = []
        own = _client(self.place, timeout_s + CALL_TIMEOUT_S, 1, str(self.api.api_version))
        own.hooks["response"].append(lambda answer, *_, **__: answers.append(answer))

        def read() -> None:
            try:
                for message in ask(own):
                    if stop.is_set():
                        return
                    each(message)
            finally:
                for answer in answers:
                    answer.close()
                own.close()

        reading = asyncio.ensure_future(self.work(read))
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.shield(reading)
        except (DockerException, OSError) as error:
            if isinstance(error, TimeoutError):
                raise
            raise refusal(error) from error
        finally:
            stop.set()
            if not reading.done():
                for answer in answers:
                    _hang_up(answer)
                reading.add_done_callback(_heard)


def refusal(error: Exception) -> SandboxBroken:
    """What the engine said, as one line."""
    said = str(getattr(error, "explanation", None) or error)
    return SandboxBroken(f"Docker: {' '.join(said.split())[:500]}")


async def find() -> Engine:
    """The engine that answers. Raises SandboxMissing in one line that says what to install or set."""
    asked = await asyncio.to_thread(places)
    said = []
    for place in asked:
        try:
            return await asyncio.to_thread(_connect, place)
        except SandboxMissing as error:
            said.append(str(error))
    raise SandboxMissing("; ".join(said) or f"docker: no engine answers here: {install()}")


def _connect(place: Place) -> Engine:
    from docker.errors import DockerException

    if (why := _silent(place)) is not None:
        raise SandboxMissing(f"docker: {place.url} ({place.found_by}): {why}")
    try:
        with _client(place, PROBE_TIMEOUT_S, 1) as probing:
            version, info, spoken = probing.version(), probing.info(), str(probing.api_version)
            # Where it may make no bridge, a container that asks for one gets no network.
            bridged = bool(probing.networks(names=["bridge"]))
    # The SDK looks neither at what kind of values stand in the CLI's settings nor at a port that is no number.
    except (DockerException, OSError, ValueError, TypeError, AttributeError) as error:
        said = " ".join(str(error).split())[:200]
        raise SandboxMissing(f"docker: {place.url} ({place.found_by}): {said}: mend it, or {install()}") from None
    if version.get("Os") != "linux":
        raise SandboxMissing(f"docker: {place.url} runs {version.get('Os')} containers: switch it to Linux containers")
    return Engine(_client(place, CALL_TIMEOUT_S, THREADS, spoken), place, version, info, bridged=bridged)


def _silent(place: Place) -> str | None:
    """Why nobody can be reached at a socket, and the mend; the SDK would leave the socket of a failed try open."""
    scheme, _, path = place.url.partition("://")
    if scheme != "unix":
        return None
    try:
        with socket.socket(socket.AF_UNIX) as trying:
            trying.settimeout(PROBE_TIMEOUT_S)
            trying.connect(path)
    except PermissionError:
        return "permission denied: join the group that owns the socket (`sudo usermod -aG docker $USER`, log in anew)"
    except OSError as error:
        return f"nobody listens there ({error.strerror or error}): start it, or {install()}"
    return None


def _client(place: Place, timeout_s: float, pools: int, version: str = "auto") -> "APIClient":
    """Where the version is "auto", the engine is asked for it."""
    from docker import APIClient

    return APIClient(base_url=place.url, version=version, timeout=timeout_s, num_pools=pools)


def _architecture(name: str) -> str:
    return _ARCHITECTURES.get(name, name)


def _hang_up(answer: "Response") -> None:
    """Ends what another thread is reading: closing alone would not wake it."""
    try:
        answer.raw.shutdown()
    except (AttributeError, OSError, ValueError, RuntimeError):
        answer.close()


def _heard(reading: "asyncio.Future[None]") -> None:
    """Nobody waits for it any more."""
    if not reading.cancelled():
        reading.exception()


def _end(api: "APIClient", threads: ThreadPoolExecutor) -> None:
    threads.shutdown(wait=False)
    api.close()
