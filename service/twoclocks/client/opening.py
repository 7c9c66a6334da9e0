"""Checks of what a Monitor is made with: the one moment at which the client may raise.

Everything wrong is a ValueError of one line that says what to correct.
"""

import re
from collections.abc import Iterable, Mapping
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pydantic import ValidationError

from twoclocks import __version__
from twoclocks.client.lines import one_line, shown
from twoclocks.wire import RunSpec

if TYPE_CHECKING:
    import httpx

KEEPALIVE_SECONDS = 2.0
"""Shorter than the 5 s after which common servers close an idle connection under our hands."""
RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")


def base_of(url: str) -> str:
    """Return the service's address without a slash at its end."""
    example = "give the service's address, e.g. http://127.0.0.1:8900"
    try:
        parts = urlsplit(url.strip())
        valid = parts.scheme in {"http", "https"} and bool(parts.hostname) and (parts.port or 1) > 0
        valid = valid and not re.search(r"[\s\x00-\x1f]", parts.netloc + parts.path)
    except (AttributeError, ValueError):
        valid = False
    if not valid:
        raise ValueError(f"url {shown(url)} is not an http(s) address; {example}")
    if parts.username or parts.password:
        raise ValueError("url must not carry a user or password; give the service's token as token=")
    if parts.query or parts.fragment:
        raise ValueError(f"url {shown(url)} must end after its path; {example}")
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"


def check_run(run: str) -> None:
    """Raise where the wire would refuse the name."""
    if not isinstance(run, str) or not RUN_NAME.fullmatch(run):
        raise ValueError(
            f"run {shown(run)} is no name; use letters, digits and . _ - and begin with a letter or digit; "
            "128 characters at most"
        )


def listed(given: Any) -> Any:
    """Return any sequence as a list; what is none is left for the wire's model to refuse by name."""
    return list(given) if isinstance(given, Iterable) and not isinstance(given, str | Mapping) else given


def spec_of(**fields: Any) -> RunSpec:
    """Return the run's spec."""
    try:
        return RunSpec.model_validate(fields)
    except ValidationError as error:
        raise ValueError(one_line(error)) from None


def client_of(
    base: str, token: str | None, timeout: float, transport: "httpx.BaseTransport | None"
) -> "httpx.Client":
    """Return the HTTP client. A service on this machine is never asked for through a proxy.

    httpx is imported here and not above: it would double the time that importing the client takes.
    """
    import httpx

    headers = {"User-Agent": f"twoclocks/{__version__}", "Accept": "application/json"}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    try:
        host = httpx.URL(base).host
        near = {f"all://{_bracketed(host)}": None} if _is_loopback(host) else None
        limits = httpx.Limits(keepalive_expiry=KEEPALIVE_SECONDS)
        return httpx.Client(headers=headers, timeout=timeout, transport=transport, mounts=near, limits=limits)
    except UnicodeEncodeError:
        raise ValueError("the token holds characters that no HTTP header can carry; copy it again") from None
    except Exception as error:
        raise ValueError(
            f"no HTTP client can be made ({one_line(error)}); check the environment's proxy and SSL variables"
        ) from error


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
