"""The progress clock: smoothed reward against samples, and the samples that are left to a target.

*Level*: an exponentially weighted mean over one window of samples. Its variance is s2 sum w_i^2 / B_i, with
s2 the variance per response from noise.py, carried along with the mean.

*Way to the target* (DESIGN 4): a saturating curve r(n) = c - a exp(-n / tau). For a fixed tau it is a
straight line in exp(-n / tau), so (c, a) have an exact Gaussian posterior; tau is summed over a grid. The
data are at most 64 means over stretches of samples; when they are full, neighbours are merged, so memory and
time do not grow with the run. Draws of (tau, c, a) give draws of the samples to the target, infinite where c
stays below it; quantiles that are infinite, or more than a thousand times the run's life ahead, are None:
"not within reach on this curve".
"""

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from twoclocks.core.noise import Noise

Floats = NDArray[np.float64]
KNOTS = 64
DRAWS = 2_000
LEVELS = (0.1, 0.5, 0.9)
BEYOND = 1_000.0


@dataclass(frozen=True, slots=True)
class ProgressState:
    """The progress clock between reports; `knots` are (mean samples, mean reward, responses)."""

    samples: int = 0
    level: float | None = None
    spread: float = 0.0
    peak: float | None = None
    peak_samples: int = 0
    reached: int | None = None
    filled: tuple[float, float, float] = (0.0, 0.0, 0.0)
    begins: int = 0
    stretch: int = 1
    merged: int = 0
    knots: tuple[tuple[float, float, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Way:
    """Samples to the target, or why they cannot be known, and the reward gained per sample now."""

    remaining: dict[str, float | None]
    per_sample: float | None
    reason: str


UNBEGUN = ProgressState()


def advance(
    state: ProgressState,
    *,
    samples: int,
    rollout_batch: int,
    reward: float,
    window: int,
    target: float | None,
) -> ProgressState:
    """Return the clock after one report, O(1) amortised; a reward that is not finite moves only the count."""
    gained = samples - state.samples if samples > state.samples else rollout_batch
    reached_samples = max(samples, state.samples)
    if not math.isfinite(reward):
        return replace(state, samples=reached_samples)
    if state.level is None:
        level, spread = reward, 1 / rollout_batch
        state = replace(state, begins=state.samples)
    else:
        fresh = -math.expm1(-gained / window)
        level = state.level + fresh * (reward - state.level)
        spread = (1 - fresh) ** 2 * state.spread + fresh**2 / rollout_batch
    peak, at = state.peak, state.peak_samples
    settled = reached_samples >= window
    if settled and (peak is None or level > peak):
        peak, at = level, reached_samples
    reached = state.reached
    if reached is None and target is not None and settled and level >= target:
        reached = reached_samples

    n, r, responses = state.filled
    filled = (
        n + rollout_batch * (reached_samples - gained / 2),
        r + rollout_batch * reward,
        responses + rollout_batch,
    )
    knots, begins, merged, stretch = state.knots, state.begins, state.merged, state.stretch
    if reached_samples - begins >= window * stretch:
        n, r, responses = filled
        knots = (*knots, (n / responses, r / responses, responses))
        filled, begins = (0.0, 0.0, 0.0), reached_samples
        if len(knots) > KNOTS:
            knots, stretch, merged = _merge(knots), stretch * 2, merged + 1
    return ProgressState(
        samples=reached_samples,
        level=level,
        spread=spread,
        peak=peak,
        peak_samples=at,
        reached=reached,
        filled=filled,
        begins=begins,
        stretch=stretch,
        merged=merged,
        knots=knots,
    )


def _merge(knots: tuple[tuple[float, float, float], ...]) -> tuple[tuple[float, float, float], ...]:
    """Merge neighbours in pairs, weighted by responses; an odd last one stays."""
    pairs = [
        ((n * w + m * v) / (w + v), (r * w + s * v) / (w + v), w + v)
        for (n, r, w), (m, s, v) in zip(knots[::2], knots[1::2], strict=False)
    ]
    return (*pairs, knots[-1]) if len(knots) % 2 else tuple(pairs)


def interval(state: ProgressState, noise: Noise, z: float = 1.645) -> tuple[float, float] | None:
    """Return the 90 % interval of the smoothed reward; None before the first finite reward."""
    if state.level is None:
        return None
    error = z * math.sqrt(noise.s2 * state.spread)
    return state.level - error, state.level + error


def way(state: ProgressState, noise: Noise, target: float | None, seed: int = 0) -> Way:
    """Return the way to the target on the fitted curve; what cannot be known is said in `reason`."""
    if state.level is None:
        return Way({}, None, "no finite reward has been reported yet")
    if len(state.knots) < 4:
        return Way({}, None, f"the trend needs four windows of reward; there are {len(state.knots)}")
    n, r, responses = (np.array(column) for column in zip(*state.knots, strict=True))
    tau, c, a = _curve(n, r, responses, noise.s2, state.samples, seed)
    now = np.exp(-state.samples / tau)
    per_sample = float(np.median(a * now / tau))
    if target is None:
        return Way({}, per_sample, "no target reward was declared")
    if state.reached is not None:
        return Way({}, per_sample, f"the target {target:g} was reached at {state.reached:,} samples")
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        gap = (c - target) / a
        arrival = np.where((gap > 0) & (a > 0), -tau * np.log(gap), np.inf)
        left = np.where(np.isfinite(arrival), np.maximum(arrival - state.samples, 0.0), np.inf)
    never = float(np.isinf(left).mean())
    found = np.quantile(left, LEVELS, method="inverted_cdf")
    horizon = BEYOND * state.samples
    remaining = {
        f"{level:g}": float(v) if v <= horizon else None for level, v in zip(LEVELS, found, strict=True)
    }
    if remaining["0.5"] is None:
        return Way(
            remaining,
            per_sample,
            f"the reward's curve stays below the target {target:g} with probability {never:.0%}, "
            "so the samples to it cannot be known",
        )
    return Way(
        remaining, per_sample, f"a saturating curve through {len(n)} means, {responses.sum():,.0f} responses"
    )


def _curve(
    n: Floats, r: Floats, responses: Floats, s2: float, samples: int, seed: int
) -> tuple[Floats, Floats, Floats]:
    """Draw (tau, c, a) of r = c - a exp(-n / tau) by exact least squares on a grid of tau.

    Rewards that stayed in [0, 1] have no ceiling above 1: draws with c > 1 are left out.
    """
    size = max(1.0, float(np.abs(r).max()))
    r = r / size
    variance = max(s2 / size / size, 1e-6) / responses
    tau = np.geomspace(samples / 12, samples * 12, 40)[:, None]
    x = -np.exp(-n / tau)
    w = 1 / variance
    sw, sx, sxx = w.sum(), (w * x).sum(1), (w * x * x).sum(1)
    sy, sxy = (w * r).sum(), (w * x * r).sum(1)
    det = sw * sxx - sx * sx + 1e-12 * sw * sxx
    a = (sw * sxy - sx * sy) / det
    c = (sy - a * sx) / sw
    chi2 = (w * (r - c[:, None] - a[:, None] * x) ** 2).sum(1)
    # The curve is a summary, not the truth: what it cannot explain widens every error by the same factor.
    inflate = max(1.0, float(chi2.min()) / max(1, len(n) - 3))
    log_p = -0.5 * chi2 / inflate - 0.5 * np.log(det)
    p = np.exp(log_p - log_p.max())
    p /= p.sum()
    rng = np.random.default_rng(seed)
    pick = np.searchsorted(np.cumsum(p), rng.random(DRAWS) * 0.999999)
    a_draw = a[pick] + rng.standard_normal(DRAWS) * np.sqrt(inflate * sw / det[pick])
    centre = (sy - a_draw * sx[pick]) / sw
    c_draw = centre + rng.standard_normal(DRAWS) * math.sqrt(inflate / sw)
    if (r >= 0).all() and (r <= 1).all():
        possible = c_draw <= 1.0
        if possible.any():
            return tau[pick[possible], 0], c_draw[possible], a_draw[possible]  # size is 1 here
    return tau[pick, 0], c_draw * size, a_draw * size
