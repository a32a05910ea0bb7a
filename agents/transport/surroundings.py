"""What the environment says of the way to the internet: proxies and certificates, and what is wrong with them."""

import os

import httpx2  # noqa: TID253  (this module is loaded by open_http alone)

from agents.errors import TryFailed

LIMITS = httpx2.Limits(max_connections=256, max_keepalive_connections=128)
TIMEOUT = httpx2.Timeout(300.0, connect=15.0, write=60.0, pool=60.0)
"""Seconds; reading waits so long for the next bytes of an answer, not for the whole of it."""

_PROXIES = ("http_proxy", "https_proxy", "all_proxy")
_CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR")


def client_of_environment() -> httpx2.AsyncClient:
    """A client that goes through the environment's proxies. Raises TryFailed, naming the variable, when one of them
    cannot be used."""
    try:
        return httpx2.AsyncClient(limits=LIMITS, timeout=TIMEOUT)
    except (ImportError, ValueError, httpx2.InvalidURL) as error:
        raise _unusable_proxy() from error
    except OSError as error:
        named = [name for name in _CERTIFICATES if os.environ.get(name)]
        if not named:
            raise
        raise TryFailed(
            f"the certificates that {' and '.join(named)} names cannot be read: {error.strerror or error}",
            retryable=False,
            fault="tls",
            advice=f"set {named[0]} to a file of certificates in PEM format, or unset it",
        ) from error


def _unusable_proxy() -> TryFailed:
    """Which variable it is. Nothing of its value is told: a password may stand in it."""
    for lower in _PROXIES:
        name = lower if os.environ.get(lower) else lower.upper()
        value = os.environ.get(name, "")
        address = value if "://" in value else f"http://{value}"
        if not value:
            continue
        try:
            httpx2.AsyncHTTPTransport(proxy=address, verify=False)
        except ImportError:
            return _told(f"{name} names a SOCKS proxy, which needs another package", name, "`pip install socksio`, or ")
        except (ValueError, httpx2.InvalidURL):
            return _told(f"{name} is no address of a proxy", name, "")
    # On some systems their settings name one too.
    return _told("the proxy that the system's settings name cannot be used", "HTTPS_PROXY", "")


def _told(message: str, name: str, before: str) -> TryFailed:
    advice = f"{before}set {name} to an address such as http://127.0.0.1:3128, or unset it"
    return TryFailed(message, retryable=False, fault="proxy", advice=advice)
