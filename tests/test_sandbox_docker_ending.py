"""A container that ends while the engine is asked about it."""

from functools import partial
from pathlib import Path

import pytest

from harbor_tasks.errors import SandboxBroken
from harbor_tasks.sandbox.docker.container import DockerMachine
from harbor_tasks.sandbox.docker.survivors import processes
from tests.docker_engine import docker_task
from tests.faulty_engine import Faults
from tests.test_sandbox_docker_pool import PATIENCE_S, behind

TOP = r"GET .*/containers/[0-9a-f]+/top"

pytestmark = pytest.mark.xdist_group("docker-leftovers")


async def test_what_the_engine_met_with_while_a_container_ended_is_no_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = Faults()
    async with behind(faults, tmp_path, monkeypatch) as own, own.start(docker_task(tmp_path)) as sandbox:
        assert isinstance(sandbox, DockerMachine)
        engine, inside = sandbox._engine, sandbox.container
        faults.plan[TOP] = ["500", "500"]
        assert len(await engine.call(partial(processes, container=inside))) == 2
        await engine.call(lambda api: api.kill(inside))
        await engine.call(lambda api: api.wait(inside, timeout=PATIENCE_S))
        faults.plan[TOP] = ["500", "500"]
        assert await engine.call(partial(processes, container=inside)) == {}
        faults.plan[TOP] = ["400"]
        with pytest.raises(SandboxBroken, match="as the test wants it"):
            await engine.call(partial(processes, container=inside))
