"""Has the policy collapsed, and where did it begin? THEORY.md 3.3 in O(1) a report.

All windows are in samples and tumble: a window closes with the first report that fills it. On each closed
window of mean reward r with standard error SE (noise.py):

* *Reference*: the running maximum of the lower confidence bound r - 2 SE, never below the baseline
  (declared, or the first window's mean). A raw running maximum starts too high at small batches.
* *CUSUM* against the local reference: z = (reference - r) / SE, C = max(0, C + z - 0.5), alarm at C > 8. The
  onset is the end of the last window in which C was 0 or z no more than 1.5 (THEORY.md takes the last C = 0;
  but C may linger above 0 for long between noisy windows, which dated onsets up to a life too early). The
  drift clocks are remembered there.
* *Collapse*: windows in a row that each lost at least half of the reference, together worth 8 standard
  errors: three with a corroborator, or four that each lost three quarters without one. Corroborators,
  against the median of the last eight healthy windows: entropy outside [1/3, 3] times, KL slope above 4
  times, length above 2 times, truncation above 15 %, gradient norm above 5 times, zero-variance groups above
  90 %, and any gradient norm, loss or reward that is not finite. Falling entropy alone is never evidence.
* *Settings changed* (batch, or rate by more than a quarter at once): the open window is dropped, CUSUM
  stands still for two windows and re-learns its local reference; only the three-quarters rules go on.
* A decline that stops short of half is a new regime: after eight windows in alarm the local reference moves
  there.
* *Recovery*: two windows in a row that lost less than 35 % of the reference revoke a collapse.

Where rewards go below zero (by more than a tenth of the reference) a fraction of the reference means
nothing, so losses are counted in the gain over the baseline, once that gain is 0.1 and 6 standard errors.
THEORY.md would count the gain wherever it reaches 0.1; on a run that went from 0.20 to 0.35 and back to 0.23
that calls its start a collapse, so here it is only the fallback.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from statistics import median

from twoclocks.core.drift import AT_REST, DriftState
from twoclocks.core.noise import UNKNOWN, Noise, design_effect, observe, prior_variance

ALARM = 8.0
SLACK = 0.5
CALM = 1.5
LOST_HALF, LOST_MOST, RECOVERED = 0.5, 0.75, 0.35
STREAK, STREAK_ALONE = 3, 4
FREEZE = 2
REGIME = 8
RARE = 0.1
HISTORY = 8
WATCHED = (
    "entropy",
    "kl_reference",
    "response_length",
    "truncated_fraction",
    "grad_norm",
    "zero_variance_fraction",
)
FINITE = ("reward", "grad_norm", "loss")


@dataclass(frozen=True, slots=True)
class Mark:
    """A place in the run: step, samples and the drift clocks there."""

    step: int
    samples: int
    drift: DriftState = AT_REST


@dataclass(frozen=True, slots=True)
class Collapse:
    """A collapse: where it began and was seen, its cause (`drift` or `infrastructure`) and the evidence."""

    onset: Mark
    alarm_step: int
    alarm_samples: int
    cause: str
    evidence: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Window:
    """The window that is filling: sums over its reports; `metrics` has (sum, count) in WATCHED's order."""

    begins: int = 0
    reports: int = 0
    responses: int = 0
    reward: float = 0.0
    bad: int = 0
    metrics: tuple[tuple[float, int], ...] = ((0.0, 0),) * len(WATCHED)


EMPTY = Window()


@dataclass(frozen=True, slots=True)
class OnsetState:
    """The detector between reports; everything is a number, so its size never grows."""

    window: Window = EMPTY
    noise: Noise = UNKNOWN
    baseline: float | None = None
    reference: float | None = None
    local: float | None = None
    lowest: float = math.inf
    cusum: float = 0.0
    frozen: int = 0
    alarmed: int = 0
    streak: int = 0
    streak_z: float = 0.0
    most: int = 0
    streak_bad: int = 0
    healthy: int = 0
    calm: Mark | None = None
    before_streak: Mark | None = None
    last: Mark | None = None
    history: tuple[tuple[float, ...], ...] = ((),) * len(WATCHED)
    last_kl: float | None = None
    loss: float | None = None
    closed: int = 0
    collapse: Collapse | None = None
    revoked: int = 0


WATCHING = OnsetState()


def default_window(rollout_batch: int, reward: float, group_size: int | None, budget: int | None) -> int:
    """Return a window in samples whose mean reward has a standard error of about 0.02 (THEORY.md 3.3).

    Held between 4 and 32 reports, and to a fortieth of the budget where that leaves four.
    """
    r = reward if 0 <= reward <= 1 else 0.5  # also where it is not finite
    wanted = prior_variance(r, group_size) / 0.02**2
    if budget is not None:
        wanted = min(wanted, budget / 40)
    return int(min(32 * rollout_batch, max(4 * rollout_batch, wanted)))


