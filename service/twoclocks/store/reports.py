"""Reports as rows and back, exactly: NaN and infinities return as they came, and missing stays missing."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from pydantic import ConfigDict, TypeAdapter
from sqlalchemy import and_, or_, select
from sqlalchemy.orm import Session

from twoclocks.store.tables import Attempt, Step
from twoclocks.wire import CANONICAL_METRICS, StepColumns, StepReport

MOST_METRICS = 1_000
"""Metrics that one answer holds as columns. A trainer that makes up a name at each step would otherwise ask
for names x steps cells; the canonical and the oftenest reported ones are kept, and the rest is counted."""
FIELDS = ("step", "samples", "rollout_batch", "learning_rate", "updates", "epochs", "time")
METRICS = TypeAdapter(dict[str, float], config=ConfigDict(ser_json_inf_nan="strings"))
JOINED = and_(Attempt.run_id == Step.run_id, Attempt.attempt == Step.attempt)
LIVE = or_(Attempt.live_until.is_(None), Step.step < Attempt.live_until)


def encode(report: StepReport) -> dict[str, Any]:
    """The report as column values. Metrics are sorted, so that equal reports have equal rows."""
    text = METRICS.dump_json(dict(sorted(report.metrics.items()))).decode()
    return {**{name: getattr(report, name) for name in FIELDS}, "metrics": text}


def decode(row: Step) -> StepReport:
    """The report that was stored in this row."""
    return from_columns(columns_of(row))


def from_columns(values: Mapping[str, Any]) -> StepReport:
    """The report of column values as `encode` makes them."""
    return StepReport.model_validate(
        {**{name: values[name] for name in FIELDS}, **METRICS.validate_json(values["metrics"])}
    )


def columns_of(row: Step) -> dict[str, Any]:
    """The stored row as `encode` made it, for comparing: the same NaN is the same text."""
    return {name: getattr(row, name) for name in (*FIELDS, "metrics")}


def live_reports(session: Session, run_id: int) -> Iterator[tuple[int, StepReport, str]]:
    """The run's live reports in step order: attempt, report, and the text of the attempt's spec.

    Attempts lie one after the other on the live path (tables.Attempt), so the key's order is step order.
    """
    query = select(Step, Attempt.spec).join(Attempt, JOINED).where(Step.run_id == run_id, LIVE)
    ordered = query.order_by(Step.attempt, Step.step).execution_options(yield_per=1_000)
    for row in session.execute(ordered):
        yield row[0].attempt, decode(row[0]), row[1]


def stored(session: Session, run_id: int, attempt: int, steps: Iterable[int]) -> dict[int, Step]:
    """The rows that exist under these keys, by step."""
    query = select(Step).where(
        Step.run_id == run_id, Step.attempt == attempt, Step.step.in_(sorted(set(steps)))
    )
    return {row.step: row for row in session.scalars(query)}


def read_columns(
    session: Session,
    run: str,
    run_id: int,
    *,
    from_step: int | None,
    to_step: int | None,
    attempt: int | None,
    max_points: int | None,
) -> StepColumns:
    """Reports with from_step <= step <= to_step as columns: live ones, or everything of one attempt.

    With `max_points`, at most about that many rows, chosen so that no extreme of the reward is lost.
    """
    conditions = [Step.run_id == run_id, LIVE if attempt is None else Step.attempt == attempt]
    if from_step is not None:
        conditions.append(Step.step >= from_step)
    if to_step is not None:
        conditions.append(Step.step <= to_step)
    query = select(Step).join(Attempt, JOINED).where(*conditions).order_by(Step.attempt, Step.step)
    rows = list(session.scalars(query))
    measured = [METRICS.validate_json(row.metrics) for row in rows]
    kept = thin([metrics["reward"] for metrics in measured], max_points) if max_points else range(len(rows))
    counts = Counter(name for index in kept for name in measured[index])
    ranked = sorted(counts, key=lambda name: (name not in CANONICAL_METRICS, -counts[name], name))
    names = sorted(ranked[:MOST_METRICS])
    return StepColumns(
        run=run,
        total=len(rows),
        attempt=[rows[i].attempt for i in kept],
        step=[rows[i].step for i in kept],
        samples=[rows[i].samples for i in kept],
        rollout_batch=[rows[i].rollout_batch for i in kept],
        learning_rate=[rows[i].learning_rate for i in kept],
        time=[rows[i].time for i in kept],
        metrics={name: [measured[i].get(name) for i in kept] for name in names},
        metrics_left_out=len(counts) - len(names),
    )


def thin(values: Sequence[float], most: int) -> Sequence[int]:
    """Indices of at most max(most, 4) values: the first, the last, and each bucket's least and greatest.

    A NaN is kept where its bucket has one, in place of the least: it is evidence, not a gap.
    """
    if len(values) <= max(most, 4):
        return range(len(values))
    buckets = max((most - 2) // 2, 1)
    inner = len(values) - 2
    kept = {0, len(values) - 1}
    for bucket in range(buckets):
        span = range(1 + bucket * inner // buckets, 1 + (bucket + 1) * inner // buckets)
        if span:
            nan = next((i for i in span if math.isnan(values[i])), None)
            kept.add(min(span, key=values.__getitem__) if nan is None else nan)
            kept.add(
                max((i for i in span if not math.isnan(values[i])), key=values.__getitem__, default=span[0])
            )
    return sorted(kept)


def csv_lines(columns: StepColumns) -> Iterator[str]:
    """The columns as CSV lines with a header; what was not measured is empty, NaN and infinities are words.

    Nothing needs quoting: a metric's name holds no comma, quote or newline (wire.METRIC_NAME).
    """
    names = list(columns.metrics)
    yield ",".join(["attempt", "step", "samples", "rollout_batch", "learning_rate", "time", *names]) + "\n"
    series: list[Sequence[float | None]] = [
        columns.attempt,
        columns.step,
        columns.samples,
        columns.rollout_batch,
        columns.learning_rate,
        columns.time,
        *columns.metrics.values(),
    ]
    for row in zip(*series, strict=True):
        yield ",".join(map(_cell, row)) + "\n"


def _cell(value: float | None) -> str:
    if value is None:
        return ""
    if math.isfinite(value):
        return repr(value)
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
