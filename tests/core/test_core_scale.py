"""Clocks against families: rho against a numerical optimum, and which clock forecasts."""

import math

import numpy as np
import pytest

from twoclocks.core import drift, scale, threshold
from twoclocks.core.drift import AT_REST, EXPONENTS, DriftState, Setting
from twoclocks.core.forecast import stand, survivals
from twoclocks.core.plan import Leg
from twoclocks.core.threshold import Evidence, Posterior, learn

ONE = Setting(64, 8e-4, 4)


def drifted(steps: int, setting: Setting = ONE, displacement: float | None = None) -> DriftState:
    state = AT_REST
    for step in range(1, steps + 1):
        state = drift.advance(
            state,
            samples=step * setting.rollout_batch,
            setting=setting,
            window=256,
            beta2=0.0,
            displacement=None if displacement is None else displacement * step,
        )
    return state


def family(samples: list[float], eta0: float = ONE.eta0) -> tuple[Evidence, ...]:
    return tuple(
        Evidence(
            tuple(math.log(n) + q * math.log(eta0) for q in EXPONENTS),
            (1.0,) * len(EXPONENTS),
            math.log(eta0),
            True,
        )
        for n in samples
    )


def two_exponents(mu: float, omega: float) -> Posterior:
    """q is 1.5 or 2.5 with equal odds, mu and omega are known, in samples at ONE's eta0."""
    n = threshold.DRAWS
    index = np.where(np.arange(n) % 2 == 0, EXPONENTS.index(1.5), EXPONENTS.index(2.5)).astype(np.intp)
    return Posterior(EXPONENTS, math.log(ONE.eta0), index, np.full(n, mu), np.full(n, omega), 9, 0, 0.0)


@pytest.mark.parametrize(
    ("budget", "omega", "batch"), [(6_000.0, 0.2, 128), (4_800.0, 0.15, 96), (8_000.0, 0.4, 256)]
)
def test_rho_marks_the_switch_that_earns_most(budget: float, omega: float, batch: int) -> None:
    """theory/switch.py with an unknown exponent: at the best n_s, P(survive | switch) is 1 - rho."""
    posterior, to = two_exponents(math.log(4_000), omega), Setting(batch, 8e-4, 4)

    def at(n: float) -> tuple[scale.Scale, float]:
        steps = round(n / 64)
        here = scale.by_rule(drifted(steps), posterior, 0.0)
        calm = stand(posterior, here.present.log_x)
        return scale.Scale(
            **{f: getattr(here, f) for f in here.__slots__} | {"present": calm, "spread": 0.0}
        ), 64.0 * steps

    def earned(switch: float) -> float:
        n = np.linspace(0, budget, 3_001)
        total = 0.0
        for q in (1.5, 2.5):
            d = np.where(n < switch, n, switch + (n - switch) * (to.eta0 / ONE.eta0) ** q)
            s = np.exp(threshold.log_ndtr((math.log(4_000) - np.log(np.maximum(d, 1e-9))) / omega))
            total += (np.where(n < switch, ONE.eta0, to.eta0) * s).sum() / 2
        return total

    grid = np.arange(64, budget, 64)
    best = grid[int(np.argmax([earned(s) for s in grid]))]
    assert 200 < best < budget - 200
    here, n = at(best)
    left = budget - n
    rho = here.rho([Leg(ONE)], [Leg(to)], left)
    assert rho is not None
    survive = float(
        (here.present.weights * survivals(here.present, here.table([Leg(to)]).forward(left), 0.0)).sum()
    )
    assert survive == pytest.approx(1 - rho, abs=0.02)


def test_a_switch_that_saves_no_drift_has_no_rho() -> None:
    here = scale.by_rule(drifted(20), two_exponents(8.0, 0.3), 0.0)
    along = Setting(256, 16e-4, 4)  # the square-root rule: same eta0, same drift (THEORY.md 1.7)
    assert here.rho([Leg(ONE)], [Leg(along)], 5_000.0) is None
    assert here.rho([Leg(ONE)], [Leg(Setting(32, 8e-4, 4))], 5_000.0) is None
    assert here.rho([Leg(ONE)], [Leg(Setting(256, 8e-4, 4))], 5_000.0) is not None


def test_rule_clock_is_shown_in_equivalent_samples() -> None:
    here = scale.by_rule(drifted(20), learn(family([2_000, 3_000, 4_000]), EXPONENTS), 0.999)
    assert here.shown == pytest.approx(20 * 64)
    assert here.per_sample(ONE.eta0, 1) == pytest.approx(1.0)
    double = drifted(20, Setting(64, 16e-4, 4))
    there = scale.by_rule(double, learn(family([2_000, 3_000, 4_000]), EXPONENTS), 0.999)
    assert there.shown == pytest.approx(20 * 64 * 2 ** EXPONENTS[there.shown_index])


def test_displacement_is_used_where_it_predicts_clearly_better() -> None:
    samples = [1_000.0, 2_000.0, 4_000.0, 8_000.0, 3_000.0]
    steady = tuple(Evidence((math.log(5.0) + e,), (1.0,), 0.0, True) for e in (-0.02, 0.01, 0.0, 0.02, -0.01))
    state = drifted(30, displacement=0.05)
    chosen = scale.choose(state, family(samples), steady, 0.0)
    assert chosen is not None
    assert chosen.name == "displacement"
    assert chosen.shown == pytest.approx(1.5)
    assert chosen.per_sample(ONE.eta0, 1) == pytest.approx(0.05 / 64)
    left = chosen.table([Leg(ONE)]).backward(np.array([0]), np.array([5.0 ** (1 / chosen.power) - 1.5]))
    assert left[0] == pytest.approx(3.5 / 0.05 * 64, rel=1e-6)

    scattered = tuple(Evidence((math.log(5.0) + e,), (1.0,), 0.0, True) for e in (-1.0, 1.0, 0.0, 0.7, -0.7))
    kept = scale.choose(state, family([2_900, 3_000, 3_100, 3_050, 2_950]), scattered, 0.0)
    assert kept is not None
    assert kept.name == "rule"
    missing = scale.choose(state, family(samples), steady[:-1], 0.0)
    assert missing is not None
    assert missing.name == "rule"


def test_nothing_to_choose_without_family_or_drift() -> None:
    assert scale.choose(drifted(5), (), (), 0.999) is None
    assert scale.choose(AT_REST, family([2_000.0] * 3), (), 0.999) is None
    assert scale.choose(drifted(5, Setting(64, 0.0, 4)), family([2_000.0] * 3), (), 0.999) is None
    with pytest.raises(ValueError, match="drifted"):
        scale.by_rule(AT_REST, learn(family([2_000.0] * 3), EXPONENTS), 0.999)


def test_stale_second_moment_widens_the_rate() -> None:
    posterior = learn(family([2_000, 3_000, 4_000]), EXPONENTS)
    state = drifted(20)
    fresh = scale.by_rule(state, posterior, 0.999)
    switched = drift.advance(state, samples=20 * 64 + 512, setting=Setting(512, 8e-4, 4), window=256)
    assert scale.by_rule(switched, posterior, 0.999).spread > 1.5 * fresh.spread
