"""Drift yet to come, against numerical integration of its rate."""

import math

import numpy as np
import pytest
from scipy.integrate import quad

from twoclocks.core.drift import Setting
from twoclocks.core.plan import Leg, tabulate

EXPONENTS = (1.0, 2.5, 4.0)
FACTORS = np.array([1.0, 0.7, 2.0])
BETA2 = 0.999


def integral(setting: Setting, q: float, factor: float, moment: float, start: float, end: float) -> float:
    g = 1 / setting.batch
    k = -math.log(BETA2) * setting.updates / setting.rollout_batch

    def rate(n: float) -> float:
        return (
            setting.epochs * factor * setting.eta0**q * (1 + (moment / g - 1) * math.exp(-k * n)) ** (-q / 2)
        )

    return float(quad(rate, start, end, epsabs=0, epsrel=1e-9)[0])


@pytest.mark.parametrize("stale", [1.0, 8.0, 0.125])
@pytest.mark.parametrize("samples", [100.0, 20_000.0, 3e6])
def test_forward_is_the_integral_of_the_rate(stale: float, samples: float) -> None:
    setting = Setting(512, 8e-4, updates=4, epochs=2)
    moment = stale / setting.batch
    table = tabulate([Leg(setting)], EXPONENTS, FACTORS, moment, BETA2)
    expected = [integral(setting, q, f, moment, 0, samples) for q, f in zip(EXPONENTS, FACTORS, strict=True)]
    assert table.forward(samples) == pytest.approx(expected, rel=2e-3, abs=0)


def test_legs_carry_the_second_moment_on() -> None:
    one, two = Setting(64, 8e-4, 4), Setting(512, 8e-4, 4)
    table = tabulate([Leg(one, 1_000.0), Leg(two)], EXPONENTS, FACTORS, 1 / one.batch, BETA2)
    expected = [
        integral(one, q, f, 1 / one.batch, 0, 1_000) + integral(two, q, f, 1 / one.batch, 0, 9_000)
        for q, f in zip(EXPONENTS, FACTORS, strict=True)
    ]
    assert table.forward(10_000.0) == pytest.approx(expected, rel=2e-3, abs=0)


def test_three_legs_with_a_stale_start() -> None:
    a, b = Setting(64, 8e-4, 4), Setting(256, 4e-4, 4)
    v0 = 3 / a.batch
    k = -math.log(BETA2) * 4 / 64
    v1 = (1 / a.batch) * (1 + 2 * math.exp(-k * 5_000))
    table = tabulate([Leg(a, 5_000.0), Leg(b, 7_000.0), Leg(a)], (2.0,), np.ones(1), v0, BETA2)
    kb = -math.log(BETA2) * 4 / 256
    v2 = (1 / b.batch) * (1 + (v1 * b.batch - 1) * math.exp(-kb * 7_000))
    expected = (
        integral(a, 2.0, 1.0, v0, 0, 5_000)
        + integral(b, 2.0, 1.0, v1, 0, 7_000)
        + integral(a, 2.0, 1.0, v2, 0, 3_000)
    )
    assert table.forward(15_000.0) == pytest.approx([expected], rel=2e-3, abs=0)


def test_backward_undoes_forward() -> None:
    one, two = Setting(64, 8e-4, 4), Setting(512, 8e-4, 4)
    table = tabulate([Leg(one, 1_000.0), Leg(two)], EXPONENTS, FACTORS, 1 / one.batch, BETA2)
    for samples in (1.0, 999.0, 1_001.0, 50_000.0, 1e8):
        gain = table.forward(samples)
        back = table.backward(np.array([0, 1, 2]), gain)
        assert back == pytest.approx([samples] * 3, rel=1e-6, abs=0)


def test_without_memory_or_change_the_plan_is_a_straight_line() -> None:
    setting = Setting(64, 1e-3, 4)
    for beta2, moment in ((0.0, 5.0), (BETA2, 1 / setting.batch)):
        table = tabulate([Leg(setting)], (2.0,), np.ones(1), moment, beta2)
        assert table.forward(12_345.0) == pytest.approx([12_345 * setting.eta0**2])


def test_a_plan_that_stops_drifting_never_arrives() -> None:
    table = tabulate(
        [Leg(Setting(64, 1e-3), 100.0), Leg(Setting(64, 0.0))], (2.0,), np.ones(1), 1 / 64, BETA2
    )
    gain = table.forward(100.0)
    left = table.backward(np.array([0, 0]), np.array([gain[0] / 2, gain[0] * 2]))
    assert left[0] == pytest.approx(50.0)
    assert math.isinf(left[1])
