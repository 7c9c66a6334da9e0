"""The adapter to the client: what a service is told of a run, and that its absence stops nothing."""

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from twoclocks.client import NullMonitor
from twoclocks.wire import RunSpec
from twoclocks_trainer import reporter
from twoclocks_trainer.config import ConfigError, TrainConfig
from twoclocks_trainer.loop import train
from twoclocks_trainer.reporter import Reporter, ScheduleMonitor, open_metrics, open_monitor

Make = Callable[..., TrainConfig]


def test_an_unreachable_service_never_stops_training(
    small: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TWOCLOCKS_SPOOL_DIR", str(tmp_path / "spool"))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, not listening: every connection is refused
        monkeypatch.setattr(Reporter, "close", lambda self: self.monitor.close(0.5))
        result = train(small(monitor=f"http://127.0.0.1:{taken.getsockname()[1]}"))
    assert (result.state, result.steps, result.delivered) == ("finished", 5, False)


def test_the_service_is_told_what_trains(small: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    made: dict[str, Any] = {}

    class Recorder(NullMonitor):
        def __init__(self, url: str, run: str, **given: Any) -> None:
            super().__init__()
            made.update(url=url, run=run, **given)

    monkeypatch.setattr(reporter, "Monitor", Recorder)
    config = small(
        monitor="http://127.0.0.1:1", policy="act", candidates=[{"rollout_batch": 64}], clip_high=0.3, seed=4
    )
    open_monitor(config, model="tiny", parameters=84_000, samples=0, baseline_reward=0.2)
    assert (made.pop("url"), made.pop("run")) == ("http://127.0.0.1:1", "small")
    spec = RunSpec.model_validate(made)
    assert (spec.config.model, spec.config.parameters) == ("tiny", 84_000)
    assert (spec.config.task, spec.config.updates_per_batch, spec.config.seed) == ("sort", 2, 4)
    assert (spec.config.clip_low, spec.config.clip_high, spec.baseline_reward) == (None, 0.3, 0.2)
    assert (spec.policy, spec.candidates[0].rollout_batch, spec.budget_samples) == ("act", 64, 80)


def test_a_wrong_address_is_one_line(small: Make) -> None:
    with pytest.raises(ConfigError, match="the monitor cannot be set up: url"):
        open_monitor(small(monitor="nowhere"), model="tiny", parameters=1, samples=0, baseline_reward=None)


def test_a_schedule_takes_up_where_a_resumed_run_is(small: Make) -> None:
    switches = [{"at_samples": 100, "rollout_batch": 32}, {"at_samples": 50, "rollout_batch": 64}]
    config = small(policy="act", schedule=switches)
    monitor = ScheduleMonitor(config, samples=0)
    assert monitor.directive.generation == 0
    monitor.report(samples=50)
    assert (monitor.directive.generation, monitor.directive.rollout_batch) == (1, 64)
    resumed = ScheduleMonitor(config, samples=120)
    assert (resumed.directive.generation, resumed.directive.rollout_batch) == (2, 32)


def test_a_metrics_file_that_breaks_is_given_up(small: Make, caplog: pytest.LogCaptureFixture) -> None:
    told: list[Any] = []
    sink = Reporter(NullMonitor(), open_metrics(small(metrics_file="/dev/full")), told.append)
    report = {"step": 1, "samples": 8, "rollout_batch": 8, "learning_rate": 1e-3, "reward": 0.5}
    sink.report(report)
    sink.report(report)
    assert told == [report, report]
    assert caplog.text.count("the metrics file is given up") == 1
