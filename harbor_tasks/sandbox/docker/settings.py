"""What a task's container is started with: limits, network, rights. What cannot be held is named."""

import os
import secrets
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from harbor_tasks.config import EnvironmentConfig
from harbor_tasks.errors import SandboxMissing, TaskRefused
from harbor_tasks.format import Task
from harbor_tasks.sandbox.docker.engine import Engine
from harbor_tasks.sandbox.docker.owners import this_process
from harbor_tasks.sandbox.docker.watcher import WATCHED

LABEL = "fullchain"
"""Its value is the version that started the container: leftovers are found by it."""
COPIES = "fullchain-copy"
"""The repository of images that are copies of running containers, each tagged with its own `trial` label."""
PROCESSES = 1024
RUNTIME = "FULLCHAIN_DOCKER_RUNTIME"
"""Names another of the engine's runtimes than its default: runsc (gVisor), kata-runtime, ..."""

CAPABILITIES = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID")
"""What root inside keeps. Package managers give files to users and become users of their own (CHOWN, FOWNER, FSETID,
SETUID, SETGID); images hold files that root may read only by DAC_OVERRIDE; KILL ends the processes of those users,
which may not outlive the agent. All the others of Docker's default go: raw packets (NET_RAW), device nodes (MKNOD),
file capabilities (SETFCAP, SETPCAP), chroot, audit records, low ports (which need no right in Docker's networks)."""

SHELLS = "/run/fullchain"
"""Inside, in memory: what a shell keeps from command to command. In the container's layer, writing it would cost more
than the command's processes."""
_SHELLS_MB = 64
_MB = 1024 * 1024
_LEAST_MEMORY_MB = 6
_LEAST_CPUS = 0.01


@dataclass(frozen=True, slots=True)
class Settings:
    """`create` are the keyword arguments of the SDK's create_container, `host` those of create_host_config; `notes` say
    in words what cannot be held, and which runtime was asked for. `storage_mb` is the task's limit: the engine holds it
    where `host` has a storage_opt and the engine takes that, else it must be watched."""

    create: dict[str, Any]
    host: dict[str, Any]
    notes: tuple[str, ...]
    storage_mb: int | None = None


def settings(task: Task, engine: Engine, *, runtime: str | None = None) -> Settings:
    """Raises TaskRefused for an allowlist of hosts, SandboxMissing for a runtime that the engine has not."""
    token = secrets.token_hex(8)
    create = {
        "name": f"fullchain-{token}",
        "hostname": "sandbox",
        # Each command says whose it is; what prepares the container must be root.
        "user": "0:0",
        "command": [],
        "working_dir": "/",
        "labels": {
            LABEL: version("fullchain"),
            f"{LABEL}.trial": token,
            f"{LABEL}.task": task.name,
            # Whoever looks for leftovers can tell whether this process still lives.
            f"{LABEL}.owner": str(this_process()),
        },
    }
    network, notes = _network(task, engine)
    host: dict[str, Any] = {
        "init": True,
        "network_mode": network,
        "cap_drop": ["ALL"],
        "cap_add": list(CAPABILITIES),
        "security_opt": ["no-new-privileges"],
        "pids_limit": PROCESSES,
        "tmpfs": {SHELLS: f"mode=1777,size={_SHELLS_MB}m"},
        "log_config": {"Type": "none"},
    }
    if (named := runtime or os.environ.get(RUNTIME)) is not None:
        known = engine.info.get("Runtimes") or {}
        if named not in known:
            raise SandboxMissing(f"{RUNTIME}: this engine has no runtime {named!r}, only {', '.join(sorted(known))}")
        host["runtime"] = named
        notes.append(f"runtime {named}")
    if not engine.info.get("PidsLimit", True):
        notes.append("process limit not enforced")
    _limits(task.config.environment, engine, host, notes)
    return Settings(create, host, tuple(notes), task.config.environment.storage_mb)


def _limits(environment: EnvironmentConfig, engine: Engine, host: dict[str, Any], notes: list[str]) -> None:
    info = engine.info
    for field, asked, least in (
        ("memory_mb", environment.memory_mb, _LEAST_MEMORY_MB),
        ("cpus", environment.cpus, _LEAST_CPUS),
    ):
        if asked is not None and asked < least:
            raise TaskRefused(f"task.toml environment.{field}: {asked:g}: Docker takes {least:g} or more")
    if environment.cpus is not None:
        if info.get("CpuCfsQuota", True) and info.get("CpuCfsPeriod", True):
            # More than it has is refused by the engine. What is there is what the task can get.
            cpus = min(environment.cpus, float(info.get("NCPU") or environment.cpus))
            host["nano_cpus"] = int(cpus * 1_000_000_000)
            if cpus < environment.cpus:
                notes.append(f"{environment.cpus:g} cpus asked for; the engine has {cpus:g}")
        else:
            notes.append("cpu limit not enforced")
    if environment.memory_mb is not None:
        if info.get("MemoryLimit", True):
            host["mem_limit"] = environment.memory_mb * _MB
            if info.get("SwapLimit", True):
                # The two together: none is left for swap.
                host["memswap_limit"] = environment.memory_mb * _MB
            else:
                notes.append("memory limit enforced without counting swap")
        else:
            notes.append("memory limit not enforced")
    if environment.storage_mb is not None:
        if _has_quota(engine):
            host["storage_opt"] = {"size": f"{environment.storage_mb}M"}
        else:
            notes.append(WATCHED)


def _has_quota(engine: Engine) -> bool:
    """Whether this storage driver can hold what a container writes to a size: zfs, and overlay2 on xfs that is mounted
    with pquota, which nobody tells: there the engine's own refusal decides. btrfs and devicemapper count the image too.
    """
    driver = engine.info.get("Driver")
    status = dict(pair for pair in engine.info.get("DriverStatus") or () if len(pair) == 2)
    return driver == "zfs" or (driver == "overlay2" and status.get("Backing Filesystem") == "xfs")


def _network(task: Task, engine: Engine) -> tuple[str, list[str]]:
    """The container's network, and what to say about it."""
    config = task.config
    default = config.environment.network_mode
    modes = {
        "environment": default,
        "agent": config.agent.network_mode or default,
        "verifier": config.verifier.network_mode or default,
    }
    for table, mode in modes.items():
        if mode == "allowlist":
            raise TaskRefused(
                f'task.toml {table}.network_mode: "allowlist": this sandbox has a network or none, no list of hosts'
            )
    asked = set(modes.values())
    if asked == {"public"}:
        return "bridge", [] if engine.bridged else ["public network asked for; this engine gives none"]
    return "none", ["public network asked for in part; ran without"] if "public" in asked else []
