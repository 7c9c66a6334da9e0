"""The threshold D at which a run collapses: a random quantity, learned from past runs of the family.

log D ~ N(mu, omega^2) within a family (THEORY.md 3.2). A collapsed run says D = x at its onset, one that was
alive when last seen says D > x:

    log L = sum_collapsed [log N(y_i; mu, omega) + log s_i] + sum_censored log S((y_i - mu) / omega)

The damage exponent q is unknown too (see drift.py), and y_i depends on it: y_i(q) = log x_i(q) - q log
eta_ref, the log of *equivalent samples at the family's median eta0*, so that mu means the same for every q.
s_i(q) = d log x / d log n at the onset is the Jacobian that makes likelihoods of different q (and of
different clocks) comparable, as densities of log samples; it is 1 on runs that kept their setting.

Priors. omega: half-normal of scale 0.5 (THEORY.md 3.2), 1.0 with fewer than three collapses. q: N(2.25, 1) on
[1, 5]: theory says 1 to 2, the pilots' stability edge about 3. mu: N(c, 3^2), c the members' median y. The
only absolute number known (THEORY.md 3.2: 1e-2 for large models, one anecdote) misses small models by a
factor of hundreds, so the centre is taken from the data; with an sd of 3 (a factor of 20) against an omega
below 1 it carries the weight of less than a tenth of one run, which matters only where every run is
censored: there it keeps D from running to infinity, and the answer is read as "beyond what was seen", not as
a date.

The posterior is an exact sum over a grid (no sampling chain), refined once around its mass, and handed on as
equally weighted draws of (q, mu, omega).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, logsumexp

Floats = NDArray[np.float64]
MU_SD = 3.0
OMEGA_SCALE = 0.5
FEW_SCALE = 1.0
ENOUGH = 3
Q_PRIOR = (2.25, 1.0)
DRAWS = 4_000
LOG_SQRT_2PI = 0.9189385332046727


@dataclass(frozen=True, slots=True)
class Evidence:
    """One past run: log x on each exponent, its slope d log x / d log n there, and whether it collapsed."""

    log_x: tuple[float, ...]
    slope: tuple[float, ...]
    log_eta0: float
    collapsed: bool


@dataclass(frozen=True, slots=True)
class Posterior:
    """Equally weighted draws from the posterior of a family's threshold. Arrays are read-only.

    log D = mu + omega N(0, 1) is in log x - q log_eta_ref. `exponent` indexes `exponents`. `score` is the
    mean leave-one-run-out log density of the collapsed runs' log samples, NaN without any.
    """

    exponents: tuple[float, ...]
    log_eta_ref: float
    exponent: NDArray[np.intp]
    mu: Floats
    omega: Floats
    collapsed: int
    censored: int
    score: float

    def log_units(self, log_x: Sequence[float]) -> Floats:
        """Return log x of every exponent in the posterior's units, log equivalent samples."""
        return np.asarray(log_x) - np.asarray(self.exponents) * self.log_eta_ref

    def survival(self, log_x: Floats) -> Floats:
        """Return each draw's P(D > x) for the drift `log_x` (one an exponent, in the posterior's units)."""
        return np.asarray(np.exp(log_ndtr((self.mu - log_x[self.exponent]) / self.omega)))

    @property
    def q(self) -> float:
        """Posterior mean of the damage exponent."""
        return float(np.asarray(self.exponents)[self.exponent].mean())


def log_prior(mu: Floats, omega: Floats, q: Floats, centre: float, scale: float) -> Floats:
    """Return the log prior on broadcastable grids, up to a constant; omega's grid is geometric."""
    out = -0.5 * ((mu - centre) / MU_SD) ** 2 - 0.5 * (omega / scale) ** 2 + np.log(omega)
    return np.asarray(out - 0.5 * ((q - Q_PRIOR[0]) / Q_PRIOR[1]) ** 2)


def log_likelihoods(
    mu: Floats, omega: Floats, y: Floats, slope: Floats, collapsed: NDArray[np.bool_]
) -> list[Floats]:
    """Return each run's log likelihood on the grid (mu, omega, exponent); y, slope are (runs, exponents)."""
    out = []
    for yi, si, dead in zip(y, slope, collapsed, strict=True):
        z = (yi - mu) / omega
        out.append(-0.5 * z * z - LOG_SQRT_2PI - np.log(omega) + np.log(si) if dead else log_ndtr(-z))
    return out


@lru_cache(maxsize=64)
def learn(members: tuple[Evidence, ...], exponents: tuple[float, ...], seed: int = 0) -> Posterior:
    """Return the posterior of a family's threshold; cached on the members' values. At least one member.

    `exponents` of length one fixes q (a measured clock). Raises ValueError without members.
    """
    if not members:
        raise ValueError("a threshold needs at least one past run")
    q = np.asarray(exponents)
    log_eta_ref = float(np.median([m.log_eta0 for m in members])) if len(exponents) > 1 else 0.0
    y = np.array([m.log_x for m in members]) - q * log_eta_ref
    slope = np.maximum(np.array([m.slope for m in members]), 1e-3)
    collapsed = np.array([m.collapsed for m in members])
    dead = int(collapsed.sum())
    scale = OMEGA_SCALE if dead >= ENOUGH else FEW_SCALE
    centre = float(np.median(y))

    low, high = min(centre - 4 * MU_SD, float(y.min()) - 1), max(centre + 4 * MU_SD, float(y.max()) + 1)
    lowest, highest = 0.02, 4.0
    for mus, omegas in ((81, 28), (121, 44)):
        mu = np.linspace(low, high, mus)[:, None, None]
        omega = np.geomspace(lowest, highest, omegas)[None, :, None]
        runs = log_likelihoods(mu, omega, y, slope, collapsed)
        log_p = log_prior(mu, omega, q, centre, scale) + sum(runs)
        p = np.exp(log_p - log_p.max())
        p /= p.sum()
        along_mu, along_omega = p.sum((1, 2)), p.sum((0, 2))
        seen, step = mu[along_mu > 1e-6, 0, 0], (high - low) / (mus - 1)
        wide = omega[0, along_omega > 1e-6, 0]
        if mus == 81:
            low, high = float(seen[0]) - step, float(seen[-1]) + step
            lowest, highest = float(wide[0]) * 0.8, float(wide[-1]) * 1.25

    # p(y_i | the others) = 1 / E[1 / p(y_i | theta)], exact on a grid.
    kept = p > 0
    inverse = [logsumexp(np.log(p[kept]) - r[kept]) for r, d in zip(runs, collapsed, strict=True) if d]
    score = -float(np.mean(inverse)) if inverse else float("nan")

    rng = np.random.default_rng(seed)
    cumulative = np.cumsum(p.ravel())
    at = (np.arange(DRAWS) + rng.random()) / DRAWS * cumulative[-1]
    cell = rng.permutation(np.minimum(np.searchsorted(cumulative, at), p.size - 1))
    i, j, k = np.unravel_index(cell, p.shape)
    half = (high - low) / (len(mu) - 1) / 2
    drawn_mu = mu[i, 0, 0] + rng.uniform(-half, half, DRAWS)
    posterior = Posterior(
        exponents=exponents,
        log_eta_ref=log_eta_ref,
        exponent=k.astype(np.intp),
        mu=drawn_mu,
        omega=omega[0, j, 0],
        collapsed=dead,
        censored=len(members) - dead,
        score=score,
    )
    for array in (posterior.exponent, posterior.mu, posterior.omega):
        array.setflags(write=False)
    return posterior
