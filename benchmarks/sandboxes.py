"""What a sandbox costs beyond what it is made of: a trial over raw calls of the same SDK, a command, a start.

The trial is an oracle's: start, bring the solution, run it, bring the tests, run them, read the reward, remove. Raw is
the same by the SDK's shortest calls: create, start, exec, put_archive and get_archive, remove. Pairs are interleaved,
and the limit is held against the middle ratio. Without an engine that has the image, Docker's part is left out by name.
"""

import asyncio
import io
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from harbor_tasks.check import solve
from harbor_tasks.errors import SandboxError
from harbor_tasks.format import Task, load_task
from harbor_tasks.sandbox import Sandbox
from harbor_tasks.sandbox.bubblewrap import Bubblewrap
from harbor_tasks.sandbox.docker.backend import Docker
from harbor_tasks.sandbox.docker.engine import Engine, find
from harbor_tasks.verifier import verify
from tests.harbor.harbor_jobs import CLOSED, QUICK, HarborFailed, Unavailable, harbor, oracle_seconds

IMAGE = "debian:bookworm-slim"
PAIRS = 9
HARBOR_TRIALS = 3
COMMANDS = 200
TRIAL_LIMIT, COMMAND_LIMIT_MS, WARM_LIMIT_MS, BUBBLEWRAP_LIMIT_MS = 1.5, 5.0, 50.0, 100.0
SOLVE = "#!/bin/bash\necho done >/app/answer\n"
TEST = '#!/bin/bash\n[ "$(cat /app/answer)" = done ] && echo 1 >/logs/verifier/reward.txt\n'


def write_task(folder: Path) -> Task:
    for name, text in (
        ("task.toml", 'schema_version = "1.4"\n'),
        ("instruction.md", "Write done into answer.\n"),
        ("environment/Dockerfile", f"FROM {IMAGE}\nWORKDIR /app\n"),
        ("solution/solve.sh", SOLVE),
        ("tests/test.sh", TEST),
    ):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return load_task(folder)


async def oracle_trial(docker: Docker, task: Task) -> None:
    async with docker.start(task) as sandbox:
        await solve(task, sandbox)
        verdict = await verify(task, sandbox)
    assert verdict.reward == 1, verdict.unscored_reason


def raw_trial(engine: Engine, image: str) -> None:
    api = engine.api
    made = api.create_container(
        image, ["sleep", "3600"], host_config=api.create_host_config(init=True, network_mode="bridge")
    )["Id"]
    try:
        api.start(made)
        _bring(engine, made, {"solution/solve.sh": SOLVE, "logs/verifier/": ""})
        _run(engine, made, "/solution/solve.sh")
        _bring(engine, made, {"tests/test.sh": TEST})
        _run(engine, made, "/tests/test.sh")
        pieces, _ = api.get_archive(made, "/logs/verifier/reward.txt")
        with tarfile.open(fileobj=io.BytesIO(b"".join(pieces))) as tar:
            reward = tar.extractfile("reward.txt")
            assert reward is not None
            assert reward.read() == b"1\n"
    finally:
        api.remove_container(made, force=True, v=True)


def _bring(engine: Engine, made: str, files: dict[str, str]) -> None:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        for name, text in files.items():
            member = tarfile.TarInfo(name.rstrip("/"))
            member.type = tarfile.DIRTYPE if name.endswith("/") else tarfile.REGTYPE
            member.mode, member.size = 0o755, len(text)
            tar.addfile(member, io.BytesIO(text.encode()))
    engine.api.put_archive(made, "/", stream.getvalue())


def _run(engine: Engine, made: str, command: str) -> None:
    run = engine.api.exec_create(made, [command], workdir="/app")["Id"]
    engine.api.exec_start(run)
    assert engine.api.exec_inspect(run)["ExitCode"] == 0


async def command_ms(sandbox: Sandbox) -> float:
    """A command that does nothing, in a session that is there: the middle one."""
    shell = await sandbox.shell()
    try:
        return statistics.median([(await shell.run(":", timeout_s=20)).seconds for _ in range(COMMANDS)]) * 1e3
    finally:
        await shell.close()


def bash_ms() -> float:
    """What a bash that does nothing takes when it is started here: a command's own part."""
    times = []
    for _ in range(COMMANDS):
        start = time.perf_counter()
        subprocess.run(["/bin/bash", "--norc", "--noprofile", "-c", ":"], check=True, timeout=20)
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e3


