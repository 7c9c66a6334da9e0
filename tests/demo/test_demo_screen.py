"""The terminal's cells: numbers that fit, and states that say what they are."""

import pytest

from twoclocks.demo.screen import expectation
from twoclocks.wire import Forecast, ForecastStatus, Outlook


def forecast(status: ForecastStatus, *remaining: float | None) -> Forecast:
    quantiles = dict(zip(("0.1", "0.5", "0.9"), remaining, strict=True)) if remaining else {}
    stay = Outlook(rollout_batch=64, learning_rate=1e-4, drift_per_sample=1.0, quantiles=quantiles)
    known = stay if remaining else None
    return Forecast(status=status, reason="", step=1, samples=1_000, made_at=0.0, family="f", stay=known)


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (None, "no report yet"),
        (forecast(ForecastStatus.NONE), "cannot be known yet"),
        (forecast(ForecastStatus.UNCALIBRATED, 1.0, 2.0, 3.0), "uncalibrated"),
        (forecast(ForecastStatus.COLLAPSED), "collapsed"),
        (forecast(ForecastStatus.FORECAST, 500.0, 1_500.0, 8_999.4), "2,500 (1,500 to 9,999)"),
        (forecast(ForecastStatus.FORECAST, 9_000.0, 61_305.0, None), "62.3 k (10 k to never)"),
        (forecast(ForecastStatus.CONTRADICTED, 1.0, 2.0, 3.0), "1,002 (1,001 to 1,003) contradicted"),
    ],
)
def test_expectation(made: Forecast | None, text: str) -> None:
    assert expectation(made).plain == text
