"""Runs in every state a dashboard can show, made by pretend trainers that report to a real store.

A pretend trainer drifts by (eta0 / reference)^2 a sample, collapses at its threshold, and obeys directives
if it is told to. Time is an argument: the runs end where they are said to have ended, seconds before `now`.
"""

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from twoclocks.wire import Ack, AckState, Candidate, Finish, RunConfig, RunSpec, StepBatch, StepReport

REFERENCE = 2e-4 / math.sqrt(8)


@dataclass
class Pretend:
    """One run to be made; `threshold` is in samples at REFERENCE, `until` where its reports end."""

    run: str
    spec: RunSpec
    until: int
    threshold: float = math.inf
    batch: int = 64
    rate: float = 2e-4
    updates: int = 16
    top: float = 0.92
    learn: float = 6_000.0
    fall: float = 400.0
    seed: int = 0
    ago: float = 5.0
    seconds_per_sample: float = 0.06
    obey: bool = False
    extra: dict[str, float] = field(default_factory=dict)
    nan_at: tuple[int, ...] = ()
    finish: str | None = None
    reason: str | None = None
    stop_at_pending: str | None = None


def report(store: Any, pretend: Pretend, now: float, *, every: int = 4) -> None:
    """Create the run and report it to its end."""
    p, rng = pretend, np.random.default_rng([pretend.seed, 7])
    ended = now - p.ago
    store.put_run(p.run, p.spec, ended - p.until * p.seconds_per_sample)
    batch, rate, step, samples, damage, path = p.batch, p.rate, 0, 0, 0.0, 0.0
    onset: int | None = None
    waiting: list[StepReport] = []
    told = 0
    while samples < p.until:
        step, samples = step + 1, samples + batch
        b = batch * 2 / p.updates
        damage += batch * (rate / math.sqrt(b) / REFERENCE) ** 2
        path += batch * rate / math.sqrt(b)
        if onset is None and damage > p.threshold:
            onset = samples
        mean = 0.12 + (p.top - 0.12) * (1 - math.exp(-(onset or samples) / p.learn))
        dead = 0.0 if onset is None else 1 - math.exp(-(samples - onset) / p.fall)
        mean *= 1 - dead
        reward = float(rng.binomial(batch, min(max(mean, 0.002), 0.998)) / batch)
        time = ended - (p.until - samples) * p.seconds_per_sample
        metrics: dict[str, float] = {
            "entropy": 0.25
            + 0.9 * math.exp(-samples / (2 * p.learn)) * (1 + 0.06 * rng.standard_normal())
            + 1.4 * dead,
            "grad_norm": 0.5 * math.exp(0.25 * rng.standard_normal()) * (1 + 5 * dead),
            "kl_step": 0.004 * math.exp(0.3 * rng.standard_normal()) * (1 + 8 * dead),
            "clip_fraction": min(0.5, 0.02 * math.exp(0.4 * rng.standard_normal()) * (1 + 6 * dead)),
            "response_length": 9
            + 3 * (1 - math.exp(-samples / p.learn))
            + 0.4 * rng.standard_normal()
            + 6 * dead,
            "zero_variance_fraction": min(
                1.0, max(0.0, 0.1 + 0.4 * abs(mean - 0.5) + 0.03 * rng.standard_normal())
            ),
            "displacement": 30 * path**0.8,
            "regime": 0.24 * math.exp(0.05 * rng.standard_normal()),
            **{k: v * math.exp(0.1 * rng.standard_normal()) for k, v in p.extra.items()},
        }
        if samples // 2_048 != (samples - batch) // 2_048:
            metrics["eval_reward"] = float(np.clip(mean * 0.93 + 0.02 * rng.standard_normal(), 0, 1))
        if step in p.nan_at:
            metrics["grad_norm"] = math.nan
            reward = math.nan
        waiting.append(
            StepReport(
                step=step,
                samples=samples,
                rollout_batch=batch,
                learning_rate=rate,
                reward=reward,
                updates=p.updates,
                epochs=2,
                time=time,
                **metrics,
            )
        )
        if len(waiting) < every and samples < p.until:
            continue
        reply = store.ingest(p.run, StepBatch(attempt=p.spec.attempt, reports=waiting), time)
        waiting, asked = [], reply.directive
        if p.stop_at_pending == asked.kind:
            return
        if p.obey and asked.generation > told:
            told = asked.generation
            for state in (AckState.RECEIVED, AckState.APPLIED):
                store.ack(
                    p.run,
                    told,
                    Ack(
                        state=state,
                        attempt=p.spec.attempt,
                        step=step + 1,
                        time=time + 0.4,
                        rollout_batch=asked.rollout_batch,
                        learning_rate=asked.learning_rate,
                    ),
                    time,
                )
            if asked.kind == "switch_batch":
                batch, rate = asked.rollout_batch, asked.learning_rate
            if asked.kind == "stop":
                break
    if p.finish:
        store.finish(p.run, Finish(state=p.finish, attempt=p.spec.attempt, reason=p.reason), ended)


