"""The two clocks as clocks: a face of twelve hours in samples, a hand at now, a band for the alarm.

Both faces of a run have the same scale, so that they can be read against each other: does the progress band
or the failure band come first? Twelve o'clock is the run's beginning, one hour is a round number of
samples. The thick band is the 80 % interval, the thin one beyond it 90 %, the bar across it the median.
Pure: wire in, geometry out; the template draws it. The frame is 240 x 240 with its origin in the middle.
"""

import math
from dataclasses import dataclass, field, replace

from twoclocks.wire import Clocks, ForecastStatus, Outlook, Progress, RunSummary
from twoclocks_dashboard import numbers

HOURS = 12
RIM = 94.0
BAND = 82.0
SWITCH = 110.0
NICE = (1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)
NEARLY = 0.98
FURTHEST = 3.0
"""A face reaches at most this many times as far as the run has come or may go; later alarms lie beyond it."""


@dataclass(frozen=True, slots=True)
class Arc:
    """A stretch of the face: an SVG path along radius `radius`, open where its end lies beyond the face."""

    path: str
    open: bool = False


@dataclass(frozen=True, slots=True)
class Dial:
    """One clock, ready to be drawn. Angles are degrees clockwise from twelve o'clock; None is not there."""

    name: str
    label: str
    state: str
    hand: float | None = None
    elapsed: Arc | None = None
    band: Arc | None = None
    wide: Arc | None = None
    median: float | None = None
    switched: Arc | None = None
    budget: float | None = None
    struck: float | None = None
    beyond: bool = False
    hours: list[tuple[float, float, str]] = field(default_factory=list)
    hour: str = ""


def face(run: RunSummary) -> float | None:
    """Samples of one full turn, the same for both clocks; None before anything is known of its size."""
    ends = [float(run.samples), float(run.spec.budget_samples or 0)]
    known = max(ends)
    limit = FURTHEST * known
    failure, progress = run.clocks.failure, run.clocks.progress
    ahead = [failure.stay.quantiles.get("0.9")] if failure and failure.stay else []
    ahead += [progress.remaining.get("0.9")] if progress else []
    ends += [run.samples + left for left in ahead if left is not None and run.samples + left <= limit]
    return _round_up(max(ends)) if known > 0 else None


def failure(run: RunSummary) -> Dial:
    """The failure clock: the alarm is the collapse."""
    forecast, onset = run.clocks.failure, run.clocks.onset
    status = forecast.status if forecast else ForecastStatus.NONE
    stay = forecast.stay if forecast else None
    quantiles = stay.quantiles if stay and living(run) else {}
    dial = _dial(run, "failure", status.value, quantiles, _failure_label(run.clocks))
    whole = face(run)
    if whole is None or forecast is None:
        return dial
    if onset is not None:
        return replace(dial, struck=_angle(onset.samples, whole))
    better = best_switch(forecast.candidates)
    if better is None or not living(run):
        return dial
    ends = better.quantiles.get("0.1"), better.quantiles.get("0.9")
    return replace(dial, switched=_ahead(run.samples, *ends, whole, SWITCH))


def progress(run: RunSummary) -> Dial:
    """The progress clock: the alarm is the target reward."""
    clock = run.clocks.progress
    reached = clock.reached_at_samples if clock else None
    state = (
        "none" if clock is None or clock.target is None else "reached" if reached is not None else "forecast"
    )
    quantiles = clock.remaining if clock and reached is None and living(run) else {}
    dial = _dial(run, "progress", state, quantiles, _progress_label(clock))
    whole = face(run)
    if reached is None or whole is None:
        return dial
    return replace(dial, struck=_angle(reached, whole))


def living(run: RunSummary) -> bool:
    """Whether what lies ahead of the run still matters: it has neither ended nor collapsed."""
    return run.ended_at is None and run.clocks.onset is None


def best_switch(candidates: list[Outlook]) -> Outlook | None:
    """The permitted switch that most likely survives to the budget."""
    return max(candidates, key=lambda outlook: outlook.survive_budget or 0.0, default=None)


