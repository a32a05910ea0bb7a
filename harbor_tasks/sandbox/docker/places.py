"""Where an engine may be on this machine: DOCKER_HOST, then the active CLI context, then the known sockets."""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from harbor_tasks.errors import SandboxMissing

SOCKETS = (
    "/var/run/docker.sock",
    "{runtime}/docker.sock",
    "{home}/.docker/run/docker.sock",
    "{home}/.docker/desktop/docker.sock",
    "{home}/.colima/default/docker.sock",
    "{home}/.orbstack/run/docker.sock",
    "{home}/.rd/docker.sock",
)
"""The engine's own, a rootless one's, Docker Desktop's (macOS, Linux), Colima's, OrbStack's, Rancher Desktop's."""


@dataclass(frozen=True, slots=True)
class Place:
    """`found_by` says in words why we look there."""

    url: str
    found_by: str


def places(environ: Mapping[str, str] = os.environ) -> tuple[Place, ...]:
    """Where to ask, in order. What somebody has set is the one place: another engine would not be what they meant.

    Raises SandboxMissing when what is set cannot be used.
    """
    if host := environ.get("DOCKER_HOST"):
        secured = bool(environ.get("DOCKER_TLS_VERIFY") or environ.get("DOCKER_CERT_PATH"))
        return (_usable(Place(host, "DOCKER_HOST"), secured=secured),)
    home = environ.get("HOME") or str(Path.home())
    context = environ.get("DOCKER_CONTEXT")
    # The SDK, which takes its time to import, is not asked where nobody has ever set a context.
    settings = Path(environ.get("DOCKER_CONFIG") or f"{home}/.docker", "config.json")
    if (context or settings.exists()) and (place := _context(context)) is not None:
        return (place,)
    runtime = environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}"
    known = dict.fromkeys(socket.format(runtime=runtime, home=home) for socket in SOCKETS)
    return tuple(Place(f"unix://{path}", "a known socket") for path in known if Path(path).exists())


def install() -> str:
    """What to do where there is no engine, in words."""
    if sys.platform == "darwin":
        return "install Docker Desktop, OrbStack or Colima and start it"
    return "install Docker (Debian, Ubuntu: the package docker.io) and start it, or set DOCKER_HOST"


def _context(name: str | None) -> Place | None:
    """The context that the CLI would use, unless it is the default one, which names no place of its own."""
    from docker.context import ContextAPI
    from docker.context.config import get_current_context_name
    from docker.errors import DockerException

    wanted = name or get_current_context_name()
    if not wanted or wanted == "default":
        return None
    said = f"the CLI context {wanted}"
    try:
        context = ContextAPI.get_context(wanted)
        host = context.Host if context is not None else None
    # The SDK does not look at what kind of values stand in the files.
    except (DockerException, OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise SandboxMissing(f"docker: {said} cannot be read ({error}): `docker context use default`") from None
    if not host:
        raise SandboxMissing(f"docker: {said} does not exist or names no engine: `docker context use default`")
    return _usable(Place(str(host), said), secured=context is not None and context.TLSConfig is not None)


def _usable(place: Place, *, secured: bool) -> Place:
    """A shell's connection is taken out from under the SDK's, which TLS does not allow."""
    scheme = place.url.partition("://")[0]
    if scheme == "unix" or (scheme in ("tcp", "http") and not secured):
        return place
    named = f"{place.url} with TLS" if scheme in ("tcp", "http") else place.url
    raise SandboxMissing(
        f"docker: {place.found_by} names {named}: only unix://, and tcp:// without TLS, are spoken here: forward the "
        "engine's socket (`ssh -NL /tmp/docker.sock:/var/run/docker.sock HOST`) and set "
        "DOCKER_HOST=unix:///tmp/docker.sock"
    )
