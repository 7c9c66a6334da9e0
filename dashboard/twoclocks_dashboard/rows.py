"""The rows of the runs list, the most urgent first."""

from collections.abc import Sequence
from dataclasses import dataclass

from twoclocks.wire import RunSummary
from twoclocks_dashboard import dials, numbers, verdict
from twoclocks_dashboard.dials import Dial
from twoclocks_dashboard.facts import samples_left
from twoclocks_dashboard.source import Source
from twoclocks_dashboard.spark import POINTS, Spark, Sparks, spark
from twoclocks_dashboard.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Row:
    """One run in the list."""

    run: RunSummary
    verdict: Verdict
    failure: Dial
    progress: Dial
    spark: Spark
    left: str
    interval: str
    reward: str
    order: str


def rows(source: Source, runs: Sequence[RunSummary], sparks: Sparks, now: float) -> list[Row]:
    """The runs as rows, the most urgent first; among equals the one with the least left, then the newest."""
    made = [_row(source, run, sparks, now) for run in runs]
    return sorted(made, key=lambda row: (row.verdict.urgency, _sooner(row.run), -row.run.created_at))


def _sooner(run: RunSummary) -> float:
    middle = samples_left(run).get("0.5")
    return middle if middle is not None else float("inf")


def _row(source: Source, run: RunSummary, sparks: Sparks, now: float) -> Row:
    def draw() -> Spark:
        columns = source.steps(run.run, max_points=POINTS)
        return spark(columns.samples, columns.metrics.get("reward", []))

    empty = Spark("", None, (), None, None)
    left, clock = samples_left(run), run.clocks.progress
    pending = run.directive_pending
    return Row(
        run=run,
        verdict=verdict.judge(run, now),
        failure=dials.failure(run),
        progress=dials.progress(run),
        spark=sparks.get(run.run, run.revision, now, draw) if run.reports else empty,
        left=numbers.about(left.get("0.5")) if left else "",
        interval=numbers.between(left.get("0.1"), left.get("0.9")) if left and any(left.values()) else "",
        reward=numbers.reward(clock.reward) if clock and clock.reward is not None else "",
        order=verdict.order(run.directive) if pending else "",
    )
