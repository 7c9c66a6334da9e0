"""The drift clocks against THEORY.md's test vectors, a simulation update by update, and invariances."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twoclocks.core import drift
from twoclocks.core.drift import AT_REST, EXPONENTS, DriftState, Setting
from twoclocks.core.simulate import Phase, Truth, simulate

TWO = EXPONENTS.index(2.0)


def run(setting: Setting, steps: int, state: DriftState = AT_REST, **metrics: float) -> DriftState:
    for _ in range(steps):
        state = drift.advance(
            state, samples=state.samples + setting.rollout_batch, setting=setting, window=256, **metrics
        )
    return state


def test_vectors_of_the_theory() -> None:
    assert drift.zero_progress_batch(1e-3, 1.0, 100.0, 2.0) == pytest.approx(950)
    p1 = drift.progress_per_sample(64, 1e-3, 1.0, 100.0, 2.0)
    p2 = drift.progress_per_sample(512, 1e-3, 1.0, 100.0, 2.0)
    assert (p1, p2) == (pytest.approx(8.86e-4), pytest.approx(4.38e-4))
    d1, d2 = drift.drift_per_sample(64, 1e-3, 1, 256), drift.drift_per_sample(512, 1e-3, 1, 256)
    assert (d1, d2) == (pytest.approx(8e-4), pytest.approx(1e-3 / 3))
    assert drift.rho(p1, p2, d1, d2) == pytest.approx(0.7306, abs=1e-4)
    switch = drift.ns_quantile(60.0, d1, d2, 120_000)
    assert switch == pytest.approx(42_857.1, abs=0.1)
    assert switch is not None
    assert drift.n_fail_switch(60.0, d1, d2, switch) == pytest.approx(120_000)
    assert (60 / d1, 60 / d2) == (pytest.approx(75_000), pytest.approx(180_000))


def test_quantile_rule_knows_when_no_switch_is_needed_or_useful() -> None:
    assert drift.ns_quantile(100.0, 1e-3, 5e-4, 90_000) == 90_000
    assert drift.ns_quantile(10.0, 1e-3, 5e-4, 90_000) is None
    assert drift.ns_quantile(60.0, 1e-3, 2e-3, 90_000) is None
    assert drift.n_fail_switch(10.0, 1e-3, 5e-4, 20_000) == pytest.approx(10_000)


def test_saturating_progress_loses_first_order_gain() -> None:
    plain = drift.progress_per_sample(64, 1e-3, 1.0, 0.0, 0.0)
    assert drift.progress_per_sample(64, 1e-3, 1.0, 0.0, 0.0, saturation=64 / 3) == pytest.approx(plain / 2)


@pytest.mark.parametrize("p", [1.0, 2.0])
def test_one_update_adds_the_clock_step_of_the_theory(p: float) -> None:
    setting = Setting(64, 3e-4, updates=4)
    state = run(setting, 1, clip_fraction=0.25)
    expected = drift.clock_step(3e-4, setting.batch, updates=4, p=p, clipped=0.25)
    assert state.damage[EXPONENTS.index(p)] == pytest.approx(expected)


@pytest.mark.parametrize("q", EXPONENTS)
def test_invariant_in_the_batch_along_the_square_root_rule(q: float) -> None:
    i = EXPONENTS.index(q)
    small = run(Setting(32, 1e-4 * math.sqrt(32), updates=4), 512)
    large = run(Setting(512, 1e-4 * math.sqrt(512), updates=4), 32)
    assert small.samples == large.samples
    assert small.damage[i] == pytest.approx(large.damage[i], rel=1e-9)


def test_epochs_multiply_the_drift() -> None:
    once, twice = run(Setting(64, 1e-4, 4, 1), 10), run(Setting(64, 1e-4, 8, 2), 10)
    assert twice.damage[TWO] == pytest.approx(2 * once.damage[TWO])


@pytest.mark.parametrize("ratio", [8, 2, 1 / 4])
def test_transient_after_a_switch_is_that_of_theory_1_7(ratio: float) -> None:
    state = run(Setting(64, 1e-3), 50)
    after = Setting(int(64 * ratio), 1e-3)
    for t in range(1, 200):
        state = run(after, 1, state)
        expected = (1 + (ratio - 1) * 0.999**t) ** -0.5
        assert state.effective_eta0 / after.eta0 == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("q", [1.0, 2.0, 3.0])
def test_damage_agrees_with_an_update_by_update_simulation(q: float) -> None:
    """The simulator walks Adam's second moment through every update; the clock takes a step's middle."""
    truth = Truth(q=q, eta0_reference=1e-4)
    phases = [Phase(0, 64, 8e-4), Phase(2_000, 512, 8e-4), Phase(20_000, 128, 4e-4)]
    made = simulate(truth, phases, 40_000, seed=3, limit=2_500.0)
    state = AT_REST
    for report in made.reports:
        if made.onset is not None and report["samples"] > made.onset:
            break
        setting = Setting(report["rollout_batch"], report["learning_rate"], 4)
        state = drift.advance(state, samples=report["samples"], setting=setting, window=256)
    damage = state.damage[EXPONENTS.index(q)] / truth.eta0_reference**q
    assert made.onset is not None
    step = state.per_sample(EXPONENTS.index(q)) / truth.eta0_reference**q * state.setting.rollout_batch  # type: ignore[union-attr]
    assert damage == pytest.approx(made.threshold, abs=1.5 * step)


def test_what_was_not_measured_is_factor_one_and_never_zero() -> None:
    setting = Setting(64, 1e-4, 4)
    silent, clipped = run(setting, 5), run(setting, 5, clip_fraction=0.5)
    assert clipped.damage[TWO] == pytest.approx(silent.damage[TWO] / 2)
    assert silent.kept == 1.0


def test_groups_without_variance_slow_the_ballistic_clock_and_never_explode() -> None:
    setting = Setting(64, 1e-4, 4)
    full, half = run(setting, 5), run(setting, 5, zero_variance_fraction=0.75)
    assert half.damage[0] == pytest.approx(full.damage[0] / 2)
    assert half.damage[TWO] == pytest.approx(full.damage[TWO])
    dead = run(setting, 5, zero_variance_fraction=1.0)
    assert dead.damage[0] == 0
    assert all(d <= f * (1 + 1e-12) for d, f in zip(dead.damage, full.damage, strict=True))


def test_a_step_of_no_update_and_a_rate_of_zero_add_nothing() -> None:
    state = run(Setting(64, 1e-4, 4), 5)
    idle = run(Setting(64, 1e-4, 0), 3, state)
    assert idle.damage == state.damage
    assert idle.samples == state.samples + 3 * 64
    assert idle.setting == state.setting
    assert run(Setting(64, 0.0, 4), 3, state).damage == state.damage


def test_a_gap_between_reports_is_counted() -> None:
    setting = Setting(64, 1e-4, 1)
    gap = drift.advance(run(setting, 1), samples=64 * 10, setting=setting, window=256)
    assert gap.damage[TWO] == pytest.approx(run(setting, 10).damage[TWO])


def test_ratio_clock_needs_more_than_one_update() -> None:
    assert run(Setting(64, 1e-4, 1), 4, importance_ratio_rms=0.1).ratio is None
    assert run(Setting(64, 1e-4, 4), 4, importance_ratio_rms=0.1).ratio == pytest.approx(0.4)


def test_slope_is_one_until_the_setting_changes_and_falls_with_a_held_switch() -> None:
    state = run(Setting(64, 1e-4, 4), 50)
    assert state.slope(TWO) == pytest.approx(1.0)
    switched = run(Setting(512, 1e-4, 4), 4, state)
    assert 0 < switched.slope(TWO) < 0.3


@pytest.mark.parametrize(("power", "h"), [(0.5, 0.5), (0.8, 0.8), (1.0, 1.0), (1.6, 1.0)])
def test_growth_of_a_measured_clock(power: float, h: float) -> None:
    ring = tuple((n, 0.01 * n**power) for n in range(1_000, 9_000, 1_000))
    grown = drift.growth(ring)
    assert grown is not None
    assert (grown.h, grown.slope) == (pytest.approx(h), pytest.approx(power))
    if h == power:
        assert grown.spread == pytest.approx(0.0, abs=1e-6)
        x = ring[-1][1] ** (1 / h) + grown.rate * 4_000
        assert x**h == pytest.approx(0.01 * (ring[-1][0] + 4_000) ** power)


def test_growth_needs_three_points_and_a_rise() -> None:
    assert drift.growth(((1_000, 1.0), (2_000, 2.0))) is None
    assert drift.growth(((1_000, 2.0), (2_000, 2.0), (3_000, 2.0))) is None


def test_ring_starts_again_at_a_switch() -> None:
    state = AT_REST
    for step in range(1, 40):
        state = drift.advance(
            state, samples=64 * step, setting=Setting(64, 1e-3), window=128, displacement=0.1 * step
        )
    assert len(state.ring) == drift.RING
    switched = drift.advance(
        state, samples=64 * 39 + 512, setting=Setting(512, 1e-3), window=128, displacement=4.0
    )
    assert len(switched.ring) == 2


@given(
    st.lists(
        st.tuples(
            st.integers(1, 4_096),
            st.floats(0, 1e-2),
            st.integers(0, 64),
            st.none() | st.floats(-0.5, 1.5),
            st.none() | st.floats(0, 1),
        ),
        min_size=1,
        max_size=30,
    )
)
def test_damage_never_falls_and_stays_finite(
    steps: list[tuple[int, float, int, float | None, float | None]],
) -> None:
    state = AT_REST
    for batch, rate, updates, clipped, flat in steps:
        after = drift.advance(
            state,
            samples=state.samples + batch,
            setting=Setting(batch, rate, updates),
            window=256,
            clip_fraction=clipped,
            zero_variance_fraction=flat,
        )
        assert all(b >= a and math.isfinite(b) for a, b in zip(state.damage, after.damage, strict=True))
        state = after
