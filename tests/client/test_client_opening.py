import re
from typing import Any

import pytest

from twoclocks.client import Monitor
from twoclocks.client.opening import base_of, client_of


@pytest.mark.parametrize(
    ("url", "base"),
    [
        ("http://127.0.0.1:8900", "http://127.0.0.1:8900"),
        (" https://clocks.example/ ", "https://clocks.example"),
        ("https://example/team/clocks/", "https://example/team/clocks"),
        ("http://[::1]:8900", "http://[::1]:8900"),
    ],
)
def test_the_address_is_taken_without_its_last_slash(url: str, base: str) -> None:
    assert base_of(url) == base


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"url": "localhost:8900"}, "is not an http(s) address; give the service's address"),
        ({"url": ""}, "is not an http(s) address"),
        ({"url": "ftp://host"}, "is not an http(s) address"),
        ({"url": "http://host:port"}, "is not an http(s) address"),
        ({"url": "http://host:99999"}, "is not an http(s) address"),
        ({"url": None}, "is not an http(s) address"),
        ({"url": "http://user:secret@host"}, "must not carry a user or password"),
        ({"url": "http://host/?a=1"}, "must end after its path"),
        ({"run": "two words"}, "is no name; use letters"),
        ({"run": ""}, "is no name; use letters"),
        ({"run": "../etc"}, "is no name; use letters"),
        ({"run": 7}, "is no name; use letters"),
        ({"risk": 2.0}, "risk: Input should be less than 1, got 2.0"),
        ({"policy": "perhaps"}, "policy: Input should be 'advise' or 'act', got 'perhaps'"),
        ({"candidates": [{"rollout_batch": 0}]}, "candidates.0.rollout_batch"),
        ({"candidates": [(512, 1e-5)]}, "candidates.0"),
        ({"schedule": [{"at_samples": 5}]}, "schedule.0.rollout_batch: Field required"),
        ({"config": {"epochs": 0}}, "config.epochs"),
        ({"config": "a string"}, "config: Input should be"),
        ({"attempt": -1}, "attempt: Input should be greater than or equal to 0"),
        ({"spool_bytes": 0}, "spool_bytes must be above 0"),
        ({"timeout": -1.0}, "timeout must be above 0"),
        ({"poll_seconds": 0}, "poll_seconds must be above 0"),
        ({"token": "t\u00f6ken\u20ac"}, "the token holds characters"),
    ],
    ids=lambda value: str(value)[:40] if isinstance(value, dict) else "",
)
def test_what_is_wrong_is_one_line_that_says_what_to_do(
    given: dict[str, Any], says: str, tmp_path: Any
) -> None:
    arguments = {"url": "http://host", "run": "run", "spool_dir": tmp_path, **given}
    with pytest.raises(ValueError, match=re.escape(says)) as caught:
        Monitor(**arguments)
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_a_service_on_this_machine_is_never_asked_for_through_a_proxy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://proxy.example:3128")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    import httpx

    for base, direct in (
        ("http://127.0.0.1:1", True),
        ("http://localhost:1", True),
        ("http://far.example", False),
    ):
        with client_of(base, None, 1.0, None) as client:
            chosen = client._transport_for_url(httpx.URL(base))
            assert (chosen is client._transport) is direct


def test_the_token_is_sent_as_a_bearer() -> None:
    with client_of("http://host", "abc", 1.0, None) as client:
        assert client.headers["Authorization"] == "Bearer abc"
    with client_of("http://host", None, 1.0, None) as client:
        assert "Authorization" not in client.headers
