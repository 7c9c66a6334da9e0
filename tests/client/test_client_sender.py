import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from twoclocks.client.rows import Item
from twoclocks.client.sender import BACKOFF_BASE, BACKOFF_CAP, MAX_BATCH_BYTES, backoff
from twoclocks.wire import MAX_REPORTS_PER_BATCH, DirectiveKind

Refuse = Callable[..., httpx.Response]


def report(step: int, attempt: int = 2, **more: Any) -> Item:
    return Item("report", attempt, json.dumps({"step": step, **more}))


def fill(bench: Any, steps: range, **more: Any) -> None:
    bench.spool.add([report(step, **more) for step in steps])


def test_the_run_is_declared_first_then_everything_goes_in_order(bench: Any, service: Any) -> None:
    fill(bench, range(3))
    bench.spool.add([Item("ack", 2, '{"attempt":2}', generation=4)])
    fill(bench, range(3, 5))
    bench.spool.add([Item("finish", 2, '{"attempt":2}')])
    assert bench.settle() > 0
    expected = [(2, "spec"), (2, 0), (2, 1), (2, 2), (2, "ack"), (2, 3), (2, 4), (2, "finish")]
    assert service.arrivals == expected
    assert service.acks[0][0] == 4
    assert (bench.spool.rows, bench.ledger.delivered) == (0, 5)


def test_an_earlier_attempt_is_declared_and_sent_before_this_one(bench: Any, service: Any) -> None:
    bench.spool.remember(1, '{"attempt":1}')
    bench.spool.add([report(9, attempt=1), report(5)])
    bench.settle()
    assert service.arrivals == [(1, "spec"), (1, 9), (2, "spec"), (2, 5)]


def test_a_batch_has_at_most_the_wires_number_of_reports_and_a_bounded_size(bench: Any, service: Any) -> None:
    fill(bench, range(2_500))
    bench.settle()
    posts = [json.loads(r.content) for r in service.requests if r.url.path.endswith("/steps")]
    assert [len(post["reports"]) for post in posts] == [MAX_REPORTS_PER_BATCH, MAX_REPORTS_PER_BATCH, 500]
    assert [post["sequence"] for post in posts] == [1, 2, 3]
    service.requests.clear()
    fill(bench, range(3_000, 3_030), pad="x" * 50_000)
    bench.settle()
    sizes = [len(r.content) for r in service.requests if r.url.path.endswith("/steps")]
    assert len(sizes) > 1
    assert max(sizes) < MAX_BATCH_BYTES + 200


