"""The forecast: closed forms where they exist, agreement of its halves, coverage on simulated families."""

import math

import numpy as np
import pytest
from scipy.stats import norm

from twoclocks.core import forecast as ahead
from twoclocks.core import threshold
from twoclocks.core.drift import EXPONENTS, Setting
from twoclocks.core.plan import Leg, Table, tabulate
from twoclocks.core.threshold import Evidence, Posterior, learn


def certain(mu: float, omega: float) -> Posterior:
    """A posterior that knows mu and omega."""
    n = threshold.DRAWS
    zero = np.zeros(n, dtype=np.intp)
    return Posterior((1.0,), 0.0, zero, np.full(n, mu), np.full(n, omega), 10, 0, 0.0)


def line(rate: float = 1.0) -> Table:
    """A plan that drifts evenly."""
    return Table(np.zeros(1), np.zeros((1, 1)), np.array([rate]))


def test_survival_given_survival_is_the_ratio() -> None:
    present = ahead.stand(certain(8.0, 0.4), np.array([7.5]))
    x, later = math.exp(7.5), math.exp(7.5) + 1_500
    expected = norm.sf((math.log(later) - 8) / 0.4) / norm.sf((math.log(x) - 8) / 0.4)
    assert ahead.survive(present, np.array([1_500.0]), 0.0, 1_500.0) == pytest.approx(expected, rel=1e-9)
    assert present.alive == pytest.approx(norm.sf(-0.5 / 0.4))


def test_quantiles_and_survival_tell_the_same_story() -> None:
    present = ahead.stand(certain(8.0, 0.5), np.array([7.0]))
    left = ahead.remaining(present, line(2.0), 0.2)
    for level, n in ahead.quantiles(left, math.inf).items():
        assert n is not None
        assert ahead.survive(present, np.array([2.0 * n]), 0.2, n) == pytest.approx(
            1 - float(level), abs=0.01
        )


def test_uncertain_rate_widens_the_interval() -> None:
    present = ahead.stand(certain(8.0, 0.05), np.array([7.0]))
    narrow, wide = (ahead.quantiles(ahead.remaining(present, line(), s), math.inf) for s in (0.0, 0.4))
    assert wide["0.9"] - wide["0.1"] > 3 * (narrow["0.9"] - narrow["0.1"])  # type: ignore[operator]


def test_far_tail_keeps_its_digits_and_is_contradicted() -> None:
    present = ahead.stand(certain(8.0, 0.2), np.array([8.0 + 0.2 * 9]))
    assert present.contradicted
    assert (present.omega > 0.5).all()
    left = ahead.remaining(present, line(), 0.1)
    assert np.isfinite(left).all()
    assert (left >= 0).all()
    assert np.median(left) > 100


def test_other_causes_shorten_life() -> None:
    present = ahead.stand(certain(12.0, 0.3), np.array([7.0]))
    assert ahead.survive(present, np.array([1_000.0]), 0.1, 1_000.0, hazard=1e-3) == pytest.approx(
        math.exp(-1), abs=1e-3
    )
    left = ahead.remaining(present, line(), 0.1, hazard=1e-3)
    assert np.median(left) == pytest.approx(1_000 * math.log(2), rel=0.05)
    assert ahead.other_hazard(0, 1e6) == 0.0
    assert ahead.other_hazard(3, 6_000.0) == pytest.approx(5e-4)


def test_what_lies_beyond_a_thousand_lives_is_no_date() -> None:
    present = ahead.stand(certain(8.0, 0.4), np.array([7.0]))
    found = ahead.quantiles(ahead.remaining(present, line(1e-6), 0.1), beyond=1e6)
    assert found == dict.fromkeys(("0.05", "0.1", "0.5", "0.9", "0.95"))
    stopped = Table(np.zeros(1), np.zeros((1, 1)), np.zeros(1))
    assert np.isinf(ahead.remaining(present, stopped, 0.1)).all()


def test_the_same_input_gives_the_same_forecast() -> None:
    present = ahead.stand(certain(8.0, 0.4), np.array([7.0]))
    assert (ahead.remaining(present, line(), 0.1) == ahead.remaining(present, line(), 0.1)).all()


