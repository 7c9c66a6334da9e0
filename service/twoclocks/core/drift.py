"""The drift clocks: how far the policy has been carried since the run began.

One optimizer update at learning rate eta on b responses carries a noise-dominated Adam policy by
dD = eta^p b^(1-p/2), which is eta0^p per sample with eta0 = eta / sqrt(b) (THEORY.md 1.4, equation 6), so
that N_fail = D / (E eta0^p) does not depend on the batch along the square-root rule.

**Why one exponent q.** THEORY.md 1.4 and 3.2 keep log eta0 as a covariate of log D, because the measured
slope of log N_fail on log eta0 is steeper than any p in [1, 2]. With log D = mu + gamma log eta0 on a run at
constant eta0, N = exp(mu) eta0^gamma / eta0^p: only q = p - gamma shows. Accumulating eta0^q per sample *as
damage* (a fatigue life: the share of life used by a sample is eta0^q / exp(mu)) says the same on such runs
and, unlike a covariate, goes on meaning something when the batch or the rate changes in mid-run. q is
unknown, so the damage of a grid of exponents is kept, and the threshold's posterior weighs them.

**Adam's transient** (THEORY.md 1.7). Adam divides by sqrt(v), and v, an average over updates with memory
1 / (1 - beta2), keeps the old batch's noise for a while. With v in units where a steady batch gives v = 1/b,
an update really moves eta sqrt((1/b) / v): the effective eta0 is eta0 sqrt((1/b) / v) = eta / (b sqrt(v)).
After a switch b1 -> b2 = r b1 this is THEORY's [1 + (r - 1) beta2^t]^(-1/2).

**Groups without variance** carry no gradient. THEORY.md 3.1 puts b (1 - f) for b: dD per sample is then
multiplied by (1 - f)^(1 - p/2), p at most 2. The excess q - 2 describes how a run's threshold depends on its
setting, not how one step moves, so it leaves f alone; that also keeps the factor in [0, 1] when f touches 1.

**Clipping**: a factor (1 - clipped fraction)^gamma (THEORY.md 3.1). A fraction that was not measured is
factor 1.

The other clocks are measured, not computed: `displacement` is the reported net norm of theta - theta0,
`ratio` sums importance_ratio_rms where a step has more than one update.
"""

import math
from dataclasses import dataclass, replace
from itertools import pairwise

EXPONENTS = (1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0)
CLIP_GAMMA = 1.0
NEGLIGIBLE = 1e-30
"""Learning rates up to this are 0: their fifth power is no number any more."""
RING = 9
"""Points kept of a measured clock, two a window: its rate is read over four windows."""


def eta0(learning_rate: float, batch: float) -> float:
    """Return learning_rate / sqrt(batch), the quantity that the square-root rule keeps (THEORY.md 1)."""
    return learning_rate / math.sqrt(batch)


def update_batch(rollout_batch: float, updates: int, epochs: int) -> float:
    """Return b, the responses behind one optimizer update (DESIGN 1); `updates` must be positive."""
    return rollout_batch * epochs / updates


def clock_step(
    learning_rate: float,
    batch: float,
    updates: int = 1,
    p: float = 1.0,
    clipped: float = 0.0,
    gamma: float = 1.0,
) -> float:
    """Return the drift of `updates` updates: eta^p b^(1-p/2) (1-f)^gamma each (THEORY.md 3.1, equation 6)."""
    return float(updates * learning_rate**p * batch ** (1 - p / 2) * (1 - clipped) ** gamma)


def progress_per_sample(
    batch: float, eta0: float, kappa: float, tau: float, alpha: float, saturation: float = math.inf
) -> float:
    """Return the expected gain per sample under Adam, THEORY.md equation (4).

    kappa is the first-order gain, tau the noise's curvature loss, alpha the signal's; `saturation` is the
    batch at which the gradient outgrows its noise (infinite: noise-dominated throughout, equation 2).
    """
    c = (1 + batch / saturation) ** -0.5
    return float(eta0 * c * kappa - 0.5 * (eta0 * c) ** 2 * (tau + alpha * batch))


