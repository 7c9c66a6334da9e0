"""Onset detection on simulated rewards of known truth: no false alarm, the right place for a true one."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from twoclocks.core import onset
from twoclocks.core.noise import Noise, observe, prior_variance
from twoclocks.core.onset import WATCHING, Mark, OnsetState
from twoclocks.core.simulate import CALM, Course, Phase, SimulatedRun, Truth, simulate

TRUTH = Truth(eta0_reference=2e-4)
ALONE = [Phase(0, 64, 8e-4)]


def made(
    course: Course, total: int, seed: int, limit: float = math.inf, phases: list[Phase] = ALONE
) -> SimulatedRun:
    return simulate(TRUTH, phases, total, seed=seed, course=course, limit=limit)


def watch(
    reports: list[dict[str, Any]], window: int, baseline: float | None = None
) -> tuple[OnsetState, tuple[int, int] | None]:
    """Fold the reports; return the detector and (onset, alarm) in samples as first declared."""
    state, first, before, batch = WATCHING, None, 0, None
    for r in reports:
        size = r["rollout_batch"]
        state = onset.advance(
            state,
            mark=Mark(r["step"], r["samples"]),
            samples_before=before,
            rollout_batch=size,
            reward=r["reward"],
            metrics={k: v for k, v in r.items() if isinstance(v, float)},
            window=window,
            changed=batch is not None and batch != size,
            group_size=8,
            baseline=baseline,
        )
        before, batch = r["samples"], size
        if state.collapse and first is None:
            first = (state.collapse.onset.samples, state.collapse.alarm_samples)
    return state, first


@pytest.mark.parametrize("window", [256, 512])
@pytest.mark.parametrize(
    "course",
    [
        CALM,
        Course(icc=0.6),
        Course(top=0.9, learn=4_000),
        Course(start=0.6, top=0.45, learn=4_000),
        Course(top=0.6, learn=2_000, dip=(6_000, 7_500, 0.4)),
        Course(start=0.05, top=0.05),
    ],
    ids=["flat", "correlated", "rising", "sagging", "dip", "rare"],
)
def test_a_healthy_run_is_never_called_collapsed(course: Course, window: int) -> None:
    called = [watch(list(made(course, 12_000, seed).reports), window)[1] is not None for seed in range(12)]
    assert sum(called) == 0


@pytest.mark.parametrize("window", [256, 512])
def test_early_toy_collapses_are_found_where_they_began(window: int) -> None:
    errors, delays = [], []
    for seed, limit in enumerate(np.linspace(1_300, 6_800, 24)):
        run = made(CALM, 12_000, seed, float(limit))
        state, first = watch(list(run.reports), window)
        assert first is not None
        assert run.onset is not None
        assert state.collapse is not None
        assert state.collapse.cause == "drift"
        errors.append(first[0] - run.onset)
        delays.append(first[1] - run.onset)
    assert np.median(np.abs(errors)) <= window
    assert np.quantile(np.abs(errors), 0.9) <= 3 * window
    assert max(delays) <= 5 * window + 300


def test_a_long_run_that_rises_and_dies_is_found() -> None:
    for seed in range(6):
        run = made(Course(top=0.9, learn=5_000, fall=1_000), 30_000, seed, 15_000.0 + 500 * seed)
        state, first = watch(list(run.reports), 512)
        assert first is not None
        assert run.onset is not None
        assert abs(first[0] - run.onset) <= 2 * 512
        assert state.reference == pytest.approx(0.88, abs=0.08)


def test_a_switch_of_batch_is_no_collapse_and_hides_none() -> None:
    switch = [*ALONE, Phase(1_000, 512, 8e-4)]
    for seed in range(6):
        run = made(Course(top=0.7, learn=5_000), 12_000, seed, phases=switch)
        assert watch(list(run.reports), 256)[1] is None
    scaled = [*ALONE, Phase(1_000, 512, 8e-4 * math.sqrt(8))]
    run = made(Course(top=0.7, learn=5_000), 24_000, 1, 2_500.0, scaled)
    _, first = watch(list(run.reports), 256)
    assert run.onset is not None
    assert first is not None
    assert abs(first[0] - run.onset) <= 2 * 512


def flat(reward: float, steps: int, start: int = 0, **metrics: float) -> list[dict[str, Any]]:
    """Reports of 64 samples at a reward with a little noise, deterministic."""
    rng = np.random.default_rng(start)
    return [
        {
            "step": start + i + 1,
            "samples": 64 * (start + i + 1),
            "rollout_batch": 64,
            "reward": max(min(0.0, reward), reward + 0.03 * float(rng.standard_normal())),
            **metrics,
        }
        for i in range(steps)
    ]


def test_half_lost_needs_a_corroborator() -> None:
    lone = flat(0.6, 40, entropy=0.8) + flat(0.25, 30, 40, entropy=0.8)
    assert watch(lone, 256)[1] is None
    backed = flat(0.6, 40, entropy=0.8) + flat(0.25, 30, 40, entropy=0.2)
    state, first = watch(backed, 256)
    assert first is not None
    assert state.collapse is not None
    assert any("entropy" in line for line in state.collapse.evidence)
    assert abs(first[0] - 40 * 64) <= 512


@pytest.mark.parametrize(
    ("name", "healthy", "sick"),
    [
        ("kl_reference", None, None),
        ("response_length", 100.0, 260.0),
        ("truncated_fraction", 0.02, 0.3),
        ("grad_norm", 0.4, 2.5),
        ("zero_variance_fraction", 0.3, 0.95),
    ],
)
def test_each_corroborator_counts(name: str, healthy: float | None, sick: float | None) -> None:
    if healthy is None or sick is None:  # KL: a level that rises, then rises ten times as fast
        first = [{**r, name: 1e-4 * r["step"]} for r in flat(0.6, 40)]
        second = [{**r, name: 4e-3 + 1e-3 * (r["step"] - 40)} for r in flat(0.25, 30, 40)]
    else:
        first, second = flat(0.6, 40, **{name: healthy}), flat(0.25, 30, 40, **{name: sick})
    state, found = watch(first + second, 256)
    assert found is not None
    assert state.collapse is not None
    assert len(state.collapse.evidence) >= 2


def test_falling_entropy_alone_is_progress() -> None:
    reports = [
        {**r, "reward": min(0.9, 0.2 + 0.01 * r["step"]), "entropy": 0.8 * 0.97 ** r["step"]}
        for r in flat(0, 150)
    ]
    assert watch(reports, 256)[1] is None


def test_no_variance_with_a_flat_reward_is_a_plateau() -> None:
    assert (
        watch(
            flat(0.95, 60, zero_variance_fraction=0.5) + flat(0.95, 60, 60, zero_variance_fraction=1.0), 256
        )[1]
        is None
    )


def test_a_burst_of_nan_that_kills_is_infrastructure_and_one_alone_is_nothing() -> None:
    healthy = flat(0.5, 40, grad_norm=0.4)
    once = [dict(r) for r in healthy + flat(0.5, 40, 40, grad_norm=0.4)]
    once[45]["reward"] = once[46]["grad_norm"] = math.nan
    assert watch(once, 256)[1] is None
    burst = healthy + [{**r, "reward": math.nan, "grad_norm": math.nan} for r in flat(0.5, 20, 40)]
    state, first = watch(burst, 256)
    assert first is not None
    assert state.collapse is not None
    assert state.collapse.cause == "infrastructure"
    assert abs(first[0] - 40 * 64) <= 256


def test_a_recovery_revokes_the_collapse() -> None:
    state, first = watch(flat(0.6, 40) + flat(0.02, 24, 40) + flat(0.6, 30, 64), 256)
    assert first is not None
    assert state.collapse is None
    assert state.revoked == 1


def test_rewards_below_zero_are_judged_by_their_gain() -> None:
    risen = [{**r, "reward": -1 + min(1.5, 0.03 * r["step"]) + 0.02 * (r["step"] % 3)} for r in flat(0, 80)]
    fallen = [{**r, "grad_norm": 9.0} for r in flat(-1.0, 30, 80)]
    risen = [{**r, "grad_norm": 1.0} for r in risen]
    assert watch(risen, 256)[1] is None
    _, first = watch(risen + fallen, 256)
    assert first is not None
    assert abs(first[0] - 80 * 64) <= 512
    assert watch(flat(-1.0, 40) + flat(-1.02, 40, 40), 256)[0].loss is None


def test_a_decline_that_stops_is_a_new_regime_and_a_later_death_is_dated_from_there() -> None:
    reports = flat(0.9, 40) + flat(0.65, 200, 40) + flat(0.05, 30, 240)
    _, first = watch(reports, 256)
    assert first is not None
    assert abs(first[0] - 240 * 64) <= 512


def test_declared_baseline_floors_the_reference() -> None:
    """A run that dies inside its first window shows no fall; only the declared baseline can tell."""
    dead = flat(0.01, 40, grad_norm=0.1)
    assert watch(dead, 256)[1] is None
    state, first = watch(dead, 256, baseline=0.3)
    assert first is not None
    assert first[0] <= 256
    assert state.reference == pytest.approx(0.3)


def test_state_does_not_grow() -> None:
    reports = flat(0.5, 2_000, entropy=0.8, grad_norm=0.4)
    state, _ = watch(reports, 256)
    assert all(len(past) <= onset.HISTORY for past in state.history)
    assert replace(state, history=()) != WATCHING


def test_noise_is_the_variance_of_grouped_rewards() -> None:
    rng = np.random.default_rng(0)
    mean, icc, group, prompts = 0.3, 0.4, 8, 8
    noise = Noise()
    for _ in range(3_000):
        p = rng.beta(mean * (1 / icc - 1), (1 - mean) * (1 / icc - 1), prompts)
        noise = observe(noise, float(rng.binomial(group, p).mean() / group), group * prompts, group)
    expected = (1 + (group - 1) * icc) * mean * (1 - mean)
    assert noise.s2 == pytest.approx(expected, rel=0.35)
    assert noise.error(256) == pytest.approx(math.sqrt(noise.s2 / 256))


def test_default_window_has_the_wanted_error_and_is_bounded() -> None:
    assert onset.default_window(64, 0.2, 8, None) == int(prior_variance(0.2, 8) / 0.02**2)
    assert onset.default_window(4_096, 0.2, 8, None) == 4 * 4_096
    assert onset.default_window(8, 0.2, 8, None) == 32 * 8
    assert onset.default_window(64, 0.2, 8, 12_000) == 300
    assert onset.default_window(16, -3.0, None, None) == 16 * 32
