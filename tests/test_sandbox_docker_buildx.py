"""What only BuildKit can build is built by buildx where it is there, and told by its line where that fails."""

import asyncio
import re
import secrets
from pathlib import Path

import pytest

from harbor_tasks.errors import TaskRefused
from harbor_tasks.sandbox.docker.buildx import has_buildx, refusal
from tests.docker_engine import docker, docker_task, engine
from tests.sandbox_tasks import processes_with

OLD = """#6 [stage-0 3/3] RUN echo one; echo why >&2; exit 7
#6 0.662 one
#6 0.662 why
#6 ERROR: executor failed running [/bin/sh -c echo one; echo why >&2; exit 7]: exit code: 7
------
 > [stage-0 3/3] RUN echo one; echo why >&2; exit 7:
0.662 one
0.662 why
------
ERROR: failed to solve: executor failed running [/bin/sh -c echo one; echo why >&2; exit 7]: exit code: 7
"""
NEW = """ > [stage-0 3/3] RUN echo one; exit 7:
0.302 one
------
Dockerfile:4
--------------------
   2 |     RUN --mount=type=cache,target=/x true
   3 |
   4 | >>> RUN echo one; exit 7
--------------------
ERROR: failed to solve: process "/bin/sh -c echo one; exit 7" did not complete successfully: exit code: 7
"""
PARSE = (
    "ERROR: failed to solve: failed to create LLB definition: dockerfile parse error line 3: unknown instruction: X\n"
)
DOCKERFILE = "FROM a\nRUN --mount=type=cache,target=/x true\n\nRUN  echo one; echo why >&2; exit 7\n"


def test_the_failed_line_is_found_in_what_older_and_newer_builders_print() -> None:
    assert str(refusal(OLD, DOCKERFILE)) == "Dockerfile line 4: RUN ended with 7: why"
    assert str(refusal(NEW, DOCKERFILE)) == "Dockerfile line 4: RUN ended with 7: one"
    assert str(refusal(PARSE, DOCKERFILE)).startswith("Dockerfile line 3: failed to solve: ")
    assert str(refusal("", DOCKERFILE)) == "the image cannot be built: buildx says nothing"
    assert "\n" not in str(refusal("ERROR: a\x1b[0m\r\x07b\n", DOCKERFILE))


async def _needs_buildx() -> None:
    if not await has_buildx(await engine()):
        pytest.skip("docker buildx is not installed")


async def test_a_dockerfile_with_mounts_is_built_and_kept(tmp_path: Path) -> None:
    await _needs_buildx()
    mark = secrets.token_hex(6)
    dockerfile = f"RUN --mount=type=cache,target=/cache echo {mark} >/made\nWORKDIR /work\n"
    backend = await docker()
    async with backend.start(docker_task(tmp_path / "a", dockerfile)) as sandbox:
        assert (await sandbox.exec("cat /made; pwd", timeout_s=20)).text == f"{mark}\n/work\n"
    first = await backend.image(docker_task(tmp_path / "b", dockerfile))
    assert first.id == (await (await docker()).image(docker_task(tmp_path / "c", dockerfile))).id


FAILS = {
    "RUN --mount=type=cache,target=/x true\nRUN echo one; echo why; exit 7": "Dockerfile line 3: RUN ended with 7: why",
    "RUN --mount=type=cache,target=/x true\n\nCOPY none /x": r"Dockerfile line 4: .*none.* not found",
}


@pytest.mark.parametrize("dockerfile", FAILS)
async def test_a_build_that_fails_names_its_line(dockerfile: str, tmp_path: Path) -> None:
    await _needs_buildx()
    with pytest.raises(TaskRefused, match=FAILS[dockerfile]) as refused:
        await (await docker()).image(docker_task(tmp_path, f"{dockerfile}\n"))
    assert "\n" not in str(refused.value)


async def test_a_heredoc_is_built_or_told_by_its_line(tmp_path: Path) -> None:
    await _needs_buildx()
    try:
        async with (await docker()).start(docker_task(tmp_path, "RUN <<EOF\necho hi >/made\nEOF\n")) as sandbox:
            assert (await sandbox.exec("cat /made", timeout_s=20)).text == "hi\n"
    except TaskRefused as error:
        # Engines before 23 have a BuildKit that does not know them.
        assert re.search(r"Dockerfile line 3: .*unknown instruction: ECHO", str(error), re.IGNORECASE)  # noqa: PT017


async def test_a_build_that_takes_too_long_is_ended_with_all_its_processes(tmp_path: Path) -> None:
    await _needs_buildx()
    toml = '[environment]\nnetwork_mode = "no-network"\nbuild_timeout_sec = 3\n'
    mark = f"31{secrets.randbelow(10**6)}"
    task = docker_task(tmp_path, f"RUN --mount=type=cache,target=/x sleep {mark}\n", toml=toml)
    with pytest.raises(TaskRefused, match="the build took longer than build_timeout_sec = 3"):
        await (await docker()).image(task)
    assert processes_with(f"{task.path}/environment/Dockerfile") == []
    for _ in range(600):
        if not processes_with(f"sleep {mark}") and not processes_with(f"sleep\0{mark}"):
            return
        await asyncio.sleep(0.1)
    pytest.fail("the build goes on")


async def test_without_buildx_the_mend_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = await engine()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not await has_buildx(found)
    task = docker_task(tmp_path, "RUN --mount=type=cache,target=/x true\n")
    with pytest.raises(
        TaskRefused, match=r"Dockerfile line 2: RUN --mount needs BuildKit, .*: install Docker's buildx"
    ):
        await (await docker()).image(task)