def rare_error(reward: float, responses: float, group_size: int | None) -> float:
    """Return the standard error that a window's mean must have where success is rare, 0 where it is not.

    Most windows then hold a handful of successes, in a few groups, and stretches without any: the measured
    noise falls to nothing in these, just where chance alone may halve the reward.
    """
    if not 0 < reward < RARE:
        return 0.0
    return math.sqrt(design_effect(group_size) * reward * (1 - reward) / responses)


def advance(
    state: OnsetState,
    *,
    mark: Mark,
    samples_before: int,
    rollout_batch: int,
    reward: float,
    metrics: Mapping[str, float],
    window: int,
    changed: bool,
    group_size: int | None = None,
    baseline: float | None = None,
) -> OnsetState:
    """Return the detector after one report, in O(1).

    `mark` is the run's place with this report in it, `samples_before` its count without; `changed` says that
    the setting differs from the last report's; `metrics` holds what was measured (non-finite values
    included); `window` is in samples; `baseline` is the declared reward before training.
    """
    if state.last is None:
        state = replace(state, calm=Mark(mark.step, samples_before), last=Mark(mark.step, samples_before))
    filling = state.window if state.window.reports else Window(begins=samples_before)
    if changed:
        filling = Window(begins=samples_before)
        state = replace(
            state,
            frozen=FREEZE,
            cusum=0.0,
            alarmed=0,
            local=None,
            streak=0,
            streak_z=0.0,
            streak_bad=0,
            most=0,
            noise=replace(state.noise, last=None) if state.noise.weight == 0 else state.noise,
        )
    noise, lowest = state.noise, state.lowest
    finite = math.isfinite(reward)
    if finite:
        known = noise.last is not None and changed
        noise = (
            replace(noise, last=reward, last_batch=rollout_batch)
            if known
            else observe(noise, reward, rollout_batch, group_size)
        )
        lowest = min(lowest, reward)
    bad = not finite or any(not math.isfinite(metrics[name]) for name in FINITE if name in metrics)
    sums = tuple(
        (total + value, count + 1)
        if (value := metrics.get(name)) is not None and math.isfinite(value)
        else (total, count)
        for name, (total, count) in zip(WATCHED, filling.metrics, strict=True)
    )
    filling = Window(
        begins=filling.begins,
        reports=filling.reports + 1,
        responses=filling.responses + (rollout_batch if finite else 0),
        reward=filling.reward + (reward * rollout_batch if finite else 0.0),
        bad=filling.bad + bad,
        metrics=sums,
    )
    state = replace(state, window=filling, noise=noise, lowest=lowest)
    return _close(state, mark, baseline, group_size) if mark.samples - filling.begins >= window else state


def _close(state: OnsetState, mark: Mark, declared: float | None, group_size: int | None) -> OnsetState:
    """Judge the full window and begin the next."""
    full = state.window
    means = tuple(total / count if count else None for total, count in full.metrics)
    r = full.reward / full.responses if full.responses else None
    n = full.responses
    error = max(state.noise.error(n), 1 / n) if n else 1.0
    usual = declared if state.reference is None else state.reference
    rare = r is not None and (r if usual is None else usual) < RARE
    if rare and r is not None:
        error = max(error, rare_error(r, n, group_size))
    before = state.last or mark
    state = replace(state, window=EMPTY, last=mark, closed=state.closed + 1)

    first = state.baseline is None and r is not None
    bound = r - 2 * error if r is not None else -math.inf
    base = state.baseline
    if first:
        base = declared if declared is not None else bound if rare else r
    if base is None:
        return state
    reference = max(base, bound, -math.inf if state.reference is None else state.reference)
    loss = 1.0 if r is None else _loss(r, base, reference, error, state.lowest)
    expected = max(error, rare_error(reference, n, group_size)) if rare else error
    z_reference = min(6.0, (reference - r) / expected) if r is not None else 6.0
    state = replace(state, baseline=base, reference=reference, loss=loss)

    state = _cusum(state, r, bound, error, mark)
    state = _streak(state, loss, z_reference, full.bad > 0, before)
    lost = loss is not None and loss >= LOST_HALF
    found = _corroborators(state, means, full.bad)
    if state.collapse is not None:
        healthy = state.healthy + 1 if loss is not None and loss < RECOVERED else 0
        if healthy >= 2:
            return replace(
                state,
                collapse=None,
                healthy=0,
                revoked=state.revoked + 1,
                cusum=0.0,
                alarmed=0,
                local=None,
                frozen=FREEZE,
                calm=mark,
            )
        return replace(state, healthy=healthy)
    if not lost and state.cusum <= ALARM / 2:
        state = _remember(state, means)
    if means[1] is not None:
        state = replace(state, last_kl=means[1])
    alone = state.most >= STREAK_ALONE
    together = bool(found) and (state.most >= STREAK or (state.streak >= STREAK and not state.frozen))
    if state.streak_z >= ALARM and (alone or together):
        state = replace(state, collapse=_name(state, mark, found, r), healthy=0)
    return state