def test_an_outage_keeps_everything_and_is_told_once_at_each_end(
    bench: Any, service: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def down(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("Connection refused")

    service.fault = down
    fill(bench, range(20))
    for _ in range(30):
        assert bench.sender.step() > 0
    assert bench.spool.rows == 20
    assert len(caplog.records) == 1
    assert "cannot be reached (Connection refused); training goes on, reports wait in" in caplog.text
    service.fault = lambda request: None
    bench.settle()
    assert service.steps(2) == list(range(20))
    assert len(caplog.records) == 2
    assert "answers again; 20 reports were delivered late" in caplog.text
    service.fault = down
    fill(bench, range(20, 21))
    bench.sender.step()
    assert len(caplog.records) == 3


def test_a_lost_reply_is_sent_again_and_counted_once(bench: Any, service: Any) -> None:
    lost: list[httpx.Response] = []

    def cut(request: httpx.Request) -> httpx.Response | None:
        if request.url.path.endswith("/steps") and not lost:
            lost.append(service.handle(request))
            raise httpx.ReadError("connection cut after the service had stored it")
        return None

    service.fault = cut
    fill(bench, range(5))
    bench.sender.step()
    bench.sender.step()
    bench.settle()
    assert service.steps(2) == [0, 1, 2, 3, 4]
    assert (service.received, bench.ledger.delivered) == (10, 5)


@pytest.mark.parametrize("failures", [1, 2, 3, 5, 8, 1_000])
def test_backoff_is_full_jitter_below_a_doubling_bound(failures: int) -> None:
    bound = min(BACKOFF_CAP, BACKOFF_BASE * 2 ** (failures - 1))
    assert backoff(failures, lambda: 0.0) == 0.0
    assert backoff(failures, lambda: 1.0) == bound
    assert backoff(failures, lambda: 0.25) == bound / 4


def test_each_failure_in_a_row_waits_longer_and_success_starts_over(bench: Any, service: Any) -> None:
    service.fault = lambda request: httpx.Response(500)
    assert [bench.sender.step() for _ in range(8)] == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    service.fault = lambda request: None
    bench.settle()
    service.fault = lambda request: httpx.Response(500)
    fill(bench, range(1))
    assert bench.sender.step() == 0.5


def test_retry_after_is_honoured_where_it_is_longer(bench: Any, service: Any) -> None:
    service.fault = lambda request: httpx.Response(503, headers={"Retry-After": "12"})
    assert bench.sender.step() == 12.0
    service.fault = lambda request: httpx.Response(429, headers={"Retry-After": "0"})
    assert bench.sender.step() == 1.0


def test_a_wrong_address_and_a_wrong_token_are_one_line_each_and_lose_nothing(
    bench: Any, service: Any, caplog: pytest.LogCaptureFixture
) -> None:
    fill(bench, range(3))
    service.fault = lambda request: httpx.Response(200, text="<html>a router</html>")
    for _ in range(5):
        assert bench.sender.step() > 0
    service.fault = lambda request: httpx.Response(401)
    for _ in range(5):
        assert bench.sender.step() > 0
    assert [record.message.split(";")[0] for record in caplog.records] == [
        "the service at http://two-clocks.test answers with something other than Two Clocks",
        "the service at http://two-clocks.test refuses the token (401)",
    ]
    service.fault = lambda request: None
    bench.settle()
    assert service.steps(2) == [0, 1, 2]


def test_a_url_with_a_path_too_many_is_a_wrong_address(
    bench: Any, service: Any, refuse: Refuse, caplog: pytest.LogCaptureFixture
) -> None:
    service.fault = lambda request: refuse(404, "no route /x/api/v1/runs/run; /docs lists them all")
    fill(bench, range(1))
    for _ in range(3):
        assert bench.sender.step() > 0
    assert len(caplog.records) == 1
    assert "has no such route" in caplog.text
    assert "check the url" in caplog.text
    assert bench.spool.rows == 1


def test_a_web_page_that_answers_200_to_a_batch_acknowledges_nothing(bench: Any, service: Any) -> None:
    fill(bench, range(3))
    bench.sender.step()
    service.fault = lambda request: httpx.Response(200, json={"hello": "world"})
    assert bench.sender.step() > 0
    assert (bench.spool.rows, bench.ledger.delivered) == (3, 0)


def test_too_large_a_body_is_halved_until_it_fits(bench: Any, service: Any) -> None:
    def small(request: httpx.Request) -> httpx.Response | None:
        return httpx.Response(413, text="<html>") if len(request.content) > 600 else None

    service.fault = small
    fill(bench, range(100))
    bench.settle(200)
    assert service.steps(2) == list(range(100))
    assert (bench.ledger.delivered, bench.ledger.refused) == (100, 0)


def test_a_single_report_that_is_too_large_is_given_up_and_the_rest_goes(bench: Any, service: Any) -> None:
    service.fault = lambda request: httpx.Response(413) if len(request.content) > 2_000 else None
    bench.spool.add([report(0), report(1, pad="x" * 3_000), report(2)])
    bench.settle()
    assert service.steps(2) == [0, 2]
    assert (bench.ledger.delivered, bench.ledger.refused) == (2, 1)


@pytest.mark.parametrize("status", [400, 409, 422])
def test_one_bad_report_is_found_and_the_rest_goes(
    status: int, bench: Any, service: Any, refuse: Refuse, caplog: pytest.LogCaptureFixture
) -> None:
    def picky(request: httpx.Request) -> httpx.Response | None:
        if request.url.path.endswith("/steps") and b'"bad"' in request.content:
            return refuse(status, "body field 'reports.0.loss': a number, please")
        return None

    service.fault = picky
    bench.spool.add([report(step, **({"bad": 1} if step in (0, 37, 99) else {})) for step in range(100)])
    bench.settle(200)
    assert service.steps(2) == [step for step in range(100) if step not in (0, 37, 99)]
    assert (bench.ledger.delivered, bench.ledger.refused) == (97, 3)
    assert len(service.requests) < 60
    assert "the service refuses a report: body field 'reports.0.loss'" in caplog.text


def test_reports_that_differ_from_the_stored_ones_are_counted_as_refused(bench: Any, service: Any) -> None:
    fill(bench, range(3), reward=0.5)
    bench.settle()
    fill(bench, range(2, 5), reward=0.25)
    bench.settle()
    assert service.reports[(2, 2)]["reward"] == 0.5
    assert (bench.ledger.delivered, bench.ledger.refused) == (5, 1)


def test_a_batch_of_which_every_report_differs_is_refused_at_once(bench: Any, service: Any) -> None:
    fill(bench, range(50), reward=0.5)
    bench.settle()
    service.requests.clear()
    fill(bench, range(50), reward=0.25)
    fill(bench, range(50, 51), reward=0.25)
    bench.sender._most = 50
    bench.settle()
    assert (bench.ledger.delivered, bench.ledger.refused) == (51, 50)
    assert len(service.requests) == 2


def test_a_service_that_lost_the_run_is_told_again(bench: Any, service: Any, refuse: Refuse) -> None:
    fill(bench, range(2))
    bench.settle()
    service.specs.clear()
    service.fault = lambda request: (
        None if service.specs or request.method == "PUT" else refuse(404, "no run")
    )
    fill(bench, range(2, 4))
    bench.settle()
    assert service.arrivals[-3:] == [(2, "spec"), (2, 2), (2, 3)]


def test_a_run_that_stays_unknown_is_waited_for_not_hammered(
    bench: Any, service: Any, refuse: Refuse, caplog: pytest.LogCaptureFixture
) -> None:
    service.fault = lambda request: None if request.method == "PUT" else refuse(404, "no run 'run'")
    fill(bench, range(2))
    waits = [bench.sender.step() for _ in range(40)]
    assert sum(wait > 0 for wait in waits) >= 10
    assert bench.spool.rows == 2
    assert len(caplog.records) == 1


def test_after_an_outage_the_run_is_declared_again(bench: Any, service: Any) -> None:
    bench.settle()
    service.fault = lambda request: httpx.Response(503)
    fill(bench, range(1))
    bench.sender.step()
    service.fault = lambda request: None
    bench.settle()
    assert service.arrivals == [(2, "spec"), (2, "spec"), (2, 0)]


def test_a_directive_log_that_begins_anew_means_that_the_run_was_lost(bench: Any, service: Any) -> None:
    service.directive = {"generation": 3, "kind": "hold", "issued_at": 7.0}
    bench.settle()
    assert service.arrivals == [(2, "spec")]
    service.directive = {"generation": 0, "kind": "hold", "issued_at": 9.0}
    fill(bench, range(1))
    bench.settle()
    assert service.arrivals == [(2, "spec"), (2, 0), (2, "spec")]
    assert bench.sender.directive.generation == 0


def test_settings_that_the_service_refuses_do_not_keep_the_reports(
    bench: Any, service: Any, refuse: Refuse, caplog: pytest.LogCaptureFixture
) -> None:
    service.fault = lambda request: (
        refuse(422, "field 'new' is not known") if request.url.path.endswith("/run") else None
    )
    fill(bench, range(2))
    bench.settle()
    assert service.steps(2) == [0, 1]
    assert "refuses the run's settings: field 'new' is not known" in caplog.text


@pytest.mark.parametrize("status", [404, 409, 422])
def test_a_refused_ack_is_dropped_and_counted(status: int, bench: Any, service: Any, refuse: Refuse) -> None:
    service.fault = lambda request: refuse(status, "no") if request.url.path.endswith("/ack") else None
    bench.spool.add([Item("ack", 2, '{"attempt":2}', generation=4), report(1)])
    bench.settle()
    assert service.steps(2) == [1]
    assert (bench.ledger.refused, bench.spool.rows) == (1, 0)


def test_a_refused_finish_is_dropped_and_counted(bench: Any, service: Any, refuse: Refuse) -> None:
    service.fault = lambda request: refuse(409, "no") if request.url.path.endswith("/finish") else None
    bench.spool.add([Item("finish", 2, '{"attempt":2}')])
    bench.settle()
    assert (bench.ledger.refused, bench.spool.rows) == (1, 0)


def test_the_directive_comes_with_every_reply(bench: Any, service: Any) -> None:
    assert (bench.sender.directive.generation, bench.sender.directive.kind) == (0, DirectiveKind.HOLD)
    service.directive = {"generation": 1, "kind": "checkpoint", "issued_at": 2.0}
    bench.settle()
    assert bench.sender.directive.kind is DirectiveKind.CHECKPOINT
    service.directive = {"generation": 2, "kind": "switch_batch", "rollout_batch": 512, "issued_at": 3.0}
    fill(bench, range(1))
    bench.settle()
    assert bench.sender.directive.rollout_batch == 512


def test_when_idle_the_directive_is_asked_for_with_its_etag(bench: Any, service: Any) -> None:
    bench.settle()
    service.requests.clear()
    assert bench.sender.step() == 5.0
    bench.now = 4.0
    assert bench.sender.step() == 1.0
    assert not service.requests
    bench.now = 5.0
    service.directive = {"generation": 1, "kind": "stop", "issued_at": 2.0}
    assert bench.sender.step() == 5.0
    assert bench.sender.directive.kind is DirectiveKind.STOP
    bench.now = 10.0
    bench.sender.step()
    assert [request.headers.get("If-None-Match") for request in service.requests] == [None, '"1"']
    assert bench.sender.directive.kind is DirectiveKind.STOP


def test_an_idle_client_finds_out_that_the_run_was_lost(bench: Any, service: Any, refuse: Refuse) -> None:
    bench.settle()
    service.specs.clear()
    service.fault = lambda request: (
        None if service.specs or request.method == "PUT" else refuse(404, "no run")
    )
    bench.now = 6.0
    bench.settle()
    assert service.specs == {2: {"attempt": 2}}


def test_a_directive_of_a_newer_service_is_read_as_far_as_it_is_known(
    bench: Any, service: Any, caplog: pytest.LogCaptureFixture
) -> None:
    service.directive = {"generation": 1, "kind": "checkpoint", "issued_at": 2.0, "mood": "hopeful"}
    bench.settle()
    assert bench.sender.directive.generation == 1
    service.directive = {"generation": 2, "kind": "dance", "issued_at": 3.0}
    fill(bench, range(1))
    bench.settle()
    assert bench.sender.directive.generation == 1
    assert "a directive cannot be read" in caplog.text
    assert bench.spool.rows == 0


def test_after_the_finish_nothing_is_asked_any_more(bench: Any, service: Any) -> None:
    bench.spool.add([Item("finish", 2, '{"attempt":2}')])
    bench.settle()
    service.requests.clear()
    bench.now = 100.0
    assert bench.sender.step() == 5.0
    assert not service.requests


def test_what_nobody_foresaw_is_logged_and_tried_again(
    bench: Any, service: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(request: httpx.Request) -> httpx.Response:
        raise RuntimeError("a bug")

    service.fault = broken
    fill(bench, range(1))
    assert [bench.sender.step(), bench.sender.step()] == [0.5, 1.0]
    assert "sending failed and is tried again" in caplog.text
    service.fault = lambda request: None
    bench.settle()
    assert service.steps(2) == [0]