def _dial(run: RunSummary, name: str, state: str, left: dict[str, float | None], label: str) -> Dial:
    whole = face(run)
    if whole is None:
        return Dial(name=name, label=label, state=state)
    now, budget = run.samples, run.spec.budget_samples
    bands = {
        name: _ahead(now, left.get(low), left.get(high), whole, BAND) if left else None
        for name, low, high in (("band", "0.1", "0.9"), ("wide", "0.05", "0.95"))
    }
    middle = left.get("0.5")
    shown = middle is not None and now + middle <= whole
    return Dial(
        name=name,
        label=label,
        state=state,
        hand=_angle(now, whole),
        elapsed=Arc(_arc(0, _angle(now, whole), RIM)) if now else None,
        band=bands["band"],
        wide=bands["wide"] if "0.05" in left else None,
        median=_angle(now + middle, whole) if middle is not None and shown else None,
        budget=_angle(budget, whole) if budget else None,
        beyond=any(v is not None for v in left.values()) and bands["band"] is None,
        hours=[(*_at(90 * k, 53 if k % 2 else 59), numbers.short(whole * (k or 4) / 4)) for k in range(4)],
        hour=numbers.count(whole / HOURS),
    )


def _ahead(now: int, low: float | None, high: float | None, whole: float, radius: float) -> Arc | None:
    """The band from now + low to now + high; None where all of it lies beyond the face."""
    if low is None or now + low >= NEARLY * whole:
        return None
    open_end = high is None or now + high > whole
    end = 360.0 if open_end or high is None else _angle(now + high, whole)
    return Arc(_arc(_angle(now + low, whole), max(end, _angle(now + low, whole) + 1.0), radius), open_end)


def _failure_label(clocks: Clocks) -> str:
    """The clock in words, for whoever hears the page."""
    forecast = clocks.failure
    if clocks.onset is not None:
        return f"Failure clock: collapsed at {numbers.count(clocks.onset.samples)} samples"
    if forecast is None or forecast.stay is None or not any(forecast.stay.quantiles.values()):
        return f"Failure clock: no forecast, at {numbers.count(clocks.samples)} samples"
    q = forecast.stay.quantiles
    guess = "" if forecast.status is ForecastStatus.FORECAST else f" ({forecast.status.value})"
    return (
        f"Failure clock: at {numbers.count(clocks.samples)} samples, {numbers.about(q.get('0.5'))} left, "
        f"80 % interval {numbers.between(q.get('0.1'), q.get('0.9'))}{guess}"
    )


def _progress_label(clock: Progress | None) -> str:
    if clock is None or clock.reward is None:
        return "Progress clock: no reward has been reported"
    now = f"Progress clock: reward {numbers.reward(clock.reward)}"
    if clock.target is None:
        return f"{now}, no target declared"
    if clock.reached_at_samples is not None:
        return f"{now}, target {clock.target:g} reached at {numbers.count(clock.reached_at_samples)} samples"
    left = clock.remaining
    if left.get("0.5") is None:
        return f"{now}, target {clock.target:g} not within reach on this curve"
    return (
        f"{now}, target {clock.target:g} in {numbers.about(left['0.5'])} samples, "
        f"80 % interval {numbers.between(left.get('0.1'), left.get('0.9'))}"
    )


def _round_up(samples: float) -> float:
    """The least face of twelve round hours that holds `samples`."""
    hour = samples / HOURS
    size = 10.0 ** math.floor(math.log10(hour))
    return HOURS * size * next(nice for nice in NICE if nice * size >= hour * (1 - 1e-9))


def _angle(samples: float, whole: float) -> float:
    return min(360.0, 360.0 * samples / whole)


def _at(angle: float, radius: float) -> tuple[float, float]:
    turn = math.radians(angle)
    return round(radius * math.sin(turn), 2), round(-radius * math.cos(turn), 2)


def _arc(start: float, end: float, radius: float) -> str:
    """An SVG path clockwise from `start` to `end` degrees; a whole turn is two halves."""
    end = min(end, start + 359.99)
    (x0, y0), (x1, y1) = _at(start, radius), _at(end, radius)
    large = int(end - start > 180)
    return f"M{x0} {y0}A{radius:g} {radius:g} 0 {large} 1 {x1} {y1}"
