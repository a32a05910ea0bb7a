"""Builds with BuildKit, through Docker's own buildx: the engine's API builds without it. The one place for its CLI.

A build runs in a process group of its own, on the engine that was found, and uses what images are in that engine.
"""

import asyncio
import contextlib
import os
import re
import signal
from pathlib import Path

from harbor_tasks.dockerfile import read, refused
from harbor_tasks.errors import TaskRefused
from harbor_tasks.sandbox.docker.engine import Engine

OUTPUT_KEPT = 1 << 16
"""Bytes of what a build prints: the last."""
_LOOK_TIMEOUT_S = 20.0
_END_GRACE_S = 5.0
_LINE = re.compile(r"^Dockerfile:([0-9]+)$|parse error (?:on )?line ([0-9]+)", re.MULTILINE)
_FAILED_STEP = re.compile(r"^ > \[[^\]]*\] (.+):$", re.MULTILINE)
_CODE = re.compile(r"exit code: ([0-9]+)")
_SAID = re.compile(r"^ > \[[^\]]*\] .+:\n((?:[0-9.]+ .*\n)+)", re.MULTILINE)


async def has_buildx(engine: Engine) -> bool:
    try:
        code, _ = await _run(engine, ["docker", "buildx", "version"], _LOOK_TIMEOUT_S)
    except (OSError, TimeoutError):
        return False
    return code == 0


async def build(engine: Engine, dockerfile: Path, name: str, timeout_s: float) -> None:
    """Raises TaskRefused, naming the Dockerfile's line where it can, when it fails or takes longer."""
    words = [
        "docker", "buildx", "build", "--builder", "default", "--load", "--progress", "plain",
        "--tag", name, "--file", str(dockerfile), str(dockerfile.parent),
    ]  # fmt: skip
    try:
        code, said = await _run(engine, words, timeout_s)
    except TimeoutError:
        raise TaskRefused(f"the build took longer than build_timeout_sec = {timeout_s:g}") from None
    except OSError as error:
        raise TaskRefused(f"the image cannot be built: {error}") from error
    if code != 0:
        raise refusal(said, await asyncio.to_thread(read, dockerfile))


def refusal(said: str, dockerfile: str) -> TaskRefused:
    """What a failed build printed, as one line."""
    errors = [line.removeprefix("ERROR: ") for line in said.splitlines() if line.startswith("ERROR: ")]
    what = errors[-1] if errors else "buildx says nothing"
    if (code := _CODE.search(what)) is not None:
        last = _SAID.search(said)
        printed = last[1].splitlines()[-1].partition(" ")[2].strip() if last else ""
        what = f"RUN ended with {code[1]}" + (f": {printed}" if printed else "")
    what = re.sub(r"[^ -~]", "?", what)[:400]
    line = _line(said, dockerfile)
    return TaskRefused(f"the image cannot be built: {what}") if line is None else refused(line, what)


def _line(said: str, dockerfile: str) -> int | None:
    """Newer builders name it; of older ones the failed step's own words are looked for."""
    if (named := _LINE.search(said)) is not None:
        return int(named[1] or named[2])
    step = _FAILED_STEP.search(said)
    if step is None:
        return None
    wanted = " ".join(step[1].split())
    starts = (" ".join(line.split()).removesuffix(" \\") for line in dockerfile.splitlines())
    return next((number for number, line in enumerate(starts, 1) if line and wanted.startswith(line)), None)


async def _run(engine: Engine, words: list[str], timeout_s: float) -> tuple[int, str]:
    """Its exit code and the end of what it printed. Whatever stops the wait ends the whole process group."""
    env = {key: value for key, value in os.environ.items() if key not in ("DOCKER_CONTEXT", "BUILDX_BUILDER")}
    env |= {"DOCKER_HOST": engine.place.url.replace("http://", "tcp://"), "NO_COLOR": "1"}
    process = await asyncio.create_subprocess_exec(
        *words,
        env=env,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    assert process.stdout is not None  # noqa: S101 (piped above)
    said = b""
    try:
        async with asyncio.timeout(timeout_s):
            while data := await process.stdout.read(1 << 16):
                said = (said + data)[-OUTPUT_KEPT:]
            return await process.wait(), said.decode("utf-8", errors="replace")
    finally:
        if process.returncode is None:
            await _end(process)


async def _end(process: asyncio.subprocess.Process) -> None:
    # Asked first, it has the engine end the build.
    for which in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, which)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_END_GRACE_S):
                await process.communicate()
                return