def zero_progress_batch(eta0: float, kappa: float, tau: float, alpha: float) -> float:
    """Return B_0, where equation (2) gains nothing (THEORY.md 1.2, equation 5)."""
    return (2 * kappa - eta0 * tau) / (eta0 * alpha)


def drift_per_sample(
    batch: float, eta0: float, p: float = 1.0, clip_batch: float = math.inf, leak: float = 0.0
) -> float:
    """Return d(B) = eta0^p s^p, s the saturating clip of THEORY.md equation (7), B_clip = `clip_batch`."""
    shrink = (1 - leak) / (1 + batch / clip_batch) + leak
    return float((eta0 * shrink) ** p)


def n_fail_switch(threshold: float, d1: float, d2: float, switch_at: float) -> float:
    """Return the samples to failure with drift d1 a sample up to `switch_at`, d2 after (THEORY.md eq. 8)."""
    if threshold <= d1 * switch_at:
        return threshold / d1
    return switch_at + (threshold - d1 * switch_at) / d2


def ns_quantile(threshold: float, d1: float, d2: float, budget: float) -> float | None:
    """Return the latest switch that still ends the budget below `threshold` (THEORY.md equation 9).

    The budget itself when no switch is needed; None when no switch can save it.
    """
    if d1 * budget <= threshold:
        return budget
    if d2 >= d1 or d2 * budget > threshold:
        return None
    return (threshold - d2 * budget) / (d1 - d2)


def rho(p1: float, p2: float, d1: float, d2: float) -> float:
    """Return rho of THEORY.md equation (10): switch when P(survive | switch) falls to 1 - rho; d1 must not
    equal d2.

    1 or more: the old setting earns more progress per drift, never switch for failure's sake.
    """
    return (p1 / p2 - 1) / (d1 / d2 - 1)


@dataclass(frozen=True, slots=True)
class Setting:
    """What decides the drift of a sample: responses per step, learning rate, updates and epochs per step."""

    rollout_batch: int
    learning_rate: float
    updates: int = 1
    epochs: int = 1

    @property
    def batch(self) -> float:
        """Responses behind one update."""
        return update_batch(self.rollout_batch, self.updates, self.epochs)

    @property
    def eta0(self) -> float:
        """learning_rate / sqrt(update batch)."""
        return eta0(self.learning_rate, self.batch)

    def differs(self, other: "Setting", tolerance: float = 1e-6) -> bool:
        """Whether another batch or rate would be trained with (rates equal within `tolerance`, relative)."""
        return self.rollout_batch != other.rollout_batch or not math.isclose(
            self.learning_rate, other.learning_rate, rel_tol=tolerance
        )


@dataclass(frozen=True, slots=True)
class DriftState:
    """The hands of all drift clocks after some reports. `damage[i]` is x on exponent EXPONENTS[i]."""

    samples: int = 0
    damage: tuple[float, ...] = (0.0,) * len(EXPONENTS)
    setting: Setting | None = None
    first_eta0: float | None = None
    second_moment: float | None = None
    kept: float = 1.0
    signal: float = 1.0
    displacement: float | None = None
    ring: tuple[tuple[int, float], ...] = ()
    ratio: float | None = None

    @property
    def effective_eta0(self) -> float:
        """eta0 of the last update with Adam's transient in it; 0 before any update."""
        if self.setting is None or self.second_moment is None:
            return 0.0
        return self.setting.learning_rate / (self.setting.batch * math.sqrt(self.second_moment))

    def per_sample(self, index: int) -> float:
        """Drift per sample now on exponent EXPONENTS[index]."""
        return self.factor(EXPONENTS[index]) * float(self.effective_eta0 ** EXPONENTS[index])

    def factor(self, q: float) -> float:
        """E x clipping x zero-variance factor on exponent q: what multiplies the effective eta0^q."""
        if self.setting is None:
            return 0.0
        return self.setting.epochs * self.kept * float(self.signal ** (1 - min(q, 2.0) / 2))

    def slope(self, index: int) -> float:
        """d log x / d log n at the present rate: 1 for a run that never changed its setting."""
        x = self.damage[index]
        return self.samples * self.per_sample(index) / x if x > 0 else 1.0


