import inspect
import logging
import math
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from twoclocks.client import Monitor, NullMonitor
from twoclocks.wire import DirectiveKind, RunConfig, RunSpec

Make = Callable[..., Monitor]


def test_reports_acks_and_finish_arrive_in_the_order_made(make: Make, service: Any, give: Any) -> None:
    monitor = make(attempt=3)
    for step in range(5):
        give(monitor, step, entropy=0.7)
    monitor.ack(1, "received", step=4)
    give(monitor, 5)
    monitor.ack(1, "applied", step=5, rollout_batch=64, learning_rate=1e-5)
    monitor.finish()
    assert monitor.close()
    steps = [(3, step) for step in range(5)]
    assert service.arrivals == [(3, "spec"), *steps, (3, "ack"), (3, 5), (3, "ack"), (3, "finish")]
    assert service.acks[1][0] == 1
    assert service.acks[1][1]["rollout_batch"] == 64
    assert (monitor.delivered, monitor.pending, monitor.refused, monitor.shed) == (6, 0, 0, 0)


def test_the_spec_says_all_that_was_given(make: Make, service: Any) -> None:
    monitor = make(
        config={"model": "qwen", "betas": (0.9, 0.95), "mood": "calm"},
        project="p",
        family="f",
        attempt=7,
        budget_samples=1_000,
        target_reward=0.9,
        policy="act",
        risk=0.2,
        candidates=[{"rollout_batch": 512}],
        schedule=[{"at_samples": 10, "rollout_batch": 64, "rule": "sqrt"}],
        heartbeat_seconds=60.0,
        window_samples=100,
        baseline_reward=0.1,
    )
    monitor.finish()
    assert monitor.close()
    spec = RunSpec.model_validate(service.specs[7])
    assert spec.config.model_extra == {"mood": "calm"}
    assert spec.model_dump(exclude={"config"}, mode="json") == {
        "project": "p",
        "family": "f",
        "attempt": 7,
        "target_reward": 0.9,
        "budget_samples": 1_000,
        "policy": "act",
        "risk": 0.2,
        "candidates": [{"rollout_batch": 512, "rule": "held", "learning_rate": None}],
        "schedule": [{"at_samples": 10, "rollout_batch": 64, "rule": "sqrt", "learning_rate": None}],
        "heartbeat_seconds": 60.0,
        "window_samples": 100,
        "baseline_reward": 0.1,
    }


def test_a_config_may_be_the_wires_model(make: Make, service: Any) -> None:
    monitor = make(config=RunConfig(model="qwen"), attempt=1)
    monitor.finish()
    monitor.close()
    assert service.specs[1]["config"]["model"] == "qwen"


def test_nan_and_infinity_arrive_and_what_was_not_measured_does_not(
    make: Make, service: Any, give: Any
) -> None:
    monitor = make(attempt=1)
    give(monitor, 0, reward=math.nan, loss=math.inf, entropy=None)
    assert monitor.close()
    stored = service.reports[(1, 0)]
    assert (stored["reward"], stored["loss"]) == ("NaN", "Infinity")
    assert "entropy" not in stored


def test_a_report_is_stamped_with_its_time_unless_it_brings_one(make: Make, service: Any, give: Any) -> None:
    monitor = make(attempt=1)
    before = time.time()
    give(monitor, 0)
    give(monitor, 1, time=5.0)
    assert monitor.close()
    assert before <= service.reports[(1, 0)]["time"] <= time.time()
    assert service.reports[(1, 1)]["time"] == 5.0


