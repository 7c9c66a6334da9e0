"""The threshold's posterior against theory/ref.py's grid and known truths."""

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import norm

from twoclocks.core import threshold
from twoclocks.core.drift import EXPONENTS
from twoclocks.core.threshold import Evidence, learn


def evidence(log_x: float, collapsed: bool = True, slope: float = 1.0) -> Evidence:
    return Evidence((log_x,), (slope,), 0.0, collapsed)


def constant(samples: float, eta0: float, collapsed: bool = True) -> Evidence:
    """A run that kept its setting: x_q = n eta0^q."""
    log_x = tuple(math.log(samples) + q * math.log(eta0) for q in EXPONENTS)
    return Evidence(log_x, (1.0,) * len(EXPONENTS), math.log(eta0), collapsed)


def reference_posterior(
    log_d: list[float], collapsed: list[bool], centre: float, sd: float
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """The grid of theory/ref.py, with omega's density per cell of its logarithmic grid."""
    mu = np.linspace(centre - 4 * sd, centre + 4 * sd, 1_601)
    om = np.geomspace(0.03, 3.0, 120)
    m, o = np.meshgrid(mu, om, indexing="ij")
    lp = -0.5 * ((m - centre) / sd) ** 2 - 0.5 * (o / 0.5) ** 2 + np.log(o)
    for x, c in zip(log_d, collapsed, strict=True):
        z = (x - m) / o
        lp = lp + (norm.logpdf(z) - np.log(o) if c else norm.logsf(z))
    p = np.exp(lp - lp.max())
    return m, o, p / p.sum()


@pytest.mark.parametrize("seed", range(4))
def test_agrees_with_the_reference_grid(seed: int) -> None:
    rng = np.random.default_rng(seed)
    log_d = list(rng.normal(8, 0.4, 8))
    collapsed = [bool(c) for c in rng.random(8) < 0.7]
    collapsed[:3] = [True] * 3
    learned = learn(tuple(evidence(x, c) for x, c in zip(log_d, collapsed, strict=True)), (1.0,))
    m, o, p = reference_posterior(log_d, collapsed, float(np.median(log_d)), threshold.MU_SD)
    assert learned.mu.mean() == pytest.approx((m * p).sum(), abs=0.02)
    assert learned.omega.mean() == pytest.approx((o * p).sum(), rel=0.04)
    assert learned.mu.std() == pytest.approx(math.sqrt((m**2 * p).sum() - (m * p).sum() ** 2), rel=0.06)
    for x in (7.0, 8.0, 9.0):
        assert learned.survival(np.array([x])).mean() == pytest.approx(
            (norm.sf((x - m) / o) * p).sum(), abs=0.01
        )


def test_leave_one_out_score_is_the_refitted_one() -> None:
    log_d = [7.2, 7.9, 8.1, 8.4, 8.0]
    learned = learn(tuple(evidence(x) for x in log_d), (1.0,))
    scores = []
    for i, left_out in enumerate(log_d):
        rest = log_d[:i] + log_d[i + 1 :]
        m, o, p = reference_posterior(rest, [True] * 4, float(np.median(log_d)), threshold.MU_SD)
        scores.append(math.log((norm.pdf((left_out - m) / o) / o * p).sum()))
    assert learned.score == pytest.approx(np.mean(scores), abs=0.03)


def test_all_censored_is_sensible_and_says_beyond() -> None:
    learned = learn(tuple(evidence(math.log(n), collapsed=False) for n in (4_000, 5_000, 6_000)), (1.0,))
    assert learned.collapsed == 0
    alive = learned.survival(np.array([math.log(6_000)])).mean()
    assert alive > 0.6
    assert np.isfinite(learned.mu).all()
    assert math.isnan(learned.score)


def test_censoring_raises_the_threshold() -> None:
    dead = tuple(evidence(math.log(3_000) + d) for d in (-0.3, 0.0, 0.3))
    alive = tuple(evidence(math.log(9_000), collapsed=False) for _ in range(4))
    assert learn(dead + alive, (1.0,)).mu.mean() > learn(dead, (1.0,)).mu.mean() + 0.3


def test_fewer_than_three_collapses_widen_the_spread() -> None:
    two = learn((evidence(8.0), evidence(8.1)), (1.0,))
    three = learn((evidence(8.0), evidence(8.1), evidence(8.05)), (1.0,))
    assert two.omega.mean() > 1.5 * three.omega.mean()


@pytest.mark.parametrize("true_q", [1.5, 2.0, 3.0, 4.0])
def test_the_exponent_is_found_from_runs_at_different_rates(true_q: float) -> None:
    rng = np.random.default_rng(int(true_q * 10))
    runs = []
    for eta0 in (1e-4, 1.5e-4, 2e-4, 3e-4):
        for _ in range(4):
            runs.append(constant(3_000 * (2e-4 / eta0) ** true_q * math.exp(0.2 * rng.normal()), eta0))
    assert learn(tuple(runs), EXPONENTS).q == pytest.approx(true_q, abs=0.4)


def test_one_rate_says_nothing_about_the_exponent() -> None:
    runs = tuple(constant(3_000 * math.exp(d), 2e-4) for d in (-0.3, -0.1, 0.1, 0.3))
    q = np.array(EXPONENTS)
    prior = np.exp(-0.5 * ((q - threshold.Q_PRIOR[0]) / threshold.Q_PRIOR[1]) ** 2)
    learned = learn(runs, EXPONENTS)
    share = np.bincount(learned.exponent, minlength=len(q)) / len(learned.exponent)
    assert share == pytest.approx(prior / prior.sum(), abs=0.01)


def test_the_jacobian_keeps_switched_runs_from_bending_the_exponent() -> None:
    """Life after a held-rate switch squeezes log x for a large q; without the slope q would come out high."""
    rng = np.random.default_rng(4)
    true_q, eta = 2.0, (2e-4, 1e-4)
    runs = []
    for _ in range(40):
        limit = 3_000 * math.exp(0.4 * rng.normal()) * eta[0] ** true_q
        switch = rng.uniform(300, 2_500)
        n = limit / eta[0] ** true_q
        if n > switch:
            n = switch + (limit - switch * eta[0] ** true_q) / eta[1] ** true_q
        x = [min(n, switch) * eta[0] ** q + max(0.0, n - switch) * eta[1] ** q for q in EXPONENTS]
        now = eta[1] if n > switch else eta[0]
        slope = tuple(n * now**q / xi for q, xi in zip(EXPONENTS, x, strict=True))
        runs.append(Evidence(tuple(math.log(v) for v in x), slope, math.log(now), True))
    assert learn(tuple(runs), EXPONENTS).q == pytest.approx(true_q, abs=0.5)


def test_learning_is_deterministic_and_remembered() -> None:
    runs = tuple(evidence(x) for x in (7.0, 7.5, 8.0))
    first = learn(runs, (1.0,))
    assert learn(tuple(evidence(x) for x in (7.0, 7.5, 8.0)), (1.0,)) is first
    threshold.learn.cache_clear()
    again = learn(runs, (1.0,))
    assert (again.mu == first.mu).all()
    with pytest.raises(ValueError, match="read-only"):
        first.mu[0] = 0.0


def test_no_members_is_an_error() -> None:
    with pytest.raises(ValueError, match="at least one past run"):
        learn((), (1.0,))
