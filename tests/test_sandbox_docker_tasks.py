"""What a task asks of its container, and what it gets; the bundled tasks come out as in bubblewrap."""

import asyncio
import hashlib
import io
import json
import secrets
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from harbor_tasks.check import check
from harbor_tasks.errors import TaskRefused
from harbor_tasks.format import Task, bundled_tasks, load_tasks
from harbor_tasks.sandbox.docker.container import DockerMachine
from harbor_tasks.sandbox.docker.watcher import WATCHED
from harbor_tasks.verifier import verify
from tests.docker_engine import BASE, containers, docker, docker_task, engine, inspected, on_base
from tests.sandbox_tasks import bubblewrap, write_task

TASKS, _ = load_tasks(bundled_tasks())


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
async def test_a_bundled_task_gives_the_same_rewards_as_in_bubblewrap(task: Task, tmp_path: Path) -> None:
    in_docker = await check(on_base(task, tmp_path), await docker())
    in_bubblewrap = await check(task, await bubblewrap())
    assert [(leg.name, leg.reason) for leg in in_docker.legs if not leg.ok] == []
    assert {leg.name: leg.reward for leg in in_docker.legs} == {leg.name: leg.reward for leg in in_bubblewrap.legs}


async def test_the_container_has_the_limits_and_rights_that_it_should(tmp_path: Path) -> None:
    toml = '[environment]\nnetwork_mode = "no-network"\ncpus = 1\nmemory_mb = 256\n'
    found = await engine()
    async with (await docker()).start(docker_task(tmp_path, toml=toml)) as sandbox:
        assert isinstance(sandbox, DockerMachine)
        state: dict[str, Any] = await inspected(found, sandbox.container)
        status = (await sandbox.exec("grep -E '^(CapEff|CapBnd|NoNewPrivs):' /proc/self/status", timeout_s=10)).text
        said = (await sandbox.exec("ls /sys/class/net; cat /proc/1/comm", timeout_s=9)).text
    host, labels = state["HostConfig"], state["Config"]["Labels"]
    assert (host["NanoCpus"], host["Memory"], host["MemorySwap"]) == (10**9, 256 * 2**20, 256 * 2**20)
    assert (host["PidsLimit"], host["NetworkMode"], host["Init"]) == (1024, "none", True)
    assert labels["fullchain.task"] == "task-under-test"
    assert labels["fullchain"]
    # CHOWN 0, DAC_OVERRIDE 1, FOWNER 3, FSETID 4, KILL 5, SETGID 6, SETUID 7
    assert [line.split()[1] for line in status.splitlines()] == ["00000000000000fb", "00000000000000fb", "1"]
    assert said.split() == ["lo", "docker-init"]


async def test_a_memory_limit_ends_the_command_and_not_the_trial(tmp_path: Path) -> None:
    toml = '[environment]\nnetwork_mode = "no-network"\nmemory_mb = 64\n'
    async with (await docker()).start(docker_task(tmp_path, toml=toml)) as sandbox:
        if "memory limit not enforced" in sandbox.notes:
            pytest.skip("this engine holds no memory limit")
        hungry = await sandbox.exec("python3 -c 'x = bytearray(500_000_000)'; echo $?", timeout_s=30)
        assert hungry.text.split()[-1] == "137"
        assert (await sandbox.exec("echo on", timeout_s=10)).text == "on\n"


async def test_a_storage_limit_that_cannot_be_held_is_named(tmp_path: Path) -> None:
    toml = '[environment]\nnetwork_mode = "no-network"\nstorage_mb = 100\n'
    async with (await docker()).start(docker_task(tmp_path, toml=toml)) as sandbox:
        if WATCHED not in sandbox.notes:
            assert (await sandbox.exec("head -c 200000000 /dev/zero >/app/big", timeout_s=30)).exit_code != 0


