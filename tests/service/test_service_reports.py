"""Reports as rows: exact round trips, comparing, thinning, CSV."""

import csv
import io
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twoclocks.store import reports
from twoclocks.wire import StepColumns, StepReport

finite = st.floats(min_value=0, allow_nan=False, allow_infinity=False)
names = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_./:@%+ -]{0,20}", fullmatch=True).filter(
    lambda name: name not in StepReport.model_fields
)
reported = st.builds(
    lambda fields, metrics: StepReport.model_validate({**metrics, **fields}),
    st.fixed_dictionaries(
        {
            "step": st.integers(0, 2**53),
            "samples": st.integers(0, 2**53),
            "rollout_batch": st.integers(1, 2**53),
            "learning_rate": finite,
            "reward": st.floats(),
            "updates": st.integers(0, 2**53),
            "epochs": st.integers(1, 2**53),
            "time": st.none() | st.floats(allow_nan=False, allow_infinity=False),
        }
    ),
    st.dictionaries(names, st.none() | st.floats(), max_size=6),
)


def bits(value: float) -> str:
    return "nan" if math.isnan(value) else value.hex()


@given(reported)
def test_a_report_comes_back_bit_for_bit(report: StepReport) -> None:
    back = reports.from_columns(reports.encode(report))
    for name in reports.FIELDS:
        assert getattr(back, name) == getattr(report, name)
    assert {k: bits(v) for k, v in back.metrics.items()} == {k: bits(v) for k, v in report.metrics.items()}


@given(reported)
def test_equal_reports_have_equal_rows(report: StepReport) -> None:
    again = StepReport.model_validate_json(report.model_dump_json())
    assert reports.encode(again) == reports.encode(report)


def test_a_metric_that_was_not_measured_is_left_out_not_zero() -> None:
    given_null = StepReport(step=0, samples=1, rollout_batch=1, learning_rate=0.0, reward=0.0, kl=None)  # type: ignore[call-arg]
    left_out = StepReport(step=0, samples=1, rollout_batch=1, learning_rate=0.0, reward=0.0)
    assert reports.encode(given_null) == reports.encode(left_out)
    assert "kl" not in reports.from_columns(reports.encode(given_null)).metrics


@given(st.lists(st.floats(), max_size=300), st.integers(1, 60))
def test_thinning_keeps_ends_and_extremes(values: list[float], most: int) -> None:
    kept = list(reports.thin(values, most))
    assert kept == sorted(set(kept))
    assert len(kept) <= max(most, 4)
    if values:
        assert kept[0] == 0
        assert kept[-1] == len(values) - 1
        measured = [value for value in values if not math.isnan(value)]
        shown = [values[i] for i in kept if not math.isnan(values[i])]
        if measured:
            assert max(shown) == max(measured)
        if len(measured) == len(values):
            assert min(shown) == min(measured)
        assert any(math.isnan(values[i]) for i in kept) == (len(measured) < len(values))


def test_csv_tells_missing_from_nan() -> None:
    columns = StepColumns(
        run="a",
        total=2,
        attempt=[1, 1],
        step=[0, 1],
        samples=[64, 128],
        rollout_batch=[64, 64],
        learning_rate=[1e-6, 1e-6],
        time=[None, 12.5],
        metrics={"kl": [math.nan, None], "reward": [0.1, -math.inf]},
    )
    rows = list(csv.DictReader(io.StringIO("".join(reports.csv_lines(columns)))))
    assert rows[0]["kl"] == "NaN"
    assert rows[1]["kl"] == ""
    assert rows[0]["time"] == ""
    assert rows[1]["reward"] == "-Infinity"
    assert float(rows[0]["learning_rate"]) == 1e-6


@pytest.mark.parametrize(("value", "text"), [(1e22, "1e+22"), (0.1, "0.1"), (5, "5")])
def test_csv_numbers_read_back_exactly(value: float, text: str) -> None:
    columns = StepColumns(
        run="a",
        total=1,
        attempt=[1],
        step=[0],
        samples=[1],
        rollout_batch=[1],
        learning_rate=[1.0],
        time=[None],
        metrics={"x": [value]},
    )
    cell = list(reports.csv_lines(columns))[1].strip().rsplit(",", 1)[1]
    assert float(cell) == value
    assert float(text) == value
