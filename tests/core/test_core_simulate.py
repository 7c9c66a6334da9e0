"""The simulator keeps its own promises: truth, censoring, grouped rewards, reproducibility."""

import math

import numpy as np
import pytest

from twoclocks.core.simulate import Course, Phase, Truth, simulate, threshold

TRUTH = Truth(median=2_000.0, omega=0.3, q=2.0, eta0_reference=2e-4)


def test_at_the_reference_rate_the_onset_is_the_threshold() -> None:
    run = simulate(TRUTH, [Phase(0, 64, 8e-4)], 8_000, seed=1)
    assert run.onset == pytest.approx(run.threshold, abs=2)


@pytest.mark.parametrize(
    ("batch", "rate", "factor"), [(256, 16e-4, 1.0), (64, 16e-4, 0.25), (256, 8e-4, 4.0)]
)
def test_life_scales_with_eta0_to_the_q(batch: int, rate: float, factor: float) -> None:
    run = simulate(TRUTH, [Phase(0, batch, rate)], 40_000, seed=1)
    assert run.onset == pytest.approx(factor * run.threshold, rel=0.01)


def test_a_held_switch_prolongs_life_more_than_its_steady_rate_says() -> None:
    """Adam's second moment keeps the small batch's noise, so drift is below its steady value for a while."""
    run = simulate(TRUTH, [Phase(0, 64, 8e-4), Phase(1_024, 256, 8e-4)], 40_000, seed=1, limit=2_000.0)
    assert run.onset is not None
    assert run.onset > 1_024 + (2_000 - 1_024) * 4


def test_thresholds_are_log_normal() -> None:
    logs = np.log([threshold(TRUTH, seed) for seed in range(400)])
    assert logs.mean() == pytest.approx(math.log(2_000), abs=0.05)
    assert logs.std() == pytest.approx(0.3, abs=0.04)


def test_censored_run_has_no_onset_and_a_dead_one_earns_nothing() -> None:
    alive = simulate(TRUTH, [Phase(0, 64, 8e-4)], 3_000, seed=2, limit=math.inf)
    assert alive.onset is None
    assert [r["samples"] for r in alive.reports] == list(range(64, 3_009, 64))
    dead = simulate(TRUTH, [Phase(0, 64, 8e-4)], 8_000, seed=2, limit=1_000.0)
    assert np.mean([r["reward"] for r in dead.reports if r["samples"] > 3_000]) < 0.01


def test_rewards_have_the_mean_and_the_correlation_asked_for() -> None:
    run = simulate(
        TRUTH, [Phase(0, 64, 8e-4)], 64_000, seed=3, limit=math.inf, course=Course(0.3, 0.3, icc=0.4)
    )
    rewards = np.array([r["reward"] for r in run.reports])
    assert rewards.mean() == pytest.approx(0.3, abs=0.01)
    assert rewards.var() == pytest.approx((1 + 7 * 0.4) * 0.21 / 64, rel=0.15)


def test_the_same_seed_gives_the_same_run() -> None:
    one, two = (simulate(TRUTH, [Phase(0, 64, 8e-4)], 4_000, seed=5) for _ in range(2))
    assert one == two
    assert one != simulate(TRUTH, [Phase(0, 64, 8e-4)], 4_000, seed=6)