def spec(**given: Any) -> RunSpec:
    """A spec of the sorting family; `given` on top."""
    config = RunConfig(
        model="qwen2-100k",
        task="sort-5",
        updates_per_batch=16,
        epochs=2,
        group_size=8,
        parameters=103_040,
        weight_decay=0.0,
        **given.pop("config", {}),
    )
    base: dict[str, Any] = {
        "project": "demo",
        "config": config,
        "budget_samples": 16_000,
        "target_reward": 0.8,
        "window_samples": 512,
        "heartbeat_seconds": 1_200.0,
        "candidates": [Candidate(rollout_batch=512)],
    }
    return RunSpec(**{**base, **given})


def calibrate(store: Any, now: float) -> None:
    """Six past runs of the sorting family: five collapsed, one censored."""
    for k, threshold in enumerate((5_200.0, 6_900.0, 7_600.0, 8_800.0, 10_400.0, math.inf)):
        report(
            store,
            Pretend(
                f"calibration-{k}",
                spec(),
                until=12_000 if math.isinf(threshold) else int(threshold + 2_400),
                threshold=threshold,
                seed=k,
                ago=7_200.0 - 600 * k,
                finish="finished",
            ),
            now,
            every=16,
        )


def fill(store: Any, now: float, only: frozenset[str] | None = None) -> list[str]:
    """Fill the store with calibration runs and one in each state, or `only` those named; returns the
    names.
    """
    calibrate(store, now)
    big = {"model": "qwen2.5-7b", "task": "math-hard", "betas": (0.9, 0.999)}
    shown = [
        Pretend("healthy-run", spec(policy="advise"), until=2_240, seed=20, ago=4.0),
        Pretend("guided-3", spec(policy="act"), until=14_500, threshold=8_200.0, seed=21, ago=2.0, obey=True),
        Pretend(
            "pending-switch",
            spec(policy="act"),
            until=15_000,
            seed=22,
            ago=3.0,
            stop_at_pending="switch_batch",
        ),
        Pretend("unguided-near-the-edge", spec(candidates=[]), until=8_700, seed=23, ago=6.0),
        Pretend(
            "unguided-3",
            spec(candidates=[]),
            until=9_900,
            threshold=7_900.0,
            seed=24,
            ago=8.0,
            nan_at=(148, 149),
        ),
        Pretend("lost-on-node-7", spec(), until=3_200, seed=25, ago=1_460.0),
        Pretend(
            "control-3", spec(), until=16_000, rate=2e-4 / math.sqrt(8), seed=26, ago=900.0, finish="finished"
        ),
        Pretend(
            "oom", spec(), until=1_900, seed=27, ago=4_000.0, finish="failed", reason="CUDA out of memory"
        ),
        Pretend(
            "math-7b-b4096",
            RunSpec(
                project="reasoning",
                heartbeat_seconds=1_200.0,
                config=RunConfig(
                    **big,
                    updates_per_batch=4,
                    clip_low=0.2,
                    clip_high=0.28,
                    group_size=16,
                    parameters=7_615_616_512,
                ),
                budget_samples=3_000_000,
                target_reward=0.7,
                candidates=[Candidate(rollout_batch=16_384)],
            ),
            until=1_240_000,
            batch=4_096,
            rate=1e-6,
            updates=4,
            top=0.64,
            learn=600_000.0,
            seed=28,
            seconds_per_sample=0.04,
            ago=11.0,
            extra={"tool_calls": 1.4, "format_reward": 0.9, "verifier/latency_ms": 80.0},
        ),
    ]
    shown = [pretend for pretend in shown if only is None or pretend.run in only]
    for pretend in shown:
        report(store, pretend, now)
    store.put_run("just-created", spec(project="demo"), now - 20)
    return [p.run for p in shown] + ["just-created"]
