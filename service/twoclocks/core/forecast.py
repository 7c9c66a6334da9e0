"""The forecast: samples to collapse under a plan, given that the run is still alive.

With draws (q, mu, omega) of the family's threshold, present drift x and gain G(n) of the plan (plan.py),

    P(alive now)              = mean_i S_i(x)                       the calibration's own probability
    P(survive n | alive now)  = sum_i S_i(x + G(n) e^{s z_i}) / sum_i S_i(x)     (THEORY.md 3.2)

Quantiles of the samples left come from draws: a parameter draw is resampled by weight S_i(x), D is drawn
from its normal truncated above x, and the plan's table is read backwards at (D - x) / e^{s z} (THEORY.md
3.2, theory/ref.py). s is the uncertainty of the rate: 0.1 at least, more while Adam's second moment is stale
or the rate is measured. Other causes of death add a constant hazard: S(n) = S_drift(n) exp(-lambda n).

Where the calibration gave the present drift less than 5 %, it is contradicted by the run: omega is widened
by 0.5 (in quadrature) and the forecast says so rather than crying wolf (THEORY.md 3.2).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from twoclocks.core.plan import Table
from twoclocks.core.threshold import Posterior

Floats = NDArray[np.float64]
LEVELS = (0.05, 0.1, 0.5, 0.9, 0.95)
CONTRADICTED = 0.05
RATE_SPREAD = 0.1
BEYOND = 1_000.0
"""Quantiles more than this many lives (samples so far) ahead are "never within reach"."""


@dataclass(frozen=True, slots=True)
class Present:
    """Where the run stands against its family: draws of the parameters, weighted by having survived so far.

    `log_x` is the present drift in the posterior's units, `alive` the calibration's P(D > x) before the
    run's own survival was used, `weights` (draws) sums to 1.
    """

    posterior: Posterior
    log_x: Floats
    alive: float
    weights: Floats
    omega: Floats
    seed: int

    @property
    def contradicted(self) -> bool:
        """Whether the calibration gave this run less than 5 % to get here."""
        return self.alive < CONTRADICTED


@dataclass(frozen=True, slots=True)
class Future:
    """Samples left under one plan. `quantiles` by level, None where collapse is not within reach."""

    quantiles: Mapping[str, float | None]
    remaining: Floats


def stand(posterior: Posterior, log_x: Floats, seed: int = 0) -> Present:
    """Condition the family's threshold on survival to `log_x` (one an exponent, in the posterior's units)."""
    survived = posterior.survival(log_x)
    alive = float(survived.mean())
    omega = posterior.omega
    if alive < CONTRADICTED:
        omega = np.sqrt(omega**2 + 0.25)
        survived = ndtr((posterior.mu - log_x[posterior.exponent]) / omega)
    weights = survived / survived.sum() if survived.sum() > 0 else np.full(len(survived), 1 / len(survived))
    return Present(posterior, log_x, alive, weights, omega, seed)


def survivals(present: Present, gain: Floats, spread: float) -> Floats:
    """Return each draw's P(D > x + gain | D > x) for a plan that gains `gain` (one an exponent)."""
    post = present.posterior
    z = _stratified(present.seed + 1, len(post.mu))
    x = np.exp(present.log_x)[post.exponent]
    with np.errstate(divide="ignore"):
        later = np.log(x + gain[post.exponent] * np.exp(spread * z))
        now = present.log_x[post.exponent]
    ahead = ndtr((post.mu - later) / present.omega)
    here = ndtr((post.mu - now) / present.omega)
    ratio = np.where(here > 0, ahead / np.where(here > 0, here, 1.0), 0.0)
    return np.asarray(np.minimum(ratio, 1.0))


def survive(present: Present, gain: Floats, spread: float, samples: float, hazard: float = 0.0) -> float:
    """Return P(no collapse within `samples` more | alive now) for a plan that gains `gain` in them."""
    drift = float((present.weights * survivals(present, gain, spread)).sum())
    return min(1.0, drift) * math.exp(-hazard * samples)


def thresholds(present: Present) -> tuple[NDArray[np.intp], Floats]:
    """Return draws of (exponent, log D) given survival to now, in the posterior's units."""
    post, n = present.posterior, len(present.weights)
    rng = np.random.default_rng(present.seed)
    at = (np.arange(n) + rng.random()) / n
    picked = rng.permutation(np.minimum(np.searchsorted(np.cumsum(present.weights), at), n - 1))
    exponent, mu, omega = post.exponent[picked], post.mu[picked], present.omega[picked]
    above = ndtr((mu - present.log_x[exponent]) / omega)
    u = rng.permutation((np.arange(n) + rng.random(n)) / n)
    # The upper tail is drawn by its own probability, so that it keeps its digits far above the median.
    log_d = mu - omega * ndtri(np.clip(above * u, 1e-300, 1.0))
    return exponent, np.maximum(log_d, present.log_x[exponent])


def remaining(
    present: Present,
    table: Table,
    spread: float,
    *,
    drawn: tuple[NDArray[np.intp], Floats] | None = None,
    hazard: float = 0.0,
) -> Floats:
    """Return draws of the samples left under a plan whose gains are in the posterior's units."""
    exponent, log_d = thresholds(present) if drawn is None else drawn
    z = _stratified(present.seed + 1, len(log_d))
    gain = np.exp(log_d) - np.exp(present.log_x[exponent])
    left = table.backward(exponent, np.maximum(gain, 0.0) / np.exp(spread * z))
    if hazard > 0:
        u = np.random.default_rng(present.seed + 2).random(len(left))
        left = np.minimum(left, -np.log1p(-u) / hazard)
    return left


def quantiles(left: Floats, beyond: float, levels: Sequence[float] = LEVELS) -> dict[str, float | None]:
    """Return the quantiles of `left` keyed "0.05", ...; None above `beyond` samples."""
    found = np.quantile(left, levels, method="inverted_cdf")
    return {f"{level:g}": float(v) if v <= beyond else None for level, v in zip(levels, found, strict=True)}


def other_hazard(deaths: int, samples: float) -> float:
    """Return the constant hazard per sample of causes other than drift: deaths over samples watched, 0 for
    none.

    THEORY.md 3.2 has Gamma(k + 0.5, samples); with k = 0 the half death would swamp a family that was
    watched for only a few lives, so nothing is charged before the first such death.
    """
    return deaths / samples if deaths > 0 and samples > 0 else 0.0


@lru_cache(maxsize=8)
def _stratified(seed: int, n: int) -> Floats:
    """Return n standard normals, stratified and shuffled; the same each time, so forecasts do not flicker."""
    rng = np.random.default_rng(seed)
    out = np.asarray(ndtri(rng.permutation((np.arange(n) + 0.5) / n)))
    out.setflags(write=False)
    return out
