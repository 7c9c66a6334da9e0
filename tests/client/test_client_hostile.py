"""Absurd arguments: a ValueError of one line when made, never an exception afterwards."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from twoclocks.client import Monitor


@pytest.mark.parametrize(
    "given",
    [{"candidates": 5}, {"schedule": "soon"}, {"timeout": "long"}, {"spool_dir": 7}, {"poll_seconds": None}],
)
def test_a_bad_argument_is_one_line(given: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=next(iter(given))) as error:
        Monitor("http://127.0.0.1:1", "r", **{"spool_dir": tmp_path, **given})
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("url", ["http://a b", "http://127.0.0.1:1/x y"])
def test_an_address_with_spaces_is_refused(url: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="url"):
        Monitor(url, "r", spool_dir=tmp_path)


@pytest.mark.parametrize("generation", ["two", None, -1, 2**40, float("nan"), [1]])
def test_an_ack_of_nonsense_is_counted_and_goes_no_further(generation: Any, tmp_path: Path) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        assert "ack" not in request.url.path
        return httpx.Response(503)

    transport = httpx.MockTransport(answer)
    monitor = Monitor("http://127.0.0.1:1", "r", spool_dir=tmp_path, transport=transport)
    monitor.ack(generation, "applied")
    assert monitor.refused == 1
    monitor.close(timeout=0.1)
