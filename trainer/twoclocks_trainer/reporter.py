"""From the loop to whoever listens: the monitor, a file of metrics, a callback.

Setting up may raise, with one line; reporting never does.
"""

import json
import logging
import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Protocol, TextIO

from twoclocks.client import Monitor, NullMonitor
from twoclocks.wire import Directive, DirectiveKind, Policy
from twoclocks_trainer.config import OFF, ConfigError, TrainConfig

Report = Mapping[str, float | int | None]

log = logging.getLogger(__name__)


class MonitorLike(Protocol):
    """What the loop needs of a monitor; twoclocks.client has two."""

    @property
    def directive(self) -> Directive:
        """The latest directive, without any network."""

    def report(self, **values: Any) -> None:
        """Take one step's report."""

    def ack(
        self,
        generation: int,
        state: str,
        *,
        step: int | None = None,
        rollout_batch: int | None = None,
        learning_rate: float | None = None,
        reason: str | None = None,
    ) -> None:
        """Take what became of a directive."""

    def finish(self, state: str = "finished", reason: str | None = None) -> None:
        """Take the run's end."""

    def close(self, timeout: float = 10.0) -> bool:
        """Deliver what waits; True where everything was delivered."""


class ScheduleMonitor(NullMonitor):
    """No service: the configuration's own schedule takes the place of its directives."""

    def __init__(self, config: TrainConfig, samples: int) -> None:
        super().__init__()
        self._samples = samples
        self._issued = [(0, super().directive)]
        rollout_batch, rate = config.rollout_batch, config.learning_rate
        for generation, switch in enumerate(sorted(config.schedule, key=lambda s: s.at_samples), start=1):
            scale = math.sqrt(switch.rollout_batch / rollout_batch) if switch.rule == "sqrt" else 1.0
            rollout_batch, rate = switch.rollout_batch, switch.learning_rate or rate * scale
            directive = Directive(
                generation=generation,
                kind=DirectiveKind.SWITCH_BATCH,
                policy=Policy.ACT,
                rollout_batch=rollout_batch,
                learning_rate=rate,
                reason=f"scheduled at {switch.at_samples} samples",
            )
            self._issued.append((switch.at_samples, directive))

    def report(self, /, *positional: object, **report: Any) -> None:
        """Note how far the run has come."""
        self._samples = report["samples"]

    @property
    def directive(self) -> Directive:
        """The latest switch that is due."""
        return [directive for due, directive in self._issued if due <= self._samples][-1]


def open_monitor(
    config: TrainConfig, *, model: str, parameters: int, samples: int, baseline_reward: float | None
) -> MonitorLike:
    """Return the monitor of a run now at `samples`; raises ConfigError for a wrong address or name."""
    if config.monitor == OFF:
        return ScheduleMonitor(config, samples)
    trained = {
        "model": model,
        "task": config.task,
        "algorithm": "grpo",
        "optimizer": "adamw",
        "group_size": config.group_size,
        "parameters": parameters,
        "seed": config.seed,
    }
    same = ("betas", "weight_decay", "max_grad_norm", "updates_per_batch", "epochs", "clip_low", "clip_high")
    more = ("kl_coefficient", "temperature", "verdict_noise", "warmup_samples", "std_advantages")
    try:
        return Monitor(
            config.monitor,
            config.run,
            config=trained | {name: getattr(config, name) for name in (*same, *more)},
            project=config.project,
            family=config.family,
            budget_samples=config.budget_samples,
            target_reward=config.target_reward,
            policy=config.policy,
            risk=config.risk,
            candidates=config.candidates,
            schedule=config.schedule,
            heartbeat_seconds=config.heartbeat_seconds,
            window_samples=config.window_samples,
            baseline_reward=baseline_reward,
        )
    except (ValueError, OSError) as error:
        raise ConfigError(f"the monitor cannot be set up: {error}") from error


def open_metrics(config: TrainConfig) -> TextIO | None:
    """Open the metrics file to append to, if there is one; raises ConfigError where it cannot be written."""
    try:
        return config.metrics_file.open("a") if config.metrics_file else None
    except OSError as error:
        raise ConfigError(f"--metrics-file cannot be written: {error}") from error


class Reporter:
    """Hands each report to the monitor, the metrics file and the callback, and keeps the run's events."""

    def __init__(
        self, monitor: MonitorLike, metrics: TextIO | None, on_report: Callable[[Report], None] | None
    ) -> None:
        self.monitor = monitor
        self.events: list[dict[str, Any]] = []
        self._file = metrics
        self._on_report = on_report

    def report(self, report: Report) -> None:
        """Pass one step's report on; what was not measured is None."""
        self.monitor.report(**report)
        self._write(report)
        if self._on_report:
            self._on_report(report)

    def event(self, name: str, step: int, text: str) -> None:
        """Record something that happened to the run, and say it in one line."""
        event = {"event": name, "step": step, "text": text}
        self.events.append(event)
        log.warning("step %d: %s", step, text)
        self._write(event)

    def count(self, name: str) -> int:
        """How often something has happened."""
        return sum(event["event"] == name for event in self.events)

    def close(self, timeout: float = 10.0) -> bool:
        """Close the file and the monitor; True where every report was delivered."""
        if self._file:
            self._file.close()
        return self.monitor.close(timeout)

    def _write(self, line: Mapping[str, Any]) -> None:
        if self._file is None:
            return
        try:
            self._file.write(json.dumps(line) + "\n")
            self._file.flush()
        except OSError as error:
            with suppress(OSError):
                self._file.close()
            self._file = None
            log.warning("the metrics file is given up, training goes on: %s", error)
