"""What the demonstration says of its runs is what the service stored."""

import pytest

pytest.importorskip("rich")

from twoclocks.demo.claim import Bound, verdict
from twoclocks.demo.recipe import BUDGET, calibration, control, pair
from twoclocks.demo.summary import HalfLife, Outcome, half_life
from twoclocks.wire import Forecast, ForecastStatus, Outlook


def forecast(samples: int, low: float | None, high: float | None, status: str = "forecast") -> Forecast:
    stay = Outlook(
        rollout_batch=64,
        learning_rate=1e-4,
        drift_per_sample=1.0,
        quantiles={"0.1": low, "0.5": low, "0.9": high},
    )
    return Forecast(
        status=ForecastStatus(status),
        reason="",
        step=samples // 64,
        samples=samples,
        made_at=0.0,
        family="f",
        stay=stay,
    )


def test_half_life_takes_the_last_forecast_before_half_of_the_life() -> None:
    made = [forecast(640, 100, 200), forecast(1_000, 500, 1_500), forecast(1_001, 1, 2)]
    assert half_life(made, 2_000) == HalfLife(1_000, "forecast", 1_500, 1_500, 2_500, covered=True)


def test_half_life_is_not_covered_when_the_collapse_lies_outside() -> None:
    assert half_life([forecast(1_000, 1_500, 3_000)], 2_000).covered is False  # type: ignore[union-attr]
    assert half_life([forecast(1_000, 100, 900)], 2_000).covered is False  # type: ignore[union-attr]


def test_half_life_out_of_reach_is_an_open_interval() -> None:
    assert half_life([forecast(1_000, 500, None)], 2_000).covered is True  # type: ignore[union-attr]
    assert half_life([forecast(1_000, None, None)], 2_000).covered is False  # type: ignore[union-attr]


def test_half_life_is_none_without_a_forecast_in_time() -> None:
    assert half_life([forecast(1_500, 1, 2), forecast(500, 1, 2, "none")], 2_000) is None


def outcome(role: str, collapsed_at: int | None, held_out: float, *, covered: bool = True) -> Outcome:
    half = HalfLife(1, "forecast", 1.0, 2.0, 3.0, covered) if collapsed_at else None
    return Outcome(f"{role}-1", 1, BUDGET, collapsed_at, half, 0.5, 0.1, held_out)


def test_verdict_counts_each_promise() -> None:
    good = {"unguided": outcome("unguided", 3_000, 0.0), "guided": outcome("guided", None, 0.9)}
    bad = {
        "unguided": outcome("unguided", 3_000, 0.5, covered=False),
        "guided": outcome("guided", 9_000, 0.1),
    }
    assert [b.count for b in verdict([good, good, bad])] == [3, 1, 2, 2]


def test_a_promise_scales_with_the_seeds() -> None:
    assert Bound("", 6, 6, True).holds(8)
    assert not Bound("", 5, 6, True).holds(8)
    assert not Bound("", 3, 2, False).holds(8)
    assert Bound("", 3, 6, True).holds(4)


def test_the_arms_differ_only_in_what_they_test() -> None:
    alone, guided = (arm.all_settings() for arm in pair(7))
    assert {name for name in alone if alone[name] != guided[name]} == {"policy"}
    assert (
        len({arm.seed for arm in calibration(7) + pair(7) + [control(7, 1_000)]}) == len(calibration(7)) + 1
    )
