"""Runs at the edge of what the clocks can say: rare rewards, no signal, absurd rates."""

import random

from twoclocks import clocks
from twoclocks.wire import ForecastStatus, RunConfig, RunSpec, StepReport


def report(step: int, reward: float, **metrics: float) -> StepReport:
    must = {"step": step, "samples": 64 * step, "rollout_batch": 64, "learning_rate": 1e-6, "reward": reward}
    return StepReport.model_validate(must | metrics)


def test_rare_success_is_no_collapse() -> None:
    """At 2 % success whole windows pass without one; in 40 runs of 12,800 responses none is called dead."""
    of = RunSpec(config=RunConfig(group_size=8), window_samples=256)
    alarms = 0
    for seed in range(40):
        rng = random.Random(seed)
        state = clocks.begin(of)
        for step in range(1, 201):
            state = clocks.fold(state, report(step, sum(rng.random() < 0.02 for _ in range(64)) / 64), of)
            alarms += state.onset.collapse is not None
    assert alarms == 0


def test_without_variance_in_any_group_nothing_moves_and_it_is_said() -> None:
    of = RunSpec()
    state = clocks.fold(clocks.begin(of), report(1, 0.0, zero_variance_fraction=1.0), of)
    made = clocks.forecast(state, of, [], family="f", made_at=0.0)
    assert made.status is ForecastStatus.NONE
    assert "no variance in reward" in made.reason
