"""What is wrong when a provider does not answer, as far as a person can mend it, and what to do then."""

import os
import re
from urllib.parse import urlsplit

from agents.errors import Fault
from agents.registry import ModelEntry

_CREDIT = re.compile(
    r"insufficient[_ ](quota|balance|credit|funds)|credit balance|billing_(error|hard_limit)|exceeded_current_quota"
    r"|out of credits?|used all available credits|arrearage|payment required|not enough credits?|more credits",
    re.IGNORECASE,
)
_REGION = re.compile(
    r"unsupported_country|country, region|not (available|supported) in your (region|country|location)"
    r"|location is not supported|region is not supported|unsupported (region|country)|data_residency",
    re.IGNORECASE,
)
_MODEL = re.compile(
    r"model_not_found|invalid_model|model not exist|no such model|unknown model|invalid model|not a valid model"
    r"|model\b.{0,120}(does not exist|not found|is not available)",
    re.IGNORECASE,
)
_KEY = re.compile(
    r"invalid[_ ](x-)?api[_ -]?key|incorrect api key|api key not valid|authentication_error|invalid_authentication"
    r"|unauthorized",
    re.IGNORECASE,
)
_PAGE = re.compile(r"\s*<(!doctype|html|head|body|\?xml)", re.IGNORECASE)
_TLS = re.compile(r"certificate|\bssl\b|tls|wrong_version_number", re.IGNORECASE)
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_PROXIES = ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy")


def is_page(body: object) -> bool:
    """Whether an answer is a web page: no API said it."""
    return isinstance(body, str) and _PAGE.match(body) is not None


def fault_of_status(status: int, said: str, *, page: bool) -> Fault | None:
    """What an error status means. `said` is the provider's message with its error's type and code."""
    if status in (301, 302, 303, 307, 308, 405) or (page and status < 500 and status != 429):
        return "address"
    if status == 407:
        return "proxy"
    if status == 402 or _CREDIT.search(said):
        return "credit"
    if status == 451 or _REGION.search(said):
        return "region"
    if status == 401 or (status in (400, 403) and _KEY.search(said)):
        return "key"
    if status in (400, 403, 404, 422) and _MODEL.search(said):
        return "model"
    if status == 403:
        return "key"
    if status == 404:
        # An API names the model that is not there; whoever does not lacks the path.
        return "model" if "model" in said.lower() else "address"
    return None


def fault_of_connection(error: BaseException) -> Fault | None:
    """What kept a request from arriving; None when it did arrive."""
    names, words = set[str](), ""
    cause: BaseException | None = error
    for _ in range(8):
        if cause is None:
            break
        names.add(type(cause).__name__)
        words += f" {type(cause).__name__} {cause}"
        cause = cause.__cause__ or cause.__context__
    if "ProxyError" in names:
        return "proxy"
    if names & {"ConnectError", "ConnectTimeout"}:
        return "tls" if _TLS.search(words) else "unreachable"
    return "address" if names & {"UnsupportedProtocol", "LocalProtocolError"} else None


def advice(fault: Fault | None, entry: ModelEntry) -> str:
    """One line for a person; "" when there is nothing to advise."""
    if fault is None:
        return ""
    name, where = entry.name, entry.base_url
    key = entry.key_variable
    if fault == "key":
        if key is None:
            return f"the server at {where} wants a key: give model {name} a key_variable"
        return f"check the key in {key}: it must be one of {where} that may use {entry.model}"
    if fault == "credit":
        return f"the account behind {key or where} has no credit left: add some, or use another key"
    if fault == "model":
        return f"check `model: {entry.model}` of {name}: {where} does not offer it to this key"
    if fault == "region":
        return f"{entry.provider} does not serve this region: set HTTPS_PROXY to a proxy elsewhere, or take a gateway"
    if fault == "address":
        return f"check the base_url {where} of {name}: no {entry.protocol} API answers there"
    if fault == "tls":
        return (
            f"the certificate of {where} cannot be verified: behind a proxy that inspects TLS set SSL_CERT_FILE to its "
            f"certificates, and use http:// only for a server without TLS"
        )
    proxy = next((variable for variable in _PROXIES if os.environ.get(variable)), None)
    local = urlsplit(where).hostname in _LOOPBACK
    if fault == "proxy":
        return f"check the proxy in {proxy or 'HTTPS_PROXY'}, or name the host in NO_PROXY to go around it"
    if local:
        around = f", and set NO_PROXY={urlsplit(where).hostname} to go around {proxy}" if proxy else ""
        return f"start the server at {where}, or mend the base_url of {name}{around}"
    through = f"the proxy in {proxy}" if proxy else "the network (behind a proxy: set HTTPS_PROXY)"
    return f"check the base_url {where} of {name} and {through}"