async def test_workdir_variables_and_files_are_the_images_and_task_toml_wins(tmp_path: Path) -> None:
    dockerfile = "WORKDIR /srv/here\nENV A=image B=image\nCOPY *.txt ./\nRUN echo built >made\n"
    toml = '[environment]\nnetwork_mode = "no-network"\n[environment.env]\nB = "${B:-task}"\n'
    task = docker_task(tmp_path / "a", dockerfile, toml=toml, files={"one.txt": "one\n"})
    async with (await docker()).start(task) as sandbox:
        assert sandbox.workdir == "/srv/here"
        said = await sandbox.exec('pwd; cat one.txt made; echo "$A $B $HOME"', timeout_s=10)
    assert said.text == "/srv/here\none\nbuilt\nimage task /root\n"
    toml = '[environment]\nnetwork_mode = "no-network"\nworkdir = "/other"\n'
    task = docker_task(tmp_path / "b", dockerfile, toml=toml, files={"one.txt": "one\n"})
    async with (await docker()).start(task) as sandbox:
        assert (await sandbox.exec("pwd", timeout_s=10)).text == "/other\n"


async def test_commands_run_as_the_images_user_and_its_work_is_verified(tmp_path: Path) -> None:
    dockerfile = "RUN useradd -m worker && mkdir /app && chown worker /app\nUSER worker\nWORKDIR /app\n"
    async with (await docker()).start(docker_task(tmp_path, dockerfile)) as sandbox:
        assert (await sandbox.exec("id -un; touch f && stat -c %U f", timeout_s=10)).text == "worker\nworker\n"
        verdict = await verify(docker_task(tmp_path / "again", dockerfile), sandbox)
    assert verdict.reward == 1.0, verdict.unscored_reason


async def test_an_image_is_taken_by_its_name(tmp_path: Path) -> None:
    toml = f'[environment]\nnetwork_mode = "no-network"\ndocker_image = "{BASE}"\n'
    async with (await docker()).start(write_task(tmp_path, "FROM not-this-one\n", toml=toml)) as sandbox:
        assert (await sandbox.exec("pwd; cat /etc/debian_version", timeout_s=10)).text.startswith("/app\n12")


async def test_the_same_files_are_built_once_and_changed_ones_anew(tmp_path: Path) -> None:
    backend = await docker()
    first = docker_task(tmp_path / "a", "COPY f /app/\n", files={"f": "1"})
    images = await asyncio.gather(*(backend.image(first) for _ in range(4)))
    same = await (await docker()).image(docker_task(tmp_path / "b", "COPY f /app/\n", files={"f": "1"}))
    other = await backend.image(docker_task(tmp_path / "c", "COPY f /app/\n", files={"f": "2"}))
    assert len({image.id for image in (*images, same)}) == 1
    assert other.id != same.id


REFUSED = {
    "RUN false": "line 2: RUN ended with 1",
    "RUN echo because >&2; exit 3": "line 2: RUN ended with 3: because",
    "WORKDIR /app\n\nCOPY none /app/": "line 4: COPY failed",
    "RUN <<EOF\necho hi\nEOF": "line 2: RUN with a heredoc",
    "RUN --mount=type=cache,target=/x true": "line 2: RUN --mount needs BuildKit",
    "COPY --chmod=755 f /app/": "line 2: COPY --chmod needs BuildKit",
}


