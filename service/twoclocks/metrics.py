"""Prometheus: every run's clocks read from the store at scrape, and the service's own counters.

Runs that ended are not exported, nor is anything of a forecast that may not page (uncalibrated,
contradicted): an alert can only rise from a calibrated one. What is not known is absent, never 0.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Annotated

from fastapi import APIRouter, Header, Response
from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from twoclocks.store import Store
from twoclocks.wire import Forecast, ForecastStatus, IngestReply, RunSummary

LABELS = ("run", "project")
QUANTILES = ("0.05", "0.5", "0.95")


class RunCollector(Collector):
    """Reads the store at each scrape and holds nothing."""

    def __init__(self, store: Store, clock: Callable[[], float]) -> None:
        self._store, self._clock = store, clock

    def describe(self) -> Iterable[Metric]:
        """Return no names, so that registering does not scrape."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield one family a metric, with one sample for each active run that has it."""
        runs = self._store.active(self._clock())
        yield _counter(
            "samples", "Responses generated since the run began.", runs, lambda run: float(run.samples)
        )
        yield _gauge("reward", "Smoothed reward of the run.", runs, _reward)
        yield _gauge("drift_used_ratio", "Drift over the median collapse threshold.", runs, _drift_used)
        yield _remaining(runs)
        yield _probability(runs)
        yield _gauge(
            "progress_remaining_samples",
            "Responses to the target reward, median; +Inf never.",
            runs,
            _to_target,
        )
        yield _gauge(
            "critical_batch_responses",
            "Rollout batch beyond which progress per response falls by a fifth.",
            runs,
            lambda run: run.clocks.critical_batch,
        )
        yield _gauge(
            "last_report_timestamp_seconds",
            "When the run last reported, Unix seconds.",
            runs,
            lambda run: run.last_report_at,
        )
        yield _gauge(
            "directive_pending",
            "1 while a directive waits for the trainer, else 0.",
            runs,
            lambda run: float(run.directive_pending),
        )
        yield _gauge(
            "collapsed",
            "1 once the collapse's onset was detected, else 0.",
            runs,
            lambda run: float(_collapsed(run)),
        )


class ServiceMetrics:
    """The counters of one app in its own registry, with the collector of its runs."""

    def __init__(self, store: Store, clock: Callable[[], float]) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(RunCollector(store, clock))
        self.requests = Counter(
            "twoclocks_http_requests",
            "HTTP requests answered.",
            ["method", "route", "status"],
            registry=self.registry,
        )
        self.seconds = Histogram(
            "twoclocks_http_request_duration_seconds",
            "Time to the end of the answer; the time a long poll waits is in it, event streams are not.",
            ["route"],
            registry=self.registry,
            buckets=(0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10, 60),
        )
        self.reports = Counter(
            "twoclocks_ingest_reports",
            "Step reports received, by what became of them.",
            ["result"],
            registry=self.registry,
        )
        self.errors = Counter(
            "twoclocks_errors",
            "Requests that failed by our fault or the database's.",
            ["kind"],
            registry=self.registry,
        )
        for result in ("accepted", "duplicate", "refused"):
            self.reports.labels(result)
        for kind in ("internal", "unavailable"):
            self.errors.labels(kind)

    def ingested(self, reply: IngestReply) -> None:
        """Count what became of a batch."""
        self.reports.labels("accepted").inc(reply.accepted)
        self.reports.labels("duplicate").inc(reply.duplicates)
        self.reports.labels("refused").inc(len(reply.refused))

    def failed(self, kind: str) -> None:
        """Count a request that failed by our fault ("internal") or the database's ("unavailable")."""
        self.errors.labels(kind).inc()


def metrics_router(metrics: ServiceMetrics) -> APIRouter:
    """`/metrics`, in the format that the scraper asks for."""
    router = APIRouter(tags=["operations"])

    @router.get("/metrics", response_class=Response)
    def prometheus(accept: Annotated[str, Header()] = "") -> Response:
        """Everything for Prometheus."""
        encode, content_type = choose_encoder(accept)
        return Response(encode(metrics.registry), headers={"Content-Type": content_type})

    return router


def _labels(run: RunSummary) -> list[str]:
    return [run.run, run.project]


def _gauge(
    name: str, text: str, runs: Iterable[RunSummary], read: Callable[[RunSummary], float | None]
) -> Metric:
    family = GaugeMetricFamily(f"twoclocks_run_{name}", text, labels=LABELS)
    for run in runs:
        value = read(run)
        if value is not None:
            family.add_metric(_labels(run), value)
    return family


def _counter(name: str, text: str, runs: Iterable[RunSummary], read: Callable[[RunSummary], float]) -> Metric:
    family = CounterMetricFamily(f"twoclocks_run_{name}", text, labels=LABELS)
    for run in runs:
        family.add_metric(_labels(run), read(run))
    return family


def _remaining(runs: Iterable[RunSummary]) -> Metric:
    # A summary, not a gauge: Prometheus reserves the label `quantile` for summaries, and promtool checks it.
    name = "twoclocks_run_collapse_remaining_samples"
    family = SummaryMetricFamily(
        name, "Responses to collapse at the present setting; +Inf never.", labels=LABELS
    )
    for run in runs:
        forecast = _paging(run)
        for quantile in QUANTILES if forecast and forecast.stay else ():
            assert forecast is not None
            assert forecast.stay is not None
            value = forecast.stay.quantiles.get(quantile, math.nan)
            if value is None or not math.isnan(value):
                labels = {**dict(zip(LABELS, _labels(run), strict=True)), "quantile": quantile}
                family.add_sample(name, labels, math.inf if value is None else value)
    return family


def _probability(runs: Iterable[RunSummary]) -> Metric:
    family = GaugeMetricFamily(
        "twoclocks_run_collapse_probability",
        "Probability of collapse within the horizon: to the budget's end, or within the next few windows.",
        labels=(*LABELS, "horizon"),
    )
    for run in runs:
        forecast = _paging(run)
        if forecast is None:
            continue
        for horizon, value in (
            ("budget", forecast.collapse_probability_budget),
            ("next", forecast.collapse_probability_next),
        ):
            if value is not None:
                family.add_metric([*_labels(run), horizon], value)
    return family


def _paging(run: RunSummary) -> Forecast | None:
    forecast = run.clocks.failure
    return forecast if forecast is not None and forecast.status is ForecastStatus.FORECAST else None


def _reward(run: RunSummary) -> float | None:
    return run.clocks.progress.reward if run.clocks.progress else None


def _drift_used(run: RunSummary) -> float | None:
    forecast = _paging(run)
    return forecast.drift_used_ratio if forecast else None


def _to_target(run: RunSummary) -> float | None:
    progress = run.clocks.progress
    if progress is None or "0.5" not in progress.remaining:
        return None
    median = progress.remaining["0.5"]
    return math.inf if median is None else median


def _collapsed(run: RunSummary) -> bool:
    return run.clocks.onset is not None
