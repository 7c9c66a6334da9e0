"""One exchange with the service: whatever goes wrong is a reply to act on or a trouble to wait out.

    Reply           the service understood: it took the request, or says what is wrong with it
    TroubleError    not now (unreachable, timed out, 429, 5xx) or not here (wrong address, wrong token);
                    the request is right, is kept and is sent again

Redirects are not followed: a POST that a redirect turns into a GET would be lost.
"""

import json
import logging
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

from twoclocks.client.lines import one_line

if TYPE_CHECKING:
    import httpx

TOO_LARGE = 413
PROBLEM_JSON = "application/problem+json"
DATA_REFUSED = frozenset({400, 404, 409, 422})
"""Problems that speak of the request's content, when they come from the service itself."""
LARGEST_REPLY = 16 * 2**20
"""Bytes; no reply of the service is nearly as long, and a stranger's may have no end."""
LONGEST_REPLY = 4.0
"""A reply may take this many times the timeout, which is for each part of it, before it is given up."""
LATER = frozenset({408, 425, 429})
LONGEST_RETRY_AFTER = 300.0
THREAD_PREFIX = "twoclocks-"


@dataclass(frozen=True, slots=True)
class Reply:
    """What the service said: `data` is the JSON object, empty with 304."""

    status: int
    data: dict[str, Any] = field(default_factory=dict)
    etag: str | None = None

    @property
    def ok(self) -> bool:
        """Whether the request was taken."""
        return self.status < 400

    @property
    def detail(self) -> str:
        """What a problem document says, in one line."""
        text = str(self.data.get("detail") or self.data.get("title") or f"status {self.status}")
        return " ".join(text.split())[:500]


class TroubleError(Exception):
    """Not taken, and not by the request's fault. `kind` groups what is the same news."""

    def __init__(self, kind: str, reason: str, after: float = 0.0) -> None:
        super().__init__(reason)
        self.kind = kind
        self.after = after
        """Seconds that the service asks to wait."""


class Link:
    """The HTTP of one run; `base` is the service's address without a slash at its end."""

    def __init__(
        self, client: "httpx.Client", base: str, now: Callable[[], datetime] = lambda: datetime.now(UTC)
    ):
        self.base = base
        self._client = client
        self._now = now
        logging.getLogger("httpx").addFilter(_quiet)

    def exchange(self, method: str, path: str, body: str | None = None, etag: str | None = None) -> Reply:
        """Send one request; raises TroubleError where nothing can be said of its content."""
        import httpx

        headers = {"If-None-Match": etag} if etag else {}
        if body is not None:
            headers["Content-Type"] = "application/json"
        url, again = self.base + path, True
        while True:
            try:
                return self._exchange(method, url, body, headers)
            except httpx.TimeoutException:
                raise TroubleError("outage", "does not answer in time") from None
            except (httpx.RequestError, OSError) as error:
                # A server may close an idle connection just as it is used again. That is no news, and every
                # request of ours may be sent twice.
                if again and isinstance(
                    error, httpx.ReadError | httpx.WriteError | httpx.RemoteProtocolError
                ):
                    again = False
                    continue
                hint = "; write http:// in the url of a service without TLS" if "SSL" in str(error) else ""
                raise TroubleError("outage", f"cannot be reached ({one_line(error)}){hint}") from None

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _exchange(self, method: str, url: str, body: str | None, headers: dict[str, str]) -> Reply:
        """One request and its reply, read as far as a reply of the service may go."""
        begun, content = time.monotonic(), bytearray()
        patience = LONGEST_REPLY * (self._client.timeout.read or math.inf)
        with self._client.stream(method, url, content=body, headers=headers) as response:
            for part in response.iter_bytes():
                content += part
                if len(content) > LARGEST_REPLY:
                    raise TroubleError("address", "answers without end and is not Two Clocks; check the url")
                if time.monotonic() - begun > patience:
                    raise TroubleError("outage", "does not answer in time")
        return self._read(response, bytes(content))

    def _read(self, response: "httpx.Response", content: bytes) -> Reply:
        status = response.status_code
        data = _object(content)
        if status == 304:
            return Reply(status)
        if 200 <= status < 300:
            if data is None:
                raise TroubleError("address", "answers with something other than Two Clocks; check the url")
            return Reply(status, data, response.headers.get("ETag"))
        if status == TOO_LARGE:
            return Reply(status, data or {})
        if status in DATA_REFUSED and data is not None and _is_problem(response):
            return Reply(status, data)
        if status in (401, 403):
            raise TroubleError(
                "token", f"refuses the token ({status}); set token or TWOCLOCKS_TOKEN to a valid one"
            )
        if status >= 500 or status in LATER:
            after = retry_after(response.headers.get("Retry-After"), self._now())
            raise TroubleError("outage", f"answers {status} {response.reason_phrase}".rstrip(), after)
        if 300 <= status < 400:
            target = response.headers.get("Location", "elsewhere")
            raise TroubleError("address", f"redirects to {target}; give the final address as url")
        raise TroubleError("address", f"answers {status} and is not Two Clocks there; check the url")


def retry_after(value: str | None, now: datetime) -> float:
    """Return the seconds of a Retry-After header (seconds or an HTTP date), in 0..LONGEST_RETRY_AFTER."""
    if not value:
        return 0.0
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = (parsedate_to_datetime(value) - now).total_seconds()
        except (TypeError, ValueError):
            return 0.0
    return min(seconds, LONGEST_RETRY_AFTER) if seconds > 0 else 0.0


def _object(content: bytes) -> dict[str, Any] | None:
    try:
        data = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) else None


def _is_problem(response: "httpx.Response") -> bool:
    return str(response.headers.get("Content-Type", "")).partition(";")[0].strip().lower() == PROBLEM_JSON


def _quiet(record: logging.LogRecord) -> bool:
    """Keep httpx's line per request out of the training log, for our threads only."""
    return not threading.current_thread().name.startswith(THREAD_PREFIX) or record.levelno > logging.INFO
