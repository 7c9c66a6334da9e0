"""A store in memory and documents to put into it, each with every field at hand."""

from collections.abc import Sequence
from typing import Any

from twoclocks.wire import (
    Clocks,
    Directive,
    DirectiveRecord,
    Family,
    Forecast,
    ForecastStatus,
    Outlook,
    Progress,
    RunList,
    RunSpec,
    RunState,
    RunSummary,
    StepColumns,
)

NOW = 1_780_000_000.0
QUANTILES = {"0.05": 500.0, "0.1": 1_000.0, "0.5": 3_000.0, "0.9": 7_000.0, "0.95": 9_000.0}
THRESHOLD = {"0.05": 2_500.0, "0.1": 3_000.0, "0.5": 5_000.0, "0.9": 9_000.0, "0.95": 11_000.0}


class NoSuchRunError(Exception):
    """Shaped like the service's: it says what it is."""

    status = 404
    title = "Not found"

    def __init__(self, run: str) -> None:
        super().__init__(run)
        self.detail = f"no run {run!r}"


class Shelf:
    """The reading half of the store, over dictionaries."""

    def __init__(self) -> None:
        self.summaries: dict[str, RunSummary] = {}
        self.columns: dict[str, StepColumns] = {}
        self.made: dict[str, list[Forecast]] = {}
        self.records: dict[str, list[DirectiveRecord]] = {}
        self.known: list[Family] = []
        self.asked: list[int | None] = []

    def add(
        self,
        run: RunSummary,
        columns: StepColumns | None = None,
        forecasts: Sequence[Forecast] = (),
        records: Sequence[DirectiveRecord] = (),
    ) -> RunSummary:
        """Put a run on the shelf."""
        self.summaries[run.run] = run
        self.columns[run.run] = columns or steps(run.run, [])
        self.made[run.run] = list(forecasts)
        self.records[run.run] = list(records)
        return run

    def run(self, run: str, now: float) -> RunSummary:
        if run not in self.summaries:
            raise NoSuchRunError(run)
        return self.summaries[run]

    def runs(
        self, now: float, project: Any = None, state: Any = None, limit: int = 100, offset: int = 0
    ) -> RunList:
        return RunList(runs=list(self.summaries.values())[:limit], total=len(self.summaries))

    def forecasts(self, run: str) -> list[Forecast]:
        return self.made[run]

    def steps(
        self,
        run: str,
        from_step: Any = None,
        to_step: Any = None,
        attempt: Any = None,
        max_points: int | None = None,
    ) -> StepColumns:
        self.asked.append(max_points)
        return self.columns[run]

    def directives(self, run: str) -> list[DirectiveRecord]:
        return self.records[run]

    def families(self) -> list[Family]:
        return self.known


def outlook(**given: Any) -> Outlook:
    """What staying looks like."""
    base: dict[str, Any] = {
        "rollout_batch": 64,
        "learning_rate": 2e-4,
        "drift_per_sample": 1.0,
        "quantiles": dict(QUANTILES),
        "survive_budget": 0.3,
    }
    return Outlook(**{**base, **given})


def forecast(**given: Any) -> Forecast:
    """A calibrated forecast at 2,000 samples and a drift of 2,000."""
    base: dict[str, Any] = {
        "status": ForecastStatus.FORECAST,
        "reason": "collapse is expected in 3,000 samples",
        "step": 32,
        "samples": 2_000,
        "made_at": NOW,
        "family": "f",
        "collapsed_runs": 5,
        "censored_runs": 2,
        "clock": "rule",
        "drift": 2_000.0,
        "threshold": dict(THRESHOLD),
        "drift_used_ratio": 0.4,
        "stay": outlook(),
        "collapse_probability_next": 0.1,
        "collapse_probability_budget": 0.7,
        "horizon_samples": 1_000,
    }
    return Forecast(**{**base, **given})


def summary(run: str = "run-1", **given: Any) -> RunSummary:
    """A living run at 2,000 samples; `failure` and `progress` are its clocks, `onset` its collapse."""
    clocks = Clocks(
        run=run,
        samples=given.get("samples", 2_000),
        failure=given.pop("failure", None),
        progress=given.pop("progress", None),
        onset=given.pop("onset", None),
        notices=given.pop("notices", []),
    )
    base: dict[str, Any] = {
        "run": run,
        "project": "default",
        "family": "f",
        "state": RunState.RUNNING,
        "attempt": 1,
        "attempts": 1,
        "spec": RunSpec(budget_samples=10_000, window_samples=512),
        "step": 32,
        "samples": 2_000,
        "rollout_batch": 64,
        "learning_rate": 2e-4,
        "reports": 32,
        "created_at": NOW - 3_600,
        "last_report_at": NOW - 5,
        "revision": 7,
        "directive": Directive(generation=0),
        "clocks": clocks,
    }
    return RunSummary(**{**base, **given})


def learning(**given: Any) -> Progress:
    """A progress clock on its way to a target."""
    base: dict[str, Any] = {
        "reward": 0.4,
        "reward_low": 0.38,
        "reward_high": 0.42,
        "peak": 0.41,
        "target": 0.8,
        "remaining": {"0.1": 2_000.0, "0.5": 4_000.0, "0.9": 6_500.0},
        "per_sample": 1e-4,
    }
    return Progress(**{**base, **given})


def steps(run: str, rewards: Sequence[float | None], **given: Any) -> StepColumns:
    """Columns of one attempt at batch 64, a report every 4 s."""
    n = len(rewards)
    base: dict[str, Any] = {
        "run": run,
        "total": n,
        "attempt": [1] * n,
        "step": list(range(1, n + 1)),
        "samples": [64 * (i + 1) for i in range(n)],
        "rollout_batch": [64] * n,
        "learning_rate": [2e-4] * n,
        "time": [NOW - 4.0 * (n - i) for i in range(n)],
        "metrics": {"reward": list(rewards), **given.pop("metrics", {})} if n else {},
    }
    return StepColumns(**{**base, **given})