def one_forecast(rng: np.random.Generator, past: int, omega: float, landmark: float | None) -> float | None:
    """The forecast's own quantile of what really happened: one new run against `past` runs, some censored.

    As in theory/ref.py; `landmark` is in family medians of samples, None is half of the run's own life.
    """
    mu = rng.normal(0, 0.7)
    limits = np.exp(rng.normal(mu, omega, past + 1))
    seen = math.exp(mu) * rng.uniform(0.6, 1.6, past)
    runs = tuple(
        Evidence((float(np.log(min(d, c))),), (1.0,), 0.0, bool(d <= c))
        for d, c in zip(limits, seen, strict=False)
    )
    now = 0.5 * limits[-1] if landmark is None else landmark * math.exp(mu)
    if now >= limits[-1]:
        return None
    present = ahead.stand(learn.__wrapped__(runs, (1.0,)), np.array([math.log(now)]))
    if present.contradicted:
        return None
    left = ahead.remaining(present, line(), 0.1)
    truth = (limits[-1] - now) / math.exp(0.1 * rng.normal())
    return float((left <= truth).mean())


@pytest.mark.parametrize("landmark", [0.5, None])
@pytest.mark.parametrize("omega", [0.25, 0.6])
def test_intervals_cover_what_they_say(omega: float, landmark: float | None) -> None:
    rng = np.random.default_rng(1)
    made = [one_forecast(rng, 10, omega, landmark) for _ in range(400)]
    pit = np.array([m for m in made if m is not None])
    assert len(pit) >= 300
    inside = np.mean((pit >= 0.1) & (pit <= 0.9))
    assert 0.75 <= inside <= 0.87
    assert 0.85 <= np.mean((pit >= 0.05) & (pit <= 0.95)) <= 0.96


def test_coverage_holds_on_switched_runs_of_mixed_rates() -> None:
    """The exponent is unknown, the past has three rates; the new run switches in mid-life, Adam remembers."""
    rng = np.random.default_rng(2)
    q_of = np.array(EXPONENTS)
    pit = []
    for _ in range(300):
        true_q = rng.choice([1.5, 2.0, 2.5, 3.0])
        index = int(np.flatnonzero(q_of == true_q)[0])
        mu, omega = rng.normal(8, 0.5), 0.3
        runs = []
        for _ in range(10):
            eta0 = 2e-4 * rng.choice([0.7, 1.0, 1.5])
            n = math.exp(rng.normal(mu, omega)) * (2e-4 / eta0) ** true_q
            seen = math.exp(mu) * rng.uniform(0.6, 3.0)
            log_x = tuple(math.log(min(n, seen)) + q_of * math.log(eta0))
            runs.append(Evidence(log_x, (1.0,) * len(q_of), math.log(eta0), bool(n <= seen)))
        posterior = learn.__wrapped__(tuple(runs), EXPONENTS)
        limit = math.exp(rng.normal(mu, omega)) * 2e-4**true_q
        now = 0.3 * math.exp(mu)
        before, after = Setting(64, 8e-4, 4), Setting(128, 8e-4, 4)
        x = now * before.eta0**q_of
        if x[index] >= limit:
            continue
        plan = tabulate(
            [Leg(before, 200.0), Leg(after)], EXPONENTS, np.ones(len(q_of)), 1 / before.batch, 0.999
        )
        truth = plan.backward(np.array([index]), np.array([limit - x[index]]))[0] / math.exp(
            0.1 * rng.normal()
        )
        scaled = np.exp(-q_of * posterior.log_eta_ref)
        table = Table(plan.samples, plan.gain * scaled[:, None], plan.tail * scaled)
        present = ahead.stand(posterior, posterior.log_units(list(np.log(x))))
        if not present.contradicted:
            pit.append(float((ahead.remaining(present, table, 0.1) <= truth).mean()))
    inside = np.mean([0.1 <= p <= 0.9 for p in pit])
    assert len(pit) >= 280
    assert 0.75 <= inside <= 0.87
