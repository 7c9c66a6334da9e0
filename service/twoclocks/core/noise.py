"""How noisy a step's mean reward is, without assuming anything about groups.

Responses to one prompt share its difficulty, so the variance of a step's mean is deff r (1 - r) / B with
deff = 1 + (K - 1) ICC (THEORY.md 3.3). Neither ICC nor the reward's scale is known; successive differences
of step means measure the whole of it: E[(r_t - r_{t-1})^2] = s2 (1/B_t + 1/B_{t-1}) around any slow trend.
s2, the variance *per response*, is their running mean, begun with a prior worth eight differences for
rewards in [0, 1] (ICC 0.3, r kept within [0.1, 0.9]) and forgetting beyond about fifty. The standard error
of a mean over n responses is sqrt(s2 / n).
"""

import math
from dataclasses import dataclass

PRIOR_WEIGHT = 8.0
MEMORY = 50.0
ICC = 0.3


@dataclass(frozen=True, slots=True)
class Noise:
    """Variance per response `s2` worth `weight` differences, and the last step's mean and size."""

    s2: float = 0.0
    weight: float = 0.0
    last: float | None = None
    last_batch: int = 1

    def error(self, responses: float) -> float:
        """Standard error of a mean reward over `responses`."""
        return math.sqrt(self.s2 / responses)


UNKNOWN = Noise()


def design_effect(group_size: int | None) -> float:
    """Return by how much the responses of a group say less than as many independent ones would."""
    return 1 + ((group_size or 8) - 1) * ICC


def prior_variance(reward: float, group_size: int | None) -> float:
    """Return deff r (1 - r) for a binary reward of about `reward` (THEORY.md 3.3), groups of 8 if unknown."""
    r = min(0.9, max(0.1, reward))
    return design_effect(group_size) * r * (1 - r)


def observe(noise: Noise, reward: float, batch: int, group_size: int | None) -> Noise:
    """Return the noise after one more finite step mean."""
    if noise.last is None:
        if 0 <= reward <= 1:
            return Noise(prior_variance(reward, group_size), PRIOR_WEIGHT, reward, batch)
        return Noise(0.0, 0.0, reward, batch)
    seen = (reward - noise.last) ** 2 / (1 / batch + 1 / noise.last_batch)
    weight = min(MEMORY, noise.weight + 1)
    return Noise(noise.s2 + (seen - noise.s2) / weight, weight, reward, batch)
