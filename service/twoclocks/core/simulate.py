"""Training runs with a known truth: a damage clock, a log-normal threshold, and noisy grouped rewards.

The clock is written out update by update (Adam's second moment included), not taken from drift.py, so that
the two can be held against each other. A run's threshold is drawn once, log D ~ N(log median, omega^2) in
samples at `eta0_reference`; damage per sample is (effective eta0 / eta0_reference)^q. Reward follows a
saturating curve until the damage reaches D and dies exponentially after. A step's rewards are binary, in
groups of responses to one prompt whose difficulty is Beta distributed with intra-class correlation `icc`
(THEORY.md 3.3).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True)
class Truth:
    """A family's truth: median threshold (samples at `eta0_reference`), sd of its logarithm, exponent."""

    median: float = 3_000.0
    omega: float = 0.35
    q: float = 2.0
    eta0_reference: float = 2e-4


@dataclass(frozen=True, slots=True)
class Phase:
    """From `at` samples on, train at this setting."""

    at: int
    rollout_batch: int
    learning_rate: float


@dataclass(frozen=True, slots=True)
class Course:
    """How reward behaves: from `start` towards `top` over `learn` samples (0: flat), dying over `fall`
    samples.

    `dip` (from, to, factor) multiplies the mean reward for a while.
    """

    start: float = 0.2
    top: float = 0.2
    learn: float = 0.0
    fall: float = 150.0
    group_size: int = 8
    icc: float = 0.3
    dip: tuple[int, int, float] | None = None


@dataclass(frozen=True, slots=True)
class SimulatedRun:
    """Reports as dictionaries in the wire's names; the true threshold, and onset where it was reached."""

    reports: tuple[dict[str, Any], ...]
    threshold: float
    onset: int | None


CALM = Course()


def threshold(truth: Truth, seed: int) -> float:
    """Draw a run's threshold, in samples at the reference eta0."""
    return float(truth.median * math.exp(truth.omega * np.random.default_rng([seed, 1]).standard_normal()))


def simulate(
    truth: Truth,
    phases: Sequence[Phase],
    total: int,
    *,
    seed: int,
    course: Course = CALM,
    updates: int = 4,
    epochs: int = 1,
    beta2: float = 0.999,
    limit: float | None = None,
) -> SimulatedRun:
    """Return a run of `total` samples over `phases`; `limit` overrides the drawn threshold."""
    rng = np.random.default_rng([seed, 2])
    limit = threshold(truth, seed) if limit is None else limit
    samples, step, damage, moment = 0, 0, 0.0, 0.0
    onset: int | None = None
    reports: list[dict[str, Any]] = []
    travelled = 0.0
    while samples < total:
        phase = [p for p in phases if p.at <= samples][-1]
        batch = phase.rollout_batch * epochs / updates
        for update in range(updates):
            moment = 1 / batch if step == 0 and update == 0 else beta2 * moment + (1 - beta2) / batch
            moved = phase.learning_rate / (batch * math.sqrt(moment))
            gain = (phase.rollout_batch / updates) * epochs * (moved / truth.eta0_reference) ** truth.q
            if onset is None and damage + gain >= limit:
                part = (update + (limit - damage) / gain) / updates
                onset = samples + round(part * phase.rollout_batch)
            damage += gain
            travelled += (phase.rollout_batch / updates) * moved
        samples += phase.rollout_batch
        step += 1
        mean = _mean(course, samples, onset)
        rewards = _rewards(rng, mean, phase.rollout_batch, course)
        shares = rewards.mean(axis=1)
        dead = 0.0 if onset is None else 1 - math.exp(-max(0, samples - onset) / course.fall)
        reports.append(
            {
                "step": step,
                "samples": samples,
                "rollout_batch": phase.rollout_batch,
                "learning_rate": phase.learning_rate,
                "updates": updates,
                "epochs": epochs,
                "reward": float(rewards.mean()),
                "reward_std": float(rewards.std(axis=1).mean()),
                "zero_variance_fraction": float(((shares == 0) | (shares == 1)).mean()),
                "entropy": 0.8 * math.exp(0.05 * rng.standard_normal()) * (1 - 0.9 * dead),
                "grad_norm": 0.4 * math.exp(0.2 * rng.standard_normal()) * (1 + 3 * dead),
                "displacement": 30.0 * travelled**0.8,
            }
        )
    return SimulatedRun(tuple(reports), limit, onset)


def _mean(course: Course, samples: int, onset: int | None) -> float:
    """The true mean reward at `samples`."""
    until = samples if onset is None else min(samples, onset)
    grown = 1 - math.exp(-until / course.learn) if course.learn > 0 else 0.0
    mean = course.start + (course.top - course.start) * grown
    if course.dip is not None and course.dip[0] <= samples < course.dip[1]:
        mean *= course.dip[2]
    if onset is not None and samples > onset:
        mean *= math.exp(-(samples - onset) / course.fall)
    return mean


def _rewards(
    rng: np.random.Generator, mean: float, batch: int, course: Course
) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """Binary rewards, (prompts, group): difficulty Beta with the given mean and intra-class correlation."""
    prompts = max(1, batch // course.group_size)
    mean = min(0.999, max(1e-4, mean))
    weight = 1 / course.icc - 1
    difficulty = rng.beta(mean * weight, (1 - mean) * weight, size=(prompts, 1))
    return (rng.random((prompts, course.group_size)) < difficulty).astype(np.float64)
