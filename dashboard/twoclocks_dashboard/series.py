"""From reported columns and kept forecasts to the series that charts draw. Pure.

Missing stays missing (None breaks a line), NaN and infinities are taken out of lines and kept as marks of
their own.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from twoclocks.wire import Forecast, RunSummary, StepColumns
from twoclocks_dashboard import numbers

RATE_JUMP = 0.2
"""Relative change of the learning rate between two points that is marked as a switch, not a schedule's
slope.
"""
UNIT_JUMP = 0.1
PACE_POINTS = 40


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment worth a line on every chart: where, what, and its kind (attempt, switch, onset, alarm)."""

    samples: int
    text: str
    kind: str


def finite(values: Sequence[float | None]) -> list[float | None]:
    """The values with NaN and infinities as gaps."""
    return [v if v is not None and math.isfinite(v) else None for v in values]


def broken(values: Sequence[float | None]) -> list[int]:
    """Indices of NaN and infinities."""
    return [i for i, v in enumerate(values) if v is not None and not math.isfinite(v)]


def smoothed(samples: Sequence[int], values: Sequence[float | None], window: float) -> list[float | None]:
    """The exponentially weighted mean over `window` samples, as the service's progress clock weighs it.

    A point without a finite value has none, and does not move the mean.
    """
    level: float | None = None
    before = 0
    means: list[float | None] = []
    for n, v in zip(samples, values, strict=True):
        if v is None or not math.isfinite(v):
            means.append(None)
            continue
        fresh = 1.0 if level is None else -math.expm1(-max(n - before, 1) / window)
        level = v if level is None else level + fresh * (v - level)
        before = n
        means.append(level)
    return means


def window(run: RunSummary) -> float:
    """Samples of smoothing on charts: the run's declared window, or a fortieth of its length."""
    return float(run.spec.window_samples or max(run.samples / 40, run.rollout_batch or 1, 1))


def marks(run: RunSummary, columns: StepColumns) -> list[Mark]:
    """Attempts, switches of the setting, and the collapse, in order of samples."""
    found: list[Mark] = []
    for i, j in pairwise(range(len(columns.step))):
        at = columns.samples[i]
        if columns.attempt[i] != columns.attempt[j]:
            found.append(Mark(at, "new attempt", "attempt"))
        old, new = columns.learning_rate[i], columns.learning_rate[j]
        moved = abs(new - old) > RATE_JUMP * max(abs(old), abs(new))
        if columns.rollout_batch[i] != columns.rollout_batch[j]:
            found.append(Mark(at, f"batch {numbers.count(columns.rollout_batch[j])}", "switch"))
        elif moved:
            found.append(Mark(at, f"rate {numbers.scientific(new)}", "switch"))
    if run.clocks.onset is not None:
        found.append(Mark(run.clocks.onset.samples, "collapse", "onset"))
    return sorted(found, key=lambda mark: mark.samples)


def live(forecasts: Sequence[Forecast]) -> list[Forecast]:
    """The forecasts that no later rewind took back: samples grow strictly along them."""
    kept: list[Forecast] = []
    for made in forecasts:
        while kept and kept[-1].samples >= made.samples:
            kept.pop()
        kept.append(made)
    return kept


def trail(forecasts: Sequence[Forecast]) -> list[tuple[int, float]]:
    """Drift against samples, in the unit of the last forecast and on its clock.

    The unit of a clock changes where the family has learned something in between. Drift itself is
    continuous, so readings from before such a change are scaled to meet the ones after it; on another clock
    they are left out.
    """
    path = [f for f in live(forecasts) if f.drift is not None]
    if not path:
        return []
    points: list[tuple[int, float]] = []
    scale = 1.0
    after: Forecast | None = None
    for made in reversed([f for f in path if f.clock == path[-1].clock]):
        assert made.drift is not None
        if after is not None and after.drift is not None and made.drift > 0:
            rate = after.stay.drift_per_sample if after.stay else 0.0
            met = max(after.drift - rate * (after.samples - made.samples), 0.0)
            if abs(met - made.drift) > UNIT_JUMP * after.drift and met > 0:
                scale *= met / made.drift
        points.append((made.samples, made.drift * scale))
        after = made
    return points[::-1]


def pace(columns: StepColumns) -> float | None:
    """Seconds per sample lately, over the last points that carry a time; None where that cannot be known."""
    timed = [
        (n, t)
        for n, t in zip(columns.samples, columns.time, strict=True)
        if t is not None and math.isfinite(t)
    ][-PACE_POINTS:]
    if len(timed) < 2:
        return None
    (n0, t0), (n1, t1) = timed[0], timed[-1]
    return (t1 - t0) / (n1 - n0) if n1 > n0 and t1 > t0 else None