def test_an_attempt_left_out_is_milliseconds_and_always_grows(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = int(time.time() * 1000)
    first = make()
    assert before <= first.attempt <= time.time() * 1000
    monkeypatch.setattr(time, "time", lambda: 1_000.0)  # the clock was set back
    assert make().attempt == first.attempt + 1


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"reward": None}, "reward is missing and every report needs it; give float('nan')"),
        ({"learning_rate": "fast"}, "learning_rate is 'fast'; give a number"),
        ({"loss": [1.0]}, "loss is [1.0]; give a number"),
        ({"step": -1}, "step: Input should be greater than or equal to 0, got -1"),
        ({"step": 1.5}, "step: Input should be a valid integer"),
        ({"samples": math.nan}, "samples: Input should be a finite number"),
        ({"rollout_batch": 0}, "rollout_batch: Input should be greater than or equal to 1"),
        ({"learning_rate": math.inf}, "learning_rate: Input should be a finite number"),
        ({"a metric; drop": 1.0}, "metric name 'a metric; drop'"),
        ({f"m{i}": 1.0 for i in range(300)}, "300 metrics in one report; at most 256"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_malformed_report_is_one_line_and_nothing_else(
    values: dict[str, Any], says: str, make: Make, service: Any, give: Any, caplog: pytest.LogCaptureFixture
) -> None:
    monitor = make(attempt=1)
    give(monitor, 0, **values)
    give(monitor, 1)
    assert monitor.close()
    assert service.steps(1) == [1]
    assert (monitor.delivered, monitor.refused) == (1, 1)
    assert len(caplog.records) == 1
    assert says in caplog.text
    assert "\n" not in caplog.records[0].message


def test_a_report_by_position_is_one_line_too(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    monitor = make()
    monitor.report({"step": 1})
    monitor.report(self=1.0, positional=2.0)
    assert monitor.refused == 2
    assert "give values by name, report(step=..., samples=..., ...)" in caplog.text
    assert "step is missing" in caplog.text


def test_malformed_acks_and_finishes_are_one_line(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    monitor = make()
    monitor.ack(1, "done")
    monitor.ack("x", "applied")  # type: ignore[arg-type]
    monitor.ack(1, "applied", learning_rate=-1.0)
    monitor.finish("gone")
    assert monitor.refused == 4
    assert "state: Input should be 'received', 'applied', 'rejected' or 'expired', got 'done'" in caplog.text
    assert "learning_rate: Input should be greater than or equal to 0, got -1.0" in caplog.text


class Hostile:
    """Fails whatever it is asked."""

    def __init__(self, error: type[Exception]) -> None:
        self.error = error

    def __float__(self) -> float:
        raise self.error("no")

    def __index__(self) -> int:
        raise self.error("no")

    def __repr__(self) -> str:
        raise self.error("no")

    def __getattr__(self, name: str) -> Any:
        raise self.error("no")


scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.just(10**5000),
    st.floats(),
    st.complex_numbers(),
    st.text(max_size=5),
    st.binary(max_size=5),
    st.decimals(),
    st.lists(st.floats(), max_size=2),
    st.sampled_from([ValueError, RuntimeError, AttributeError, OverflowError, RecursionError]).map(Hostile),
)
names = st.sampled_from(["step", "samples", "rollout_batch", "learning_rate", "reward", "updates", "time"])


@pytest.fixture
def busy(make: Make, caplog: pytest.LogCaptureFixture) -> Monitor:
    caplog.set_level(logging.CRITICAL, logger="twoclocks.client")
    return make("hostile")


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    values=st.dictionaries(names | st.text(max_size=8), scalars, max_size=8),
    position=st.lists(scalars, max_size=1),
)
def test_report_never_raises(values: dict[str, Any], position: list[Any], busy: Monitor) -> None:
    before = busy.delivered + busy.refused + busy.pending
    busy.report(*position, **values)
    assert busy.delivered + busy.refused + busy.pending >= before


def test_after_hostile_reports_good_ones_still_arrive(busy: Monitor, service: Any, give: Any) -> None:
    for error in (ValueError, AttributeError, RecursionError):
        give(busy, 0, loss=Hostile(error), reward=10**5000)
    give(busy, 10**5000)
    give(busy, 1)
    assert busy.close()
    assert service.steps(busy.attempt) == [1]
    assert busy.refused == 4


def test_threads_report_at_once_and_every_report_arrives_once(make: Make, service: Any, give: Any) -> None:
    monitor = make(attempt=1)

    def work(base: int) -> None:
        for step in range(base, base + 200):
            give(monitor, step)

    threads = [threading.Thread(target=work, args=(1_000 * each,)) for each in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert monitor.close(60)
    assert len(service.reports) == service.received == monitor.delivered == 1_000


def test_the_directive_is_known_without_asking(make: Make, service: Any, give: Any, until: Any) -> None:
    stalled = threading.Event()
    service.fault = lambda request: stalled.wait(30) and None
    monitor = make()
    assert (monitor.directive.generation, monitor.directive.kind) == (0, DirectiveKind.HOLD)
    service.directive = {"generation": 1, "kind": "switch_batch", "rollout_batch": 512, "learning_rate": 1e-6}
    stalled.set()
    until(lambda: monitor.directive.generation == 1)
    assert (monitor.directive.rollout_batch, monitor.directive.learning_rate) == (512, 1e-6)
    service.directive = {"generation": 2, "kind": "stop", "issued_at": 3.0}
    give(monitor, 0)
    until(lambda: monitor.directive.kind is DirectiveKind.STOP)


def test_an_idle_monitor_hears_of_a_directive(make: Make, service: Any, until: Any) -> None:
    monitor = make(poll_seconds=0.02)
    until(lambda: len(service.requests) > 3)
    service.directive = {"generation": 4, "kind": "stop", "issued_at": 3.0}
    until(lambda: monitor.directive.generation == 4)


def test_a_report_after_close_is_counted_and_told_once(
    make: Make, service: Any, give: Any, caplog: pytest.LogCaptureFixture
) -> None:
    monitor = make(attempt=1)
    give(monitor, 0)
    assert monitor.close()
    for step in range(1, 4):
        give(monitor, step)
    monitor.ack(1, "applied")
    assert service.steps(1) == [0]
    assert (monitor.shed, monitor.pending) == (4, 0)
    assert [record.message for record in caplog.records] == [
        "a report made after close is not taken; close the monitor last"
    ]
    assert monitor.close()


def test_close_without_a_service_says_where_the_reports_wait_and_the_next_monitor_sends_them(
    make: Make, service: Any, give: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    service.fault = lambda request: httpx.Response(503)
    first = make(attempt=1)
    for step in range(3):
        give(first, step)
    first.finish("failed", "out of memory")
    assert not first.close(0.0)
    assert not first.close(0.0)
    (spool,) = (tmp_path / "spool").iterdir()
    left = [record.message for record in caplog.records if "not delivered" in record.message]
    assert left == [
        f"4 reports are not delivered; they wait in {spool} and are sent by the next Monitor of run 'run'"
    ]
    service.fault = lambda request: None
    second = make(attempt=2)
    assert second.pending >= 4 or service.reports
    assert "4 reports of an earlier start of run 'run' wait in" in caplog.text
    give(second, 1)
    assert second.close()
    assert service.arrivals == [(1, "spec"), (1, 0), (1, 1), (1, 2), (1, "finish"), (2, "spec"), (2, 1)]
    assert service.finishes[0]["reason"] == "out of memory"
    assert second.delivered == 4


def test_close_tries_at_once_whatever_it_was_waiting_for(
    make: Make, service: Any, give: Any, until: Any
) -> None:
    service.fault = lambda request: httpx.Response(503, headers={"Retry-After": "250"})
    monitor = make()
    give(monitor, 0)
    until(lambda: bool(service.requests))
    service.fault = lambda request: None
    assert monitor.close(60)
    assert monitor.delivered == 1


def test_without_a_disk_reports_wait_in_memory_and_what_is_left_is_counted_as_lost(
    make: Make, service: Any, give: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    monitor = make(attempt=1, spool_dir=tmp_path / "file" / "below")
    give(monitor, 0)
    assert monitor.close()
    assert service.steps(1) == [0]
    service.fault = lambda request: httpx.Response(503)
    monitor = make(attempt=2, spool_dir=tmp_path / "file" / "below")
    give(monitor, 0)
    assert not monitor.close(0.0)
    assert monitor.shed == 1
    assert "1 reports were not delivered and are lost" in caplog.text


@pytest.mark.parametrize(
    ("error", "state", "reason"),
    [
        (None, "finished", None),
        (ValueError("loss is NaN"), "failed", "ValueError: loss is NaN"),
        (KeyboardInterrupt(), "stopped", "KeyboardInterrupt: KeyboardInterrupt"),
    ],
    ids=["well", "error", "interrupt"],
)
def test_leaving_the_block_finishes_the_run(
    error: BaseException | None, state: str, reason: str | None, make: Make, service: Any, give: Any
) -> None:
    def train() -> None:
        with make(attempt=1) as monitor:
            give(monitor, 0)
            if error:
                raise error

    if error:
        with pytest.raises(type(error)):
            train()
    else:
        train()
    assert service.finishes == [{"state": state, "attempt": 1, "reason": reason}]
    assert service.steps(1) == [0]


def test_a_finish_given_in_the_block_is_the_one_that_counts(make: Make, service: Any) -> None:
    with make(attempt=1) as monitor:
        monitor.finish("stopped", "directive 3")
    assert [end["reason"] for end in service.finishes] == ["directive 3"]


def test_a_signal_handler_may_finish_and_close(make: Make, service: Any, give: Any) -> None:
    monitor = make(attempt=1)

    def stop(number: int, frame: object) -> None:
        monitor.finish("stopped", "preempted")
        monitor.close()

    before = signal.signal(signal.SIGUSR1, stop)
    try:
        for step in range(200):
            give(monitor, step)
            if step == 100:
                os.kill(os.getpid(), signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert service.finishes[0]["reason"] == "preempted"
    assert service.steps(1) == list(range(101))
    assert monitor.shed == 99


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_in_a_forked_child_nothing_is_taken_and_nothing_hangs(make: Make, service: Any, give: Any) -> None:
    monitor = make(attempt=1)
    give(monitor, 0)
    locked, released = threading.Event(), threading.Event()

    def hold() -> None:
        with monitor._ledger._lock:
            locked.set()
            released.wait(60)

    holder = threading.Thread(target=hold)
    holder.start()
    locked.wait(60)
    child = os.fork()
    if child == 0:
        signal.alarm(30)
        give(monitor, 1)
        monitor.finish("failed")
        os._exit(0 if monitor.close() and monitor.shed == 2 else 1)
    released.set()
    holder.join()
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    give(monitor, 2)
    assert monitor.close()
    assert service.steps(1) == [0, 2]
    assert not service.finishes


def test_the_token_comes_from_the_environment_unless_given(
    make: Make, service: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TWOCLOCKS_TOKEN", "from-environment")
    for token in (None, "given"):
        monitor = make(token=token)
        monitor.finish()
        monitor.close()
    sent = {request.headers["Authorization"] for request in service.requests}
    assert sent == {"Bearer from-environment", "Bearer given"}


def test_the_null_monitor_has_the_same_shape() -> None:
    def shape(kind: type) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, member in inspect.getmembers(kind):
            if not name.startswith("_") or name in ("__enter__", "__exit__"):
                found[name] = "property" if isinstance(member, property) else str(inspect.signature(member))
        return found

    assert shape(NullMonitor) == shape(Monitor)


def test_the_null_monitor_does_nothing_whatever_it_is_made_with() -> None:
    with NullMonitor("http://nowhere", "run", config={}, attempt=4) as monitor:
        monitor.report({"any": "thing"}, step="x", other=[])  # type: ignore[arg-type]
        monitor.ack(1, "applied")
        monitor.finish()
        assert monitor.attempt == 4
        assert monitor.directive.kind is DirectiveKind.HOLD
    assert NullMonitor().close()
    assert (monitor.pending, monitor.delivered, monitor.refused, monitor.shed) == (0, 0, 0, 0)
