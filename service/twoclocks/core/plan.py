"""Drift yet to come along a plan of settings, with Adam's transient, forwards and backwards.

On one setting the second moment relaxes as v(n) = g (1 + a exp(-k n)), g = 1/b, a = v(0)/g - 1,
k = -ln(beta2) updates / rollout_batch per sample (THEORY.md 1.7), so that drift per sample on exponent q is

    d_q(n) = f_q eta0^q (1 + a exp(-k n))^(-q/2)

with f_q the epochs, clipping and zero-variance factor. The integral has no closed form for a general q; it is
tabulated once on a few dozen knots for all exponents together and interpolated, exactly linear where a = 0.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from twoclocks.core.drift import Setting

Floats = NDArray[np.float64]
KNOTS = np.concatenate([np.zeros(1), np.geomspace(1e-4, 20.0, 80)])
"""Where the transient is sampled, in units of its memory 1/k: closely at first, where v may fall fast."""


@dataclass(frozen=True, slots=True)
class Leg:
    """One setting of a plan, held for `samples` (infinite for the last)."""

    setting: Setting
    samples: float = math.inf


@dataclass(frozen=True, slots=True)
class Table:
    """Drift gained against samples from now: `gain` (exponents, knots), then `tail` a sample."""

    samples: Floats
    gain: Floats
    tail: Floats

    def forward(self, samples: float) -> Floats:
        """Return the drift gained after `samples` more, one number an exponent."""
        if samples >= self.samples[-1]:
            return np.asarray(self.gain[:, -1] + self.tail * (samples - self.samples[-1]))
        return np.array([np.interp(samples, self.samples, row) for row in self.gain])

    def backward(self, exponent: NDArray[np.intp], gain: Floats) -> Floats:
        """Return the samples after which `exponent[i]` has gained `gain[i]`; infinite where it never will."""
        out = np.empty_like(gain)
        for i in range(len(self.gain)):
            mine = exponent == i
            wanted = gain[mine]
            inside = np.interp(wanted, self.gain[i], self.samples)
            beyond = wanted > self.gain[i, -1]
            with np.errstate(divide="ignore"):
                later = self.samples[-1] + (wanted - self.gain[i, -1]) / self.tail[i]
            out[mine] = np.where(beyond, later, inside)
        return out


def tabulate(
    legs: Sequence[Leg], exponents: Sequence[float], factors: Floats, second_moment: float, beta2: float
) -> Table:
    """Return the table of a plan that starts from Adam's `second_moment` (in units of 1/b).

    `factors` is f_q for one epoch-free sample, one an exponent; epochs are taken from each leg's setting.
    """
    q = np.asarray(exponents, dtype=np.float64)[:, None]
    v, start = second_moment, 0.0
    total = np.zeros((len(exponents), 1))
    samples, gains = [np.zeros(1)], [total]
    tail = np.zeros(len(exponents))
    for leg in legs:
        setting = leg.setting
        g = 1 / setting.batch
        a = v / g - 1
        k = -math.log(beta2) * setting.updates / setting.rollout_batch if 0 < beta2 < 1 else math.inf
        tail = factors * setting.epochs * setting.eta0 ** q[:, 0]
        length = leg.samples
        if abs(a) < 1e-9 or not math.isfinite(k):
            n = np.array([0.0, length]) if math.isfinite(length) else np.array([0.0])
        else:
            n = KNOTS / k
            n = n[n < length] if math.isfinite(length) else n
            n = np.append(n, length) if math.isfinite(length) else n
        shape = (
            (1 + a * np.exp(-k * n)) ** (-q / 2) if math.isfinite(k) else np.ones((len(exponents), len(n)))
        )
        pieces = np.diff(n) * (shape[:, 1:] + shape[:, :-1]) / 2
        gain = total + tail[:, None] * np.concatenate(
            [np.zeros((len(exponents), 1)), np.cumsum(pieces, 1)], 1
        )
        samples.append(start + n[1:])
        gains.append(gain[:, 1:])
        if not math.isfinite(length):
            break
        total, start = gain[:, -1:], start + length
        v = g * (1 + a * math.exp(-k * length)) if math.isfinite(k) else g
    return Table(np.concatenate(samples), np.concatenate(gains, axis=1), tail)
