"""The small model's server as a process of its own, and its own counters."""

import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from socket import create_server

READY_S = 240.0
LOCAL = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""Never through a proxy."""

_COUNTERS = {
    "llamacpp:prompt_tokens_cached_total": "cached",
    "llamacpp:prompt_tokens_total": "fresh",
    "llamacpp:tokens_predicted_total": "output",
}


@dataclass(frozen=True, slots=True)
class Counters:
    """Tokens, summed over all that the server did: prompt tokens reused and processed, and tokens generated."""

    cached: int = 0
    fresh: int = 0
    output: int = 0

    def __sub__(self, other: "Counters") -> "Counters":
        return Counters(self.cached - other.cached, self.fresh - other.fresh, self.output - other.output)


@dataclass(frozen=True, slots=True)
class SmallServer:
    port: int

    def counters(self) -> Counters:
        with LOCAL.open(f"http://127.0.0.1:{self.port}/metrics", timeout=60) as answer:
            lines = answer.read().decode().splitlines()
        told = {
            _COUNTERS[name]: int(value)
            for name, _, value in (line.partition(" ") for line in lines)
            if name in _COUNTERS
        }
        return Counters(**told)


@contextmanager
def small_server(python: Path, model: Path, log: Path) -> Iterator[SmallServer]:
    with create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with log.open("wb") as written:
        process = subprocess.Popen(
            [str(python), str(Path(__file__).with_name("serve.py")), str(model), str(port)],
            stdin=subprocess.PIPE, stdout=written, stderr=written,
        )  # fmt: skip
        try:
            _await_ready(process, port, log)
            yield SmallServer(port)
        finally:
            if process.stdin is not None:
                process.stdin.close()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(20)


def _await_ready(process: "subprocess.Popen[bytes]", port: int, log: Path) -> None:
    end = time.monotonic() + READY_S
    while time.monotonic() < end:
        if process.poll() is not None:
            break
        try:
            with LOCAL.open(f"http://127.0.0.1:{port}/health", timeout=10) as answer:
                if answer.status == 200:
                    return
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
    raise AssertionError(f"the server did not start:\n{log.read_text(errors='replace')[-2000:]}")
