"""What a bubblewrap sandbox is made of: the namespaces it leaves, and the mounts that all its processes see."""

import os
from dataclasses import dataclass
from pathlib import Path

from harbor_tasks.sandbox.plan import Plan
from harbor_tasks.sandbox.state import Slot

HOSTNAME = "task"
PYTHON = "/run/python"
SHELL_FOLDER = "/run/shell"
DRIVER = "/run/driver"
SHARED_MEMORY_BYTES = 64 * 1024**2
HOST_ETC = ("alternatives", "ssl/certs", "ssl/openssl.cnf", "pki/tls/certs", "ld.so.cache", "ca-certificates.conf")
"""Those parts of the host's /etc without which programs in its /usr do not run."""


@dataclass(frozen=True, slots=True)
class Tools:
    """Found once per process. `bash` is a copy that can be run but not read: see bubblewrap.py."""

    bwrap: Path
    python: Path
    bash: Path


def isolation(host_network: bool) -> list[str]:
    # fmt: off
    return [
        "--die-with-parent", "--new-session", "--unshare-user", "--uid", "0", "--gid", "0", "--disable-userns",
        "--cap-drop", "ALL", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--hostname", HOSTNAME,
        "--unshare-cgroup-try", *([] if host_network else ["--unshare-net"]),
    ]
    # fmt: on


def system(tools: Tools, slot: Slot, planned: Plan) -> list[str]:
    """The mounts that every process of one sandbox sees."""
    mounts = ["--ro-bind", "/usr", "/usr", "--proc", "/proc", "--dev", "/dev", "--size", str(SHARED_MEMORY_BYTES)]
    # Its devices stay usable; only the memory behind /dev itself, half of the machine's, is no place to write.
    mounts += ["--tmpfs", "/dev/shm", "--remount-ro", "/dev"]  # noqa: S108
    mounts += ["--dir", "/run", "--ro-bind", str(tools.python), PYTHON]
    for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32"):
        path = Path("/", name)
        if path.is_symlink():
            mounts += ["--symlink", os.readlink(path).lstrip("/"), f"/{name}"]
        elif path.is_dir():
            mounts += ["--ro-bind", f"/{name}", f"/{name}"]
    mounts += _etc(slot, planned.host_network)
    slot.make("shells")
    slot.make("tree")
    for name in planned.folders:
        folder = slot.make(f"tree/{name}", 0o1777 if name == "tmp" else 0o700 if name == "root" else 0o755)
        mounts += ["--bind", str(folder), f"/{name}"]
    for name in ("logs/agent", "logs/verifier", "logs/artifacts", "var/lib", "var/log", "var/cache"):
        slot.make(f"tree/{name}")
    slot.make("tree/var/tmp", 0o1777)
    return mounts


def _etc(slot: Slot, host_network: bool) -> list[str]:
    """A made-up /etc: who is who, how names resolve, and those of the host's files that programs need to run."""
    etc = slot.make("etc")
    resolv = Path("/etc/resolv.conf").read_text(encoding="utf-8", errors="replace") if host_network else ""
    files = {
        "passwd": "root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
        "group": "root:x:0:\nnogroup:x:65534:\n",
        "hosts": f"127.0.0.1 localhost {HOSTNAME}\n::1 localhost\n",
        "hostname": f"{HOSTNAME}\n",
        "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
        "resolv.conf": resolv,
        "shells": "/bin/sh\n/bin/bash\n",
    }
    for name, text in files.items():
        (etc / name).write_text(text, encoding="utf-8")
    (etc / "localtime").symlink_to("/usr/share/zoneinfo/UTC")
    mounts = ["--ro-bind", str(etc), "/etc"]
    for name in HOST_ETC:
        source = Path("/etc", name)
        if not source.exists():
            continue
        if source.is_dir():
            (etc / name).mkdir(parents=True, exist_ok=True)
        else:
            (etc / name).parent.mkdir(parents=True, exist_ok=True)
            (etc / name).touch()
        mounts += ["--ro-bind", str(source), f"/etc/{name}"]
    for path in etc.rglob("*"):
        # Our umask may be strict, and the sandbox's user is another.
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() else 0o644)
    return mounts