def _loss(r: float, base: float, reference: float, error: float, lowest: float) -> float | None:
    """Share of the reference that is lost (of the gain, where rewards go below zero); None: no meaning."""
    if reference > 0 and lowest >= -0.1 * reference:
        return max(0.0, (reference - r) / reference)
    gain = reference - base
    return max(0.0, (reference - r) / gain) if gain >= max(0.1, 6 * error) else None


def _cusum(state: OnsetState, r: float | None, bound: float, error: float, mark: Mark) -> OnsetState:
    """One step of the one-sided CUSUM, or of learning its local reference while frozen."""
    if state.frozen or state.local is None:
        floor = bound if state.local is None else max(state.local, bound)
        frozen = max(0, state.frozen - 1)
        return replace(
            state, frozen=frozen, local=floor if math.isfinite(floor) else state.local, cusum=0.0, calm=mark
        )
    z = (state.local - r) / error if r is not None else 2 * ALARM
    cusum = max(0.0, state.cusum + z - SLACK)
    if cusum == 0.0:
        return replace(state, cusum=0.0, alarmed=0, local=max(state.local, bound), calm=mark)
    calm = mark if z <= CALM else state.calm
    alarmed = state.alarmed + 1 if cusum > ALARM else 0
    losing = state.loss is not None and state.loss >= LOST_HALF
    if alarmed >= REGIME and not losing and math.isfinite(bound):
        return replace(state, cusum=0.0, alarmed=0, local=bound, calm=mark)
    return replace(state, cusum=cusum, alarmed=alarmed, local=max(state.local, bound), calm=calm)


def _streak(state: OnsetState, loss: float | None, z: float, bad: bool, before: Mark) -> OnsetState:
    """Count windows in a row that lost half of the reference."""
    if loss is None or loss < LOST_HALF:
        return replace(state, streak=0, streak_z=0.0, most=0, streak_bad=0)
    return replace(
        state,
        streak=state.streak + 1,
        streak_z=state.streak_z + z,
        most=state.most + 1 if loss >= LOST_MOST else 0,
        streak_bad=state.streak_bad + bad,
        before_streak=before if state.streak == 0 else state.before_streak,
    )


def _remember(state: OnsetState, means: tuple[float | None, ...]) -> OnsetState:
    """Add a healthy window to the trailing history of the watched metrics (KL as its rise in the window)."""
    history = []
    for name, past, value in zip(WATCHED, state.history, means, strict=True):
        kept = value
        if name == "kl_reference" and value is not None:
            kept = None if state.last_kl is None else value - state.last_kl
        history.append(past if kept is None else (*past, kept)[-HISTORY:])
    return replace(state, history=tuple(history))


def _corroborators(state: OnsetState, means: tuple[float | None, ...], bad: int) -> tuple[str, ...]:
    """Plain sentences for each corroborator that the closed window shows."""
    found = []
    for name, past, value in zip(WATCHED, state.history, means, strict=True):
        if value is None:
            continue
        usual = median(past) if past else None
        if name == "zero_variance_fraction":
            if value > 0.9:
                found.append(f"{value:.0%} of groups have no variance")
        elif name == "truncated_fraction":
            if value > 0.15 and (usual is None or value > 1.5 * usual):
                found.append(f"{value:.0%} of responses are truncated")
        elif usual is None or usual <= 0:
            continue
        elif name == "entropy" and not usual / 3 <= value <= 3 * usual:
            found.append(f"entropy {value:.3g} against a usual {usual:.3g}")
        elif name == "kl_reference" and state.last_kl is not None and value - state.last_kl > 4 * usual:
            found.append(
                f"KL to the reference rose by {value - state.last_kl:.3g} in a window, usually {usual:.3g}"
            )
        elif name == "response_length" and value > 2 * usual:
            found.append(f"responses are {value / usual:.1f} times as long as usual")
        elif name == "grad_norm" and value > 5 * usual:
            found.append(f"gradient norm is {value / usual:.1f} times its usual {usual:.3g}")
    if bad:
        found.append(f"{bad} reports of the window have a reward, gradient norm or loss that is not finite")
    return tuple(found)


def _name(state: OnsetState, mark: Mark, found: tuple[str, ...], r: float | None) -> Collapse:
    """The collapse as it will be told: onset, cause and evidence."""
    alarm = state.cusum > ALARM and not state.frozen
    onset = (state.calm if alarm else state.before_streak) or mark
    reference = state.reference or 0.0
    seen = "no finite reward" if r is None else f"reward {r:.3g}"
    head = (
        f"{seen} against a reference of {reference:.3g}, at least half of it lost for {state.streak} windows"
    )
    cause = "infrastructure" if 2 * state.streak_bad > state.streak or r is None else "drift"
    return Collapse(onset, mark.step, mark.samples, cause, (head, *found))
