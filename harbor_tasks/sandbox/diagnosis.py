"""Why bubblewrap cannot start on this machine, and the mend, in one line."""

import sys
from pathlib import Path


def mend() -> str:
    if sys.platform != "linux":
        return "it needs Linux: run in a Linux virtual machine"
    if _reads("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == "1":
        return (
            "AppArmor forbids user namespaces: `sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0`, or "
            "install the system's bubblewrap and load its profile (apparmor-profiles: bwrap-userns-restrict)"
        )
    if _reads("/proc/sys/kernel/unprivileged_userns_clone") == "0":
        return "user namespaces are switched off: `sudo sysctl -w kernel.unprivileged_userns_clone=1`"
    if _reads("/proc/sys/user/max_user_namespaces") == "0":
        return "user namespaces are switched off: `sudo sysctl -w user.max_user_namespaces=15000`"
    if in_container():
        return (
            "a container without user namespaces: start it with `--security-opt seccomp=unconfined --security-opt "
            "systempaths=unconfined --security-opt apparmor=unconfined`, or run on the machine itself"
        )
    return "its kernel or a policy forbids user namespaces: allow them, or run on another machine"


def in_container() -> bool:
    if Path("/.dockerenv").exists() or Path("/run/.containerenv").exists():
        return True
    return any(word in _reads("/proc/1/cgroup") for word in ("docker", "kubepods", "containerd", "lxc"))


def _reads(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
