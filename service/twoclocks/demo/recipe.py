"""Every number of the demonstration: which runs, with which settings, in which order.

The task is the shipped base's: sort five digits. The verifier errs in 15 % of its verdicts, one rollout batch
is used for 32 updates, and nothing is clipped: the policy learns, drifts, and collapses. The runs of one
demonstration share a family; the calibration runs come first and give it a threshold, then the same seed is
trained unguided and guided. A control holds the batch and lowers the rate, when the guided run switched, to
the eta0 which that switch gave: it tells the batch from the rate.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Role = Literal["calibration", "unguided", "guided", "control"]

ROLLOUT_BATCH = 64
SWITCH_BATCH = 512
LEARNING_RATE = 1.25e-4
BUDGET = 10_000
CALIBRATION_RUNS = 6
SETTINGS: Mapping[str, Any] = {
    "task": "sort",
    "group_size": 8,
    "updates_per_batch": 32,
    "epochs": 4,
    "verdict_noise": 0.15,
    "window_samples": 256,
    "heartbeat_seconds": 60,
    "budget_samples": BUDGET,
    "target_reward": 0.8,
    "eval_every_samples": 2_048,
    "risk": 0.1,
    "threads": 1,
}
CANDIDATE = {"rollout_batch": SWITCH_BATCH, "rule": "held"}
PAIR: tuple[tuple[Role, str], ...] = (("unguided", "advise"), ("guided", "act"))


@dataclass(frozen=True)
class Arm:
    """One training run of the demonstration."""

    role: Role
    seed: int
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The run's name at the service."""
        return f"{self.role}-{self.seed}"

    def all_settings(self) -> dict[str, Any]:
        """Every setting of the run by its name in the trainer's configuration."""
        usual = {"rollout_batch": ROLLOUT_BATCH, "learning_rate": LEARNING_RATE, **SETTINGS}
        return {**usual, "seed": self.seed, **self.settings}

    @property
    def budget(self) -> int:
        """Samples after which the run ends."""
        return int(self.all_settings()["budget_samples"])


def calibration(seed: int) -> list[Arm]:
    """The runs that give the family its threshold, on seeds that no other run uses."""
    seeds = range(1_000 * seed, 1_000 * seed + CALIBRATION_RUNS)
    return [Arm("calibration", number, {"policy": "advise"}) for number in seeds]


def pair(seed: int) -> list[Arm]:
    """The same seed twice: left alone, and guided by directives."""
    return [Arm(role, seed, {"policy": policy, "candidates": [CANDIDATE]}) for role, policy in PAIR]


def control(seed: int, at_samples: int) -> Arm:
    """The same seed, the batch held and the rate lowered at `at_samples` by a fixed schedule.

    It accepts any risk: nothing but its schedule may move it.
    """
    lowered = LEARNING_RATE / math.sqrt(SWITCH_BATCH / ROLLOUT_BATCH)
    switch = {"at_samples": at_samples, "rollout_batch": ROLLOUT_BATCH, "learning_rate": lowered}
    return Arm("control", seed, {"policy": "act", "schedule": [switch], "risk": 0.99})