AT_REST = DriftState()


def advance(
    state: DriftState,
    *,
    samples: int,
    setting: Setting,
    window: int,
    beta2: float = 0.999,
    clip_fraction: float | None = None,
    zero_variance_fraction: float | None = None,
    displacement: float | None = None,
    importance_ratio_rms: float | None = None,
) -> DriftState:
    """Return the clocks after one report, in O(1).

    `samples` is the run's count with this report in it; the report's drift is spread over the samples since
    the last one (a report that does not move the count adds its rollout batch). A step of no update adds no
    drift. None means not measured. `window` (samples) smooths the clipping and zero-variance factors.
    """
    gained = samples - state.samples if samples > state.samples else setting.rollout_batch
    reached = max(samples, state.samples)
    ring = state.ring
    if state.setting is not None and state.setting.differs(setting, 0.05):
        ring = ring[-1:]
    if displacement is not None and displacement > 0 and (not ring or 2 * (reached - ring[-1][0]) >= window):
        ring = (*ring, (reached, displacement))[-RING:]
    if setting.updates == 0:
        return replace(state, samples=reached, displacement=displacement or state.displacement, ring=ring)

    batch = setting.batch
    g = 1 / batch
    before = g if state.second_moment is None else state.second_moment
    middle = g + (before - g) * beta2 ** ((setting.updates + 1) / 2)
    kept = 1.0 if clip_fraction is None else max(0.0, 1 - clip_fraction) ** CLIP_GAMMA
    signal = 1.0 if zero_variance_fraction is None else min(1.0, max(0.0, 1 - zero_variance_fraction))
    effective = setting.learning_rate / (batch * math.sqrt(middle))
    weight = gained * setting.epochs * kept
    damage = tuple(
        x + weight * signal ** (1 - min(q, 2.0) / 2) * effective**q
        for x, q in zip(state.damage, EXPONENTS, strict=True)
    )
    fresh = 1.0 if state.setting is None else -math.expm1(-gained / window)
    ratio = state.ratio
    if importance_ratio_rms is not None and setting.updates > 1:
        ratio = (ratio or 0.0) + importance_ratio_rms
    return DriftState(
        samples=reached,
        damage=damage,
        setting=setting,
        first_eta0=state.first_eta0 or (setting.eta0 if setting.learning_rate > NEGLIGIBLE else None),
        second_moment=g + (before - g) * beta2**setting.updates,
        kept=state.kept + fresh * (kept - state.kept),
        signal=state.signal + fresh * (signal - state.signal),
        displacement=state.displacement if displacement is None else displacement,
        ring=ring,
        ratio=ratio,
    )


@dataclass(frozen=True, slots=True)
class Growth:
    """How a measured net displacement x grows: x^(1/h) rises by `rate` a sample at the present setting.

    h is the slope of log x on log n over the ring, held to [0.5, 1]: 1 is ballistic, 0.5 diffusive
    (THEORY.md 3.1). `spread` is the relative uncertainty of the rate, `slope` the raw d log x / d log n.
    """

    h: float
    rate: float
    spread: float
    slope: float


def growth(ring: tuple[tuple[int, float], ...]) -> Growth | None:
    """Return the growth of a measured clock; None with fewer than three window points, or without growth."""
    points = [(n, x) for n, x in ring if n > 0 and x > 0]
    if len(points) < 3:
        return None
    (n0, x0), (n1, x1) = points[0], points[-1]
    slope = math.log(x1 / x0) / math.log(n1 / n0)
    h = min(1.0, max(0.5, slope))
    steps = [(b ** (1 / h) - a ** (1 / h)) / (m - n) for (n, a), (m, b) in pairwise(points)]
    rate = (x1 ** (1 / h) - x0 ** (1 / h)) / (n1 - n0)
    if rate <= 0:
        return None
    variance = sum((s / rate - 1) ** 2 for s in steps) / max(1, len(steps) - 1)
    return Growth(h, rate, math.sqrt(variance / len(steps)), slope)
