"""From a task to its plan: every refusal that needs no run is made here, before anything runs."""

import posixpath

from harbor_tasks.dockerfile import parse, read
from harbor_tasks.errors import TaskRefused
from harbor_tasks.format import Task, expand
from harbor_tasks.sandbox.plan import FOLDERS, ROOT, MakeFolder, Plan
from harbor_tasks.sandbox.reader import Reader


def plan(task: Task, *, allow_host_network: bool = False) -> Plan:
    """Raises TaskRefused, naming the Dockerfile's line or the field of task.toml that cannot be honoured."""
    if unsupported := task.unsupported():
        raise TaskRefused(f"task {task.name}: not supported: {'; '.join(unsupported)}")
    try:
        if task.dockerfile is None:
            raise TaskRefused("environment.docker_image: an image cannot be run without an engine: write a Dockerfile")
        for table, user in (("agent", task.config.agent.user), ("verifier", task.config.verifier.user)):
            if user not in ROOT:
                raise TaskRefused(f"task.toml {table}.user: {user}: this sandbox has one user: run it in Docker")
        reader = Reader(task.dockerfile.parent, task.requires)
        reader.read(parse(read(task.dockerfile)))
        environment = task.config.environment
        if environment.workdir is not None:
            reader.workdir = posixpath.normpath(environment.workdir)
            reader.folder(reader.workdir, "task.toml environment.workdir")
            reader.steps.append(MakeFolder(0, reader.workdir))
        host_network, network_notes = _network(task, allow_host_network)
        asked = {"memory_mb": "memory", "cpus": "cpu", "storage_mb": "storage"}
        unheld = [f"{name} limit not enforced" for key, name in asked.items() if getattr(environment, key) is not None]
        return Plan(
            workdir=reader.workdir,
            env={**reader.env, **expand(environment.env, table="environment")},
            folders=tuple(dict.fromkeys([*FOLDERS, *reader.folders])),
            steps=tuple(reader.steps),
            pins=tuple(reader.pins),
            host_network=host_network,
            notes=(*network_notes, *unheld, *reader.notes),
            build_timeout_s=environment.build_timeout_sec,
        )
    except TaskRefused as error:
        raise TaskRefused(f"task {task.name}: {error}") from None


def _network(task: Task, allow_host_network: bool) -> tuple[bool, tuple[str, ...]]:
    """Whether the host's network is given, and what to say about it."""
    config = task.config
    modes = {
        "environment": config.environment.network_mode,
        "agent": config.agent.network_mode or config.environment.network_mode,
        "verifier": config.verifier.network_mode or config.environment.network_mode,
    }
    for table, mode in modes.items():
        if mode == "allowlist":
            raise TaskRefused(
                f'task.toml {table}.network_mode: "allowlist": this sandbox has no network or all of it, no list'
            )
    if set(modes.values()) == {"no-network"}:
        return False, ()
    if not allow_host_network:
        return False, ("public network asked for; ran without",)
    if modes["agent"] != "public" or modes["verifier"] != "public":
        return False, ("public network asked for in part; ran without",)
    return True, ("the host's network was given (--allow-host-network)",)
