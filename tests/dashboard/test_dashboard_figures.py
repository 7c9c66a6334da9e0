import json
import math
from typing import Any

import plotly.graph_objects as go
import pytest

from twoclocks.wire import ForecastStatus, Onset, RunState
from twoclocks_dashboard import outlook, series
from twoclocks_dashboard.figures import SMALL, metric_names, run_figures
from twoclocks_dashboard.palette import DARK, LIGHT


def trace(figure: dict[str, Any], name: str) -> dict[str, Any]:
    found = [t for t in figure["data"] if t["name"] == name]
    assert len(found) == 1, [t["name"] for t in figure["data"]]
    return found[0]


def drawn(
    fake: Any, run: Any, forecasts: Any = (), rewards: Any = (0.1, 0.2), **given: Any
) -> dict[str, Any]:
    return run_figures(run, fake.steps(run.run, list(rewards), **given), list(forecasts), LIGHT)


def test_the_way_starts_at_the_present_drift_and_ends_in_the_band(fake: Any) -> None:
    made = fake.forecast()
    figure = drawn(fake, fake.summary(failure=made), [made])["drift"]
    way = trace(figure, "forecast")
    assert (way["x"][0], way["y"][0]) == (2_000, 2_000)
    assert way["x"][1:] == [2_500, 3_000, 5_000, 9_000, 11_000]
    assert way["y"][1:] == [2_500, 3_000, 5_000, 9_000, 11_000]
    now = trace(figure, "now")
    assert (now["x"], now["y"]) == ([2_000], [2_000])


def test_the_band_is_the_thresholds_interval_and_its_shadow_that_of_the_samples(fake: Any) -> None:
    made = fake.forecast()
    figure = drawn(fake, fake.summary(failure=made), [made])["drift"]
    band = trace(figure, "threshold, 80 %")
    assert (min(band["y"]), max(band["y"])) == (3_000, 9_000)
    shadow = trace(figure, "collapse, 80 %")
    assert (min(shadow["x"]), max(shadow["x"])) == (2_000 + 1_000, 2_000 + 7_000)
    assert min(shadow["y"]) == 0
    median = trace(figure, "collapse, median")
    assert median["x"] == [5_000, 5_000]
    assert median["y"] == [0, 5_000]


def test_what_never_collapses_within_reach_leaves_the_shadow_open(fake: Any) -> None:
    quantiles = {**fake.QUANTILES, "0.9": None, "0.95": None}
    made = fake.forecast(stay=fake.outlook(quantiles=quantiles))
    figure = drawn(fake, fake.summary(failure=made), [made])["drift"]
    end = figure["layout"]["xaxis"]["range"][1]
    assert max(trace(figure, "collapse, 80 %")["x"]) == pytest.approx(end)
    assert len(trace(figure, "forecast")["x"]) == 4


def test_a_guess_is_named_and_coloured_as_one(fake: Any) -> None:
    made = fake.forecast(status=ForecastStatus.UNCALIBRATED, collapsed_runs=1)
    figure = drawn(fake, fake.summary(failure=made), [made])["drift"]
    assert trace(figure, "forecast (uncalibrated)")["line"]["color"] == LIGHT.guess
    assert trace(figure, "threshold, 80 % (uncalibrated)")["fillcolor"] == LIGHT.guess_soft


@pytest.mark.parametrize("over", ["collapsed", "ended"])
def test_nothing_is_forecast_for_a_run_that_is_over(fake: Any, over: str) -> None:
    made = fake.forecast()
    onset = Onset(step=20, samples=1_280, alarm_step=28, alarm_samples=1_792)
    run = (
        fake.summary(failure=made, onset=onset)
        if over == "collapsed"
        else fake.summary(failure=made, state=RunState.FINISHED, ended_at=fake.NOW)
    )
    figure = drawn(fake, run, [made])["drift"]
    assert not [t for t in figure["data"] if t["name"].startswith(("forecast", "collapse"))]
    assert figure["layout"]["xaxis"]["range"][1] == pytest.approx(2_080)


def test_nan_is_a_cross_and_never_a_point(fake: Any) -> None:
    run = fake.summary()
    figures = drawn(
        fake,
        run,
        rewards=[0.1, math.nan, None, math.inf, 0.5],
        metrics={"entropy": [1.0, 1.1, None, math.nan, 1.2]},
    )
    reward = figures["reward"]
    assert trace(reward, "each step")["y"] == [0.1, None, None, None, 0.5]
    crosses = trace(reward, "NaN or infinite")
    assert crosses["x"] == [128, 256]
    assert crosses["text"] == ["nan", "inf"]
    assert crosses["yaxis"] == "y2"
    assert trace(figures["metric:entropy"], "NaN or infinite")["x"] == [256]
    json.dumps(figures, allow_nan=False)


def test_smoothing_weighs_as_the_progress_clock_does() -> None:
    means = series.smoothed([64, 128, 192], [1.0, 0.0, math.nan], 128)
    assert means[0] == 1.0
    assert means[1] == pytest.approx(math.exp(-0.5))
    assert means[2] is None


def test_an_empty_run_says_so_in_every_chart(fake: Any) -> None:
    run = fake.summary(samples=0, reports=0, step=None, rollout_batch=None, learning_rate=None)
    figures = run_figures(run, fake.steps(run.run, []), [], LIGHT)
    assert set(figures) == {"reward", "drift", "forecasts"}
    assert all(set(figure) == {"empty"} for figure in figures.values())


