"""Charts of a run as plotly documents: wire models in, JSON-ready dictionaries out. Pure; plotly draws in the
browser.

Every figure is `{"data": [...], "layout": {...}}`, or `{"empty": sentence}` where there is nothing to draw
yet. No number in them is NaN or infinite: what was reported so is drawn as a cross at the foot of its
chart.
"""

import math
from collections.abc import Sequence
from typing import Any

from twoclocks.wire import CANONICAL_METRICS, Forecast, ForecastStatus, RunSummary, StepColumns
from twoclocks_dashboard import numbers, series
from twoclocks_dashboard.canvas import Figure, crosses, layout, line, ruler, span
from twoclocks_dashboard.dials import living
from twoclocks_dashboard.outlook import drift, history, horizon
from twoclocks_dashboard.palette import Palette
from twoclocks_dashboard.series import Mark

SMALL = 12
CROWD = 80
CUMULATIVE = frozenset({"displacement", "tokens"})
"""Small multiples shown at once; the others on demand."""


def run_figures(
    run: RunSummary,
    columns: StepColumns,
    forecasts: Sequence[Forecast],
    palette: Palette,
    *,
    everything: bool = False,
) -> dict[str, Figure]:
    """Every chart of the run's page by its id: reward, drift, forecasts, and `metric:<name>` each."""
    marks = series.marks(run, columns)
    end = horizon(run)
    figures = {
        "reward": reward(run, columns, marks, palette, end),
        "drift": drift(run, forecasts, marks, palette, end),
        "forecasts": history(run, forecasts, palette),
    }
    shown = metric_names(columns) if everything else metric_names(columns)[:SMALL]
    for name in shown:
        figures[f"metric:{name}"] = metric(run, columns, name, marks, palette)
    return figures


def metric_names(columns: StepColumns) -> list[str]:
    """Reported metrics that have a small chart: the understood ones first, in the wire's order."""
    known = [name for name in CANONICAL_METRICS if name in columns.metrics]
    others = sorted(name for name in columns.metrics if name not in CANONICAL_METRICS)
    return [name for name in known + others if name not in {"reward", "eval_reward"}]


def reward(
    run: RunSummary, columns: StepColumns, marks: Sequence[Mark], palette: Palette, end: float
) -> Figure:
    """Reward of each step and smoothed, held-out reward, the target with the way to it, the collapse
    window.
    """
    if not columns.step:
        return {"empty": "No reward yet: the first report draws it."}
    rewards, window = columns.metrics.get("reward", [None] * len(columns.step)), series.window(run)
    x = columns.samples
    data = [
        {
            **line(x, series.finite(rewards), "each step", palette.progress),
            "mode": "markers",
            "marker": {"color": palette.progress, "size": 4, "opacity": 0.28},
        },
        line(
            x,
            series.smoothed(x, rewards, window),
            f"smoothed over {numbers.about(window)} samples",
            palette.progress,
            width=2.6,
        ),
    ]
    held_out = columns.metrics.get("eval_reward")
    if held_out is not None:
        data.append(_held_out(x, held_out, window, palette))
    data += crosses(x, rewards, "reward", palette)
    rulers, texts = _target(run, data, palette)
    shape = _window(run, palette)
    made = layout(palette, run.run, end, "reward", marks=marks)
    made["shapes"] += shape + rulers
    made["annotations"] += texts
    return {"data": data, "layout": made}


def _held_out(
    x: Sequence[int], values: Sequence[float | None], window: float, palette: Palette
) -> dict[str, Any]:
    """Held-out reward as diamonds joined by dashes; where there are too many to tell apart, smoothed."""
    known = [(n, v) for n, v in zip(x, values, strict=True) if v is not None and math.isfinite(v)]
    at, y = [n for n, _ in known], [v for _, v in known]
    if len(known) > CROWD:
        return line(at, series.smoothed(at, y, window), "held out, smoothed", palette.held_out, dash="dash")
    drawn = line(at, y, "held out", palette.held_out, width=1.6, dash="dash")
    marker = {"symbol": "diamond", "size": 7, "color": palette.held_out}
    return {**drawn, "mode": "lines+markers", "marker": marker}


def _target(
    run: RunSummary, data: list[dict[str, Any]], palette: Palette
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The target's line, and into `data` the interval of samples at which the curve gets there."""
    clock = run.clocks.progress
    if clock is None or clock.target is None:
        return [], []
    q, y, n = clock.remaining, clock.target, run.samples
    low, middle, high = q.get("0.1"), q.get("0.5"), q.get("0.9")
    if clock.reached_at_samples is None and low is not None and high is not None:
        data.append(
            {
                **line([n + low, n + high], [y, y], "target reached, 80 %", palette.progress, width=7),
                "opacity": 0.45,
            }
        )
        if middle is not None:
            data.append(
                {
                    **line([n + middle], [y], "target reached, median", palette.progress),
                    "mode": "markers",
                    "marker": {
                        "symbol": "line-ns",
                        "size": 15,
                        "line": {"width": 3, "color": palette.progress},
                    },
                    "showlegend": False,
                }
            )
    text = {
        "xref": "paper",
        "x": 0,
        "xanchor": "left",
        "yref": "y",
        "y": y,
        "yanchor": "bottom",
        "text": f"target {y:g}",
        "showarrow": False,
        "font": {"color": palette.muted, "size": 11},
    }
    return [ruler(y, palette.muted, "dot")], [text]


def _window(run: RunSummary, palette: Palette) -> list[dict[str, Any]]:
    """The 80 % interval of the samples at collapse, as a soft column."""
    forecast = run.clocks.failure
    if forecast is None or forecast.stay is None or not living(run):
        return []
    low, high = forecast.stay.quantiles.get("0.1"), forecast.stay.quantiles.get("0.9")
    if low is None:
        return []
    sure = forecast.status is ForecastStatus.FORECAST
    right = run.samples + high if high is not None else horizon(run)
    return [span(run.samples + low, right, palette.failure_faint if sure else palette.guess_soft)]


def metric(
    run: RunSummary, columns: StepColumns, name: str, marks: Sequence[Mark], palette: Palette
) -> Figure:
    """One reported metric: each step beneath, smoothed above, NaN as crosses, the run's events as lines."""
    values, x = columns.metrics[name], columns.samples
    if name in CUMULATIVE:
        data = [line(x, series.finite(values), "each step", palette.ink, width=1.8)]
    else:
        data = [
            {
                **line(x, series.finite(values), "each step", palette.muted),
                "mode": "markers",
                "marker": {"color": palette.muted, "size": 3, "opacity": 0.35},
            },
            line(x, series.smoothed(x, values, series.window(run)), "smoothed", palette.ink, width=1.8),
        ]
    data += crosses(x, values, name, palette)
    made = layout(palette, run.run, max(1.03 * run.samples, 1.0), None, marks=marks, small=True)
    return {"data": data, "layout": made}
