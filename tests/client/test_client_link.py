import logging
import threading
from collections.abc import Callable
from datetime import UTC, datetime

import httpx
import pytest

from twoclocks.client.link import THREAD_PREFIX, Link, TroubleError, retry_after

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def link_to(handler: Callable[[httpx.Request], httpx.Response]) -> Link:
    return Link(httpx.Client(transport=httpx.MockTransport(handler)), "http://host", now=lambda: NOW)


@pytest.mark.parametrize(
    ("answer", "kind", "says"),
    [
        (httpx.Response(503), "outage", "answers 503 Service Unavailable"),
        (httpx.Response(500, json={}), "outage", "answers 500"),
        (httpx.Response(429), "outage", "answers 429"),
        (httpx.Response(408), "outage", "answers 408"),
        (httpx.Response(401), "token", "refuses the token (401); set token or TWOCLOCKS_TOKEN"),
        (httpx.Response(403), "token", "refuses the token (403)"),
        (
            httpx.Response(200, text="<html>hello</html>"),
            "address",
            "something other than Two Clocks; check the url",
        ),
        (httpx.Response(200, json=[1]), "address", "something other than Two Clocks"),
        (httpx.Response(404, text="<html>404</html>"), "address", "answers 404 and is not Two Clocks there"),
        (httpx.Response(404, json={"detail": "Not Found"}), "address", "answers 404 and is not Two Clocks"),
        (httpx.Response(405), "address", "answers 405"),
        (httpx.Response(422, json={"detail": "from another API"}), "address", "answers 422"),
        (httpx.Response(301, headers={"Location": "https://host/"}), "address", "redirects to https://host/"),
    ],
    ids=lambda value: str(value.status_code) if isinstance(value, httpx.Response) else "",
)
def test_what_is_not_the_requests_fault_is_trouble(answer: httpx.Response, kind: str, says: str) -> None:
    with pytest.raises(TroubleError) as caught:
        link_to(lambda request: answer).exchange("GET", "/x")
    assert caught.value.kind == kind
    assert says in str(caught.value)


@pytest.mark.parametrize(
    "error",
    [
        httpx.ConnectError("refused"),
        httpx.ReadError(""),
        httpx.RemoteProtocolError("cut"),
        OSError("no route"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_cannot_be_reached_is_trouble(error: Exception) -> None:
    def fail(request: httpx.Request) -> httpx.Response:
        raise error

    with pytest.raises(TroubleError, match=r"cannot be reached \(.+\)"):
        link_to(fail).exchange("GET", "/x")


def test_a_connection_closed_while_idle_is_no_news() -> None:
    calls = []

    def close_first(request: httpx.Request) -> httpx.Response:
        calls.append(request)
        if len(calls) == 1:
            raise httpx.RemoteProtocolError("Server disconnected without sending a response.")
        return httpx.Response(200, json={})

    assert link_to(close_first).exchange("POST", "/x", "{}").ok
    assert len(calls) == 2


def test_a_timeout_is_trouble() -> None:
    def fail(request: httpx.Request) -> httpx.Response:
        raise httpx.ReadTimeout("slow")

    with pytest.raises(TroubleError, match="does not answer in time"):
        link_to(fail).exchange("GET", "/x")


@pytest.mark.parametrize("status", [400, 404, 409, 422])
def test_a_problem_of_the_service_itself_is_a_reply(
    status: int, refuse: Callable[..., httpx.Response]
) -> None:
    reply = link_to(lambda request: refuse(status, "because\nof that")).exchange("POST", "/x", "{}")
    assert (reply.status, reply.ok, reply.detail) == (status, False, "because of that")


def test_too_large_is_a_reply_whoever_says_it() -> None:
    reply = link_to(lambda request: httpx.Response(413, text="<html>nginx</html>")).exchange(
        "POST", "/x", "{}"
    )
    assert reply.status == 413


def test_not_modified_and_etag() -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        if request.headers.get("If-None-Match") == '"7"':
            return httpx.Response(304)
        return httpx.Response(200, json={"generation": 7}, headers={"ETag": '"7"'})

    link = link_to(handler)
    first = link.exchange("GET", "/x")
    assert first.etag == '"7"'
    assert link.exchange("GET", "/x", etag=first.etag).status == 304


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, 0.0),
        ("", 0.0),
        ("7", 7.0),
        ("1.5", 1.5),
        ("-3", 0.0),
        ("99999", 300.0),
        ("nan", 0.0),
        ("soon", 0.0),
        ("Thu, 01 Jan 2026 00:00:20 GMT", 20.0),
        ("Wed, 31 Dec 2025 23:59:00 GMT", 0.0),
    ],
)
def test_retry_after_in_seconds_or_as_a_date(value: str | None, seconds: float) -> None:
    assert retry_after(value, NOW) == seconds


def test_retry_after_is_handed_on() -> None:
    with pytest.raises(TroubleError) as caught:
        link_to(lambda request: httpx.Response(503, headers={"Retry-After": "9"})).exchange("GET", "/x")
    assert caught.value.after == 9.0


def test_a_line_per_request_stays_out_of_the_training_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    link = link_to(lambda request: httpx.Response(200, json={}))
    thread = threading.Thread(target=link.exchange, args=("GET", "/ours"), name=f"{THREAD_PREFIX}sender")
    thread.start()
    thread.join()
    assert not [record for record in caplog.records if record.name == "httpx"]
    link.exchange("GET", "/somebody-elses")
    assert [record for record in caplog.records if record.name == "httpx"]