@pytest.mark.parametrize("dockerfile", REFUSED)
async def test_what_cannot_be_built_is_refused_by_its_line(
    dockerfile: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No buildx is found there.
    monkeypatch.setenv("PATH", str(tmp_path))
    found = await engine()
    before = await containers(found)
    with pytest.raises(TaskRefused, match=REFUSED[dockerfile]):
        async with (await docker()).start(docker_task(tmp_path, f"{dockerfile}\n")):
            pass
    assert await containers(found) <= before


async def test_a_build_that_takes_too_long_is_ended_and_named(tmp_path: Path) -> None:
    toml = '[environment]\nnetwork_mode = "no-network"\nbuild_timeout_sec = 5\n'
    with pytest.raises(TaskRefused, match="line 3: the build took longer than build_timeout_sec = 5"):
        async with (await docker()).start(docker_task(tmp_path, "WORKDIR /app\nRUN sleep 317\n", toml=toml)):
            pass
    found = await engine()
    for _ in range(600):
        listed = await found.call(lambda api: api.containers())
        if not any("sleep 317" in each["Command"] for each in listed):
            return
        await asyncio.sleep(0.1)
    pytest.fail("the build goes on")


async def test_an_allowlist_is_refused_by_name(tmp_path: Path) -> None:
    toml = '[environment]\nnetwork_mode = "allowlist"\nallowed_hosts = ["example.org"]\n'
    with pytest.raises(TaskRefused, match=r'task.toml environment.network_mode: "allowlist"'):
        async with (await docker()).start(docker_task(tmp_path, toml=toml)):
            pass


async def test_an_image_without_a_shell_is_refused_by_name(tmp_path: Path) -> None:
    dockerfile = "RUN rm /bin/bash\n"
    with pytest.raises(TaskRefused, match="cannot be used: it has no /bin/bash"):
        async with (await docker()).start(docker_task(tmp_path, dockerfile)):
            pass


def _tar(files: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.mode, member.size = 0o755, len(data)
            tar.addfile(member, io.BytesIO(data))
    return stream.getvalue()


@pytest.fixture
async def foreign_image() -> AsyncIterator[tuple[str, str, str]]:
    """Its name, what it is for and what the engine runs: nothing in it but a bash for another kind of processor."""
    found = await engine()
    other, machine = ("arm64", 183) if found.architecture == "amd64" else ("amd64", 62)
    # The head of an ELF program: 64 bits, little-endian, executable, for this machine.
    program = b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x02\0" + machine.to_bytes(2, "little") + bytes(44)
    layer = _tar({f"bin/{name}": program for name in ("bash", "sh", "true")})
    config = {
        "architecture": other, "os": "linux", "config": {}, "history": [],
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }  # fmt: skip
    name = f"fullchain-test-foreign:{secrets.token_hex(6)}"
    manifest = [{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]
    image = _tar(
        {
            "config.json": json.dumps(config).encode(),
            "manifest.json": json.dumps(manifest).encode(),
            "layer.tar": layer,
        }
    )
    await found.call(lambda api: list(api.load_image(image)))
    yield name, other, found.architecture
    await found.call(lambda api: api.remove_image(name, force=True))


@pytest.mark.parametrize("how", ["docker_image", "FROM"])
async def test_an_image_for_another_kind_of_processor_is_refused_in_one_line(
    how: str, foreign_image: tuple[str, str, str], tmp_path: Path
) -> None:
    name, other, own = foreign_image
    if how == "FROM":
        task = write_task(tmp_path, f"FROM {name}\nRUN true\n")
    else:
        toml = f'[environment]\nnetwork_mode = "no-network"\ndocker_image = "{name}"\n'
        task = write_task(tmp_path, toml=toml)
    with pytest.raises(TaskRefused, match=rf"is for {other} and the engine runs {own}") as refused:
        async with (await docker()).start(task):
            pass
    assert "\n" not in str(refused.value)


async def test_a_public_network_is_the_bridge_of_the_engine(tmp_path: Path) -> None:
    toml = '[environment]\nnetwork_mode = "public"\n'
    bridged = (await engine()).bridged
    async with (await docker()).start(docker_task(tmp_path, toml=toml)) as sandbox:
        seen = (await sandbox.exec("ls /sys/class/net", timeout_s=10)).text.split()
        notes = () if bridged else ("public network asked for; this engine gives none",)
        assert (seen, sandbox.notes) == (["eth0", "lo"] if bridged else ["lo"], notes)


async def test_no_container_is_left_however_a_trial_ends(tmp_path: Path) -> None:
    found = await engine()
    before = await containers(found)
    backend = await docker()
    task = docker_task(tmp_path)

    async def trial(how: str) -> None:
        async with backend.start(task) as sandbox:
            shell = await sandbox.shell()
            await shell.run("sleep 300 &", timeout_s=5)
            if how == "cancelled":
                await shell.run("sleep 300", timeout_s=300)
            raise RuntimeError(how)

    with pytest.raises(RuntimeError):
        await trial("failed")
    for after_s in (0.02, 0.1, 0.3, 1.0):
        running = asyncio.create_task(trial("cancelled"))
        await asyncio.sleep(after_s)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert await containers(found) <= before
