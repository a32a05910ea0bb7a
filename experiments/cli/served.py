"""A simulator that is served elsewhere: whether it is one, found out before anything depends on it."""

PROBE_S = 3.0
"""How long it may take to answer."""


def reach(simulator: str) -> None:
    """Raises SpecError when no simulator answers at the address."""
    import http.client
    from urllib.parse import urlsplit

    from experiments.errors import SpecError

    try:
        at = urlsplit(simulator)
        port = at.port
    except ValueError:
        raise SpecError(_no_address(simulator)) from None
    if at.scheme not in ("http", "https") or not at.hostname or "@" in simulator:
        raise SpecError(_no_address(simulator))
    kind = http.client.HTTPSConnection if at.scheme == "https" else http.client.HTTPConnection
    connection = kind(at.hostname, port, timeout=PROBE_S)
    try:
        connection.request("GET", f"{at.path.rstrip('/')}/v1/models", headers={"Authorization": "Bearer probe"})
        status = connection.getresponse().status
    except (OSError, ValueError, http.client.HTTPException) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise SpecError(
            f"--simulator: {simulator} does not answer ({reason}); start one with `fullchain simulate`"
        ) from None
    finally:
        connection.close()
    if status != http.client.OK:
        raise SpecError(
            f"--simulator: {simulator} is no simulator (status {status} for /v1/models); "
            "give the address that `fullchain simulate` prints"
        )


def _no_address(simulator: str) -> str:
    return f"--simulator: {simulator!r} is no address; expected one such as http://127.0.0.1:8787"
