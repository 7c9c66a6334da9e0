"""How long a fold and a forecast take; targets: 100 microseconds and 10 milliseconds at any length."""

import math
from typing import Any

import pytest

from twoclocks import clocks
from twoclocks.core.simulate import Phase, Truth, simulate
from twoclocks.wire import Candidate, FamilyMember, RunConfig, RunSpec, StepReport

SPEC = RunSpec(
    config=RunConfig(updates_per_batch=4, group_size=8),
    budget_samples=200_000,
    window_samples=512,
    target_reward=0.9,
    candidates=[Candidate(rollout_batch=256), Candidate(rollout_batch=512)],
)
PHASES = [Phase(0, 64, 8e-4)]


def folded(steps: int) -> tuple[clocks.ClockState, StepReport]:
    run = simulate(Truth(), PHASES, 64 * steps, seed=1, limit=math.inf)
    state = clocks.begin(SPEC)
    for report in run.reports:
        state = clocks.fold(state, StepReport(**report), SPEC)
    last = run.reports[-1] | {"step": steps + 1, "samples": 64 * (steps + 1)}
    return state, StepReport(**last)


def members() -> list[FamilyMember]:
    found = []
    for seed in range(10):
        run = simulate(Truth(), PHASES, 12_000, seed=seed)
        state = clocks.begin(SPEC)
        for report in run.reports:
            state = clocks.fold(state, StepReport(**report), SPEC)
        member = clocks.member(f"r{seed}", state, SPEC)
        assert member is not None
        found.append(member)
    return found


@pytest.mark.parametrize("steps", [100, 4_000])
def test_fold(benchmark: Any, steps: int) -> None:
    state, report = folded(steps)
    after = benchmark(clocks.fold, state, report, SPEC)
    assert after.reports == steps + 1


@pytest.mark.parametrize("steps", [20, 2_000])
def test_forecast(benchmark: Any, steps: int) -> None:
    state, _ = folded(steps)
    family = members()
    made = benchmark(clocks.forecast, state, SPEC, family, family="f", made_at=0.0)
    assert made.collapsed_runs >= 8


def test_clocks_document(benchmark: Any) -> None:
    state, _ = folded(1_000)
    told = benchmark(clocks.clocks_document, "r", state, SPEC, None)
    assert told.samples == 64_000
