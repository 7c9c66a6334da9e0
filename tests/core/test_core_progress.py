"""The progress clock on curves whose way to the target is known."""

import math

import numpy as np
import pytest

from twoclocks.core import progress
from twoclocks.core.noise import UNKNOWN, Noise, observe
from twoclocks.core.progress import UNBEGUN, ProgressState

BATCH = 64


def curve(n: float, top: float = 0.9, start: float = 0.2, tau: float = 8_000) -> float:
    return top - (top - start) * math.exp(-n / tau)


def train(until: int, seed: int, target: float | None = 0.8, **shape: float) -> tuple[ProgressState, Noise]:
    rng = np.random.default_rng(seed)
    state, noise = UNBEGUN, UNKNOWN
    for n in range(BATCH, until + 1, BATCH):
        reward = rng.binomial(BATCH, min(1.0, max(0.0, curve(n, **shape)))) / BATCH
        noise = observe(noise, reward, BATCH, 1)
        state = progress.advance(
            state, samples=n, rollout_batch=BATCH, reward=reward, window=512, target=target
        )
    return state, noise


def test_level_is_inside_its_interval_about_as_often_as_it_says() -> None:
    inside = 0
    for seed in range(60):
        state, noise = train(6_000, seed, top=0.4, start=0.4)
        band = progress.interval(state, noise)
        assert band is not None
        inside += band[0] <= 0.4 <= band[1]
    assert 0.8 <= inside / 60 <= 1.0


def test_samples_to_the_target_cover_the_truth() -> None:
    truth = -8_000 * math.log((0.9 - 0.8) / 0.7)
    inside, middle = 0, []
    for seed in range(40):
        state, noise = train(8_000, seed)
        left = progress.way(state, noise, 0.8).remaining
        low, high = left["0.1"], left["0.9"]
        inside += (math.inf if low is None else low) <= truth - 8_000 <= (math.inf if high is None else high)
        middle.append(left["0.5"] if left["0.5"] is not None else math.inf)
    assert inside / 40 >= 0.65
    assert 0.5 <= np.median(middle) / (truth - 8_000) <= 2.0


def test_rate_per_sample_is_the_slope_of_the_curve() -> None:
    rates = [progress.way(*train(8_000, seed), 0.8).per_sample for seed in range(20)]
    slope = 0.7 / 8_000 * math.exp(-1)
    assert np.median([r for r in rates if r is not None]) == pytest.approx(slope, rel=0.35)


def test_a_plateau_below_the_target_cannot_be_known() -> None:
    state, noise = train(60_000, 1, target=0.95, top=0.5, tau=3_000)
    way = progress.way(state, noise, 0.95)
    assert way.remaining["0.5"] is None
    assert "cannot be known" in way.reason


def test_what_is_missing_is_said() -> None:
    assert "no finite reward" in progress.way(UNBEGUN, UNKNOWN, 0.8).reason
    assert progress.interval(UNBEGUN, UNKNOWN) is None
    assert "four windows" in progress.way(*train(1_000, 0), 0.8).reason
    way = progress.way(*train(8_000, 0, target=None), None)
    assert way.reason == "no target reward was declared"
    assert way.per_sample is not None


def test_target_and_peak_are_remembered() -> None:
    state, noise = train(40_000, 0, target=0.5)
    assert state.reached is not None
    assert curve(state.reached) == pytest.approx(0.5, abs=0.06)
    assert "was reached" in progress.way(state, noise, 0.5).reason
    assert state.peak is not None
    fallen = state
    for n in range(40_064, 48_064, BATCH):
        fallen = progress.advance(fallen, samples=n, rollout_batch=BATCH, reward=0.0, window=512, target=0.5)
    assert (fallen.peak, fallen.reached) == (state.peak, state.reached)
    assert fallen.level == pytest.approx(0, abs=1e-6)


def test_memory_is_bounded_and_merging_keeps_the_mean() -> None:
    state, _ = train(200_000, 0)
    assert len(state.knots) <= progress.KNOTS
    assert state.merged >= 1
    total = sum(w for _, _, w in state.knots) + state.filled[2]
    assert total == 200_000 // BATCH * BATCH
    mean = (sum(r * w for _, r, w in state.knots) + state.filled[1]) / total
    assert mean == pytest.approx(np.mean([curve(n) for n in range(64, 200_001, 64)]), abs=0.01)


def test_a_reward_that_is_not_finite_moves_only_the_count() -> None:
    state, _ = train(2_048, 0)
    after = progress.advance(state, samples=2_112, rollout_batch=64, reward=math.nan, window=512, target=None)
    assert (after.level, after.knots, after.samples) == (state.level, state.knots, 2_112)