def test_the_target_has_its_interval_of_samples(fake: Any) -> None:
    run = fake.summary(progress=fake.learning())
    figure = drawn(fake, run)["reward"]
    way = trace(figure, "target reached, 80 %")
    assert way["x"] == [4_000, 8_500]
    assert way["y"] == [0.8, 0.8]
    reached = fake.summary(progress=fake.learning(reached_at_samples=1_500, remaining={}))
    assert not [t for t in drawn(fake, reached)["reward"]["data"] if t["name"].startswith("target")]


def test_held_out_reward_is_drawn_where_it_was_measured(fake: Any) -> None:
    figure = drawn(
        fake, fake.summary(), rewards=[0.1, 0.2, 0.3], metrics={"eval_reward": [None, 0.15, None]}
    )["reward"]
    held_out = trace(figure, "held out")
    assert (held_out["x"], held_out["y"]) == ([128], [0.15])


def test_attempts_switches_and_the_collapse_are_lines_on_every_chart(fake: Any) -> None:
    onset = Onset(step=5, samples=300, alarm_step=6, alarm_samples=384)
    run = fake.summary(onset=onset)
    columns = fake.steps(
        run.run, [0.1] * 6, attempt=[1, 1, 2, 2, 2, 2], rollout_batch=[64, 64, 64, 64, 512, 512],
        learning_rate=[2e-4, 2e-4, 2e-4, 1e-4, 1e-4, 1.01e-4], metrics={"entropy": [1.0] * 6},
    )  # fmt: skip
    marks = series.marks(run, columns)
    assert [(m.samples, m.text, m.kind) for m in marks] == [
        (128, "new attempt", "attempt"),
        (192, "rate 1e-4", "switch"),
        (256, "batch 512", "switch"),
        (300, "collapse", "onset"),
    ]
    figures = run_figures(run, columns, [fake.forecast()], LIGHT)
    for name in ("reward", "drift", "metric:entropy"):
        assert [s["x0"] for s in figures[name]["layout"]["shapes"] if s["yref"] == "paper"] == [
            128,
            192,
            256,
            300,
        ]


def test_the_trail_follows_the_live_path_in_one_unit(fake: Any) -> None:
    def at(samples: int, drift: float, rate: float = 1.0) -> Any:
        return fake.forecast(samples=samples, drift=drift, stay=fake.outlook(drift_per_sample=rate))

    assert series.trail([at(100, 100), at(200, 200), at(300, 300), at(150, 150), at(250, 250)]) == [
        (100, 100), (150, 150), (250, 250),
    ]  # fmt: skip
    # The family has learned: the unit is half as large from 200 on, and drift itself did not jump.
    assert series.trail([at(100, 100), at(200, 400, 2.0), at(300, 600, 2.0)]) == [
        (100, pytest.approx(200)), (200, 400), (300, 600),
    ]  # fmt: skip
    other = fake.forecast(samples=50, clock="displacement", drift=3.0)
    assert series.trail([other, at(100, 100)]) == [(100, 100)]
    assert series.trail([]) == []


def test_earlier_forecasts_are_drawn_in_samples_since_the_beginning(fake: Any) -> None:
    made = [fake.forecast(samples=n) for n in (1_000, 2_000)]
    figure = outlook.history(fake.summary(), made, LIGHT)
    assert trace(figure, "forecast, median")["y"] == [4_000, 5_000]
    assert trace(figure, "forecast, 80 %")["y"] == [2_000, 3_000, 9_000, 8_000]
    assert set(outlook.history(fake.summary(), made[:1], LIGHT)) == {"empty"}


def test_pace_is_read_from_reports_that_carry_a_time(fake: Any) -> None:
    assert series.pace(fake.steps("r", [0.1] * 5)) == pytest.approx(4 / 64)
    assert series.pace(fake.steps("r", [0.1] * 3, time=[None, 1.0, None])) is None
    assert series.pace(fake.steps("r", [])) is None


def test_many_metrics_wait_until_they_are_asked_for(fake: Any) -> None:
    metrics = {f"own/{i:02d}": [1.0, 2.0] for i in range(20)} | {"entropy": [1.0, 0.9]}
    run, columns = fake.summary(), fake.steps("run-1", [0.1, 0.2], metrics=metrics)
    assert metric_names(columns)[0] == "entropy"
    few = run_figures(run, columns, [], LIGHT)
    assert len([name for name in few if name.startswith("metric:")]) == SMALL
    every = run_figures(run, columns, [], LIGHT, everything=True)
    assert len([name for name in every if name.startswith("metric:")]) == 21


@pytest.mark.parametrize("colours", [LIGHT, DARK])
def test_plotly_knows_every_property(fake: Any, colours: Any) -> None:
    made = [fake.forecast(samples=n) for n in (1_000, 2_000)]
    run = fake.summary(failure=made[-1], progress=fake.learning())
    columns = fake.steps(
        run.run, [0.1, math.nan, 0.3], metrics={"entropy": [1, 2, 3], "eval_reward": [None, 0.2, None]}
    )
    for figure in run_figures(run, columns, made, colours).values():
        made_by_plotly = go.Figure(figure).to_dict()
        assert made_by_plotly["layout"]["paper_bgcolor"] == "rgba(0,0,0,0)"
        assert made_by_plotly["layout"]["uirevision"] == run.run
