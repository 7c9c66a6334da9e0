import math

import pytest

from twoclocks_dashboard import numbers as n

N = n.NARROW


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0"), (9_420, "9,420"), (12_000, "12,000"), (999_499, "999,499"), (1_240_000, f"1.24{N}M"),
        (12_400_000, f"12.4{N}M"), (999_600_000, f"1.00{N}G"), (None, "not reported"), (math.nan, "NaN"),
    ],
)  # fmt: skip
def test_counts_are_exact_until_a_million(number: float | None, text: str) -> None:
    assert n.count(number) == text


def test_forecast_counts_pretend_no_precision() -> None:
    assert n.about(4_342.7) == "4,340"
    assert n.about(103_326) == "103,000"
    assert n.about(538.4) == "538"
    assert n.about(None) == n.BEYOND
    assert n.between(1_115.0, None) == "1,120 to beyond reach"
    assert n.between(None, None) == n.BEYOND


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0.30712, "0.307"), (0, "0"), (-0.25, "−0.250"), (2e-5, "2e-5"), (123_456.0, "123,456"),
        (3.2e9, "3.2e9"), (math.nan, "NaN"), (math.inf, "∞"), (-math.inf, "−∞"), (None, "not reported"),
    ],
)  # fmt: skip
def test_values_keep_three_digits(number: float | None, text: str) -> None:
    assert n.value(number) == text


def test_a_dead_policy_has_a_reward_of_zero_not_of_six_hundred_thousandths() -> None:
    assert n.reward(6.15e-5) == "0.000"
    assert n.reward(-0.0525) == "−0.052"
    assert n.reward(12_345.6) == "12,346"
    assert n.reward(float("nan")) == "NaN"
    assert n.reward(None) == n.MISSING


def test_learning_rates_read_like_a_recipe() -> None:
    assert n.scientific(2e-4) == "2e-4"
    assert n.scientific(1.5e-6) == "1.5e-6"
    assert n.scientific(7.07106e-5) == "7.07e-5"


def test_shares_never_claim_certainty() -> None:
    assert n.share(0.9999) == f">{N}99{N}%"
    assert n.share(0.0001) == f"<{N}1{N}%"
    assert n.share(0.0) == f"0{N}%"
    assert n.share(1.0) == f"100{N}%"
    assert n.share(0.38) == f"38{N}%"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (45, "45 s"),
        (69, "1 min 9 s"),
        (12_000, "3 h 20 min"),
        (187_200, "2 d 4 h"),
        (3_600, "1 h"),
        (-3, "0 s"),
    ],
)
def test_durations_have_two_units(seconds: float, text: str) -> None:
    assert n.duration(seconds).replace(N, " ") == text


def test_times_are_utc_for_the_page_to_translate() -> None:
    assert n.moment(0.0) == "1970-01-01T00:00:00Z"
    assert n.moment(None) == ""


def test_a_moment_beyond_the_calendar_is_left_out() -> None:
    assert n.moment(1e18) == ""
    assert n.moment(-1e18) == ""
    assert n.moment(0.0) == "1970-01-01T00:00:00Z"