async def first_command_ms(docker: Docker, task: Task) -> float:
    """From asking for a sandbox that is warm until its shell has answered its first command."""
    times = []
    for _ in range(PAIRS):
        async with docker.ahead([task], 1):
            await docker.warmed(task)
            start = time.perf_counter()
            async with docker.start(task) as sandbox:
                shell = await sandbox.shell()
                await shell.run(":", timeout_s=20)
                times.append(time.perf_counter() - start)
                await shell.close()
    return statistics.median(times) * 1e3


async def bubblewrap_ms(bubblewrap: Bubblewrap, task: Task) -> float:
    """Until the first command is answered."""
    times = []
    for _ in range(PAIRS):
        start = time.perf_counter()
        async with bubblewrap.start(task) as sandbox:
            await sandbox.exec(":", timeout_s=20)
            times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e3


async def seconds(do: Callable[[], Awaitable[object]]) -> float:
    start = time.perf_counter()
    await do()
    return time.perf_counter() - start


async def measure_docker(task: Task) -> bool:
    docker = Docker()
    engine = await find()
    image = (await docker.image(task)).id
    await oracle_trial(docker, task)
    pairs = [
        (
            await seconds(lambda: asyncio.to_thread(raw_trial, engine, image)),
            await seconds(lambda: oracle_trial(docker, task)),
        )
        for _ in range(PAIRS)
    ]
    raw, ours = (statistics.median(column) for column in zip(*pairs, strict=True))
    ratio = statistics.median(b / a for a, b in pairs)
    print(docker.described)
    print(f"  oracle trial           {ours * 1e3:6.0f} ms, raw calls {raw * 1e3:.0f} ms, ratio {ratio:.2f} "
          f"(limit {TRIAL_LIMIT:.2f})")  # fmt: skip
    async with docker.start(task) as sandbox:
        command = await command_ms(sandbox)
    over = command - bash_ms()
    print(f"  a shell command        {command:6.1f} ms, {over:.1f} ms over a bash alone (limit {COMMAND_LIMIT_MS:.1f})")
    warm = await first_command_ms(docker, task)
    print(f"  warm, to first answer  {warm:6.0f} ms (limit {WARM_LIMIT_MS:.0f})")
    await show_harbor(engine, task)
    return ratio <= TRIAL_LIMIT and over < COMMAND_LIMIT_MS and warm < WARM_LIMIT_MS


async def show_harbor(engine: Engine, task: Task) -> None:
    """Harbor's own count of the same trial, as it is shipped but for the network, and without its stop grace."""
    try:
        found = await harbor(engine)
        times = [
            [await oracle_seconds(task.path, found, overlay=overlay) for _ in range(HARBOR_TRIALS)]
            for overlay in (CLOSED, QUICK)
        ]
    except (Unavailable, HarborFailed) as error:
        print(f"  Harbor left out: {error}")
        return
    shipped, quick = (statistics.median(each) for each in times)
    print(f"  Harbor, the same task  {shipped * 1e3:6.0f} ms, {quick * 1e3:.0f} ms without its stop grace")


async def measure_bubblewrap(task: Task) -> bool:
    bubblewrap = Bubblewrap()
    await bubblewrap.probe()
    start = await bubblewrap_ms(bubblewrap, task)
    async with bubblewrap.start(task) as sandbox:
        command = await command_ms(sandbox)
    print("bubblewrap")
    print(f"  start                  {start:6.0f} ms (limit {BUBBLEWRAP_LIMIT_MS:.0f})")
    print(f"  a shell command        {command:6.1f} ms")
    return start < BUBBLEWRAP_LIMIT_MS


async def measure() -> bool:
    folder = Path(tempfile.mkdtemp(prefix="fullchain-bench-"))
    holds = True
    try:
        task = await asyncio.to_thread(write_task, folder / "answer")
        for part in (measure_docker, measure_bubblewrap):
            try:
                holds = await part(task) and holds
            except SandboxError as error:
                print(f"left out: {error}")
    finally:
        shutil.rmtree(folder)
    return holds


if __name__ == "__main__":
    sys.exit(0 if asyncio.run(measure()) else 1)
