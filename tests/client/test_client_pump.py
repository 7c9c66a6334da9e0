import threading
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from twoclocks.client import Monitor

Make = Callable[..., Monitor]


def test_while_the_disk_stands_still_the_queue_is_bounded_and_the_rest_counted(
    make: Make, service: Any, give: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("twoclocks.client.pump.QUEUE_LIMIT", 10)
    monitor = make(attempt=1)
    moving = threading.Event()
    add = monitor._spool.add

    def slow_add(items: Any) -> bool:
        moving.wait(60)
        return add(items)

    monkeypatch.setattr(monitor._spool, "add", slow_add)
    for step in range(25):
        give(monitor, step)
    assert (monitor.pending, monitor.shed) == (10, 15)
    assert "10 reports wait for" in caplog.text
    assert "check that disk" in caplog.text
    moving.set()
    assert monitor.close(60)
    assert service.steps(1) == list(range(10))


def test_a_file_held_by_another_process_for_a_while_loses_nothing(
    make: Make, service: Any, give: Any, until: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monitor = make(attempt=1)
    held = [True]
    add = monitor._spool.add
    monkeypatch.setattr(monitor._spool, "add", lambda items: not held[0] and add(items))
    give(monitor, 0)
    held[0] = False
    give(monitor, 1)
    assert monitor.close(60)
    assert service.steps(1) == [0, 1]


def test_the_writer_outlives_what_nobody_foresaw(
    make: Make, service: Any, give: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monitor = make(attempt=1)
    failed: list[int] = []
    add = monitor._spool.add

    def fail_once(items: Any) -> bool:
        if not failed:
            failed.append(1)
            raise RuntimeError("a bug")
        return add(items)

    monkeypatch.setattr(monitor._spool, "add", fail_once)
    give(monitor, 0)
    assert monitor.close(60)
    assert service.steps(1) == [0]
    assert "spooling failed and is tried again" in caplog.text


def test_new_reports_do_not_cut_a_backoff_short(make: Make, service: Any, give: Any, until: Any) -> None:
    service.fault = lambda request: httpx.Response(503, headers={"Retry-After": "200"})
    monitor = make(attempt=1)
    until(lambda: monitor._sender.failures == 1)
    for step in range(20):
        give(monitor, step)
    until(lambda: monitor._pump.queued == 0)
    assert len(service.requests) == 1
    service.fault = lambda request: None
    assert monitor.close(60)
    assert monitor.delivered == 20


def test_close_with_no_time_at_all_still_brings_everything_to_disk(
    make: Make, service: Any, give: Any
) -> None:
    service.fault = lambda request: httpx.Response(503)
    monitor = make(attempt=1)
    for step in range(2_000):
        give(monitor, step)
    monitor.close(0.0)
    assert (monitor._pump.queued, monitor.pending, monitor.shed) == (0, 2_000, 0)
