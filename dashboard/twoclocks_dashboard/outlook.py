"""The charts that look ahead: drift with its threshold and forecast, and what earlier forecasts said.
Pure.
"""

from collections.abc import Sequence
from typing import Any

from twoclocks.wire import Forecast, ForecastStatus, RunSummary
from twoclocks_dashboard import numbers, series
from twoclocks_dashboard.canvas import Figure, digits, layout, line, polygon, ruler
from twoclocks_dashboard.dials import living
from twoclocks_dashboard.palette import Palette
from twoclocks_dashboard.series import Mark

UNITS = {
    "rule": "equivalent samples",
    "displacement": "norm of θ − θ₀",
    "ratio": "nats",
    "probe_kl": "nats, square root of 2 KL",
}


def horizon(run: RunSummary) -> float:
    """The right end of the charts that look ahead, in samples: past the forecast, and never far past the
    budget.
    """
    now, budget = float(run.samples), float(run.spec.budget_samples or 0)
    furthest = max(1.04 * budget, 1.15 * now) if budget else max(2.2 * now, 1.0)
    forecast = run.clocks.failure
    if forecast is None or forecast.stay is None or not living(run):
        return max(1.04 * now, 1.0)
    left = forecast.stay.quantiles.get("0.9")
    if left is None:
        return furthest
    return max(1.04 * now, min(now + 1.08 * left, furthest))


def drift(
    run: RunSummary, forecasts: Sequence[Forecast], marks: Sequence[Mark], palette: Palette, end: float
) -> Figure:
    """Drift against samples, the threshold as a band across, and the forecast: the way into the band and its
    shadow.

    The band is the 80 % interval of D given survival to now. The dashed way starts at the present drift and
    goes through (now + quantile of the samples left, the same quantile of D); what it casts on the samples
    axis is the 80 % interval of the samples at collapse.
    """
    points = series.trail(forecasts)
    forecast = run.clocks.failure
    if not points:
        why = forecast.reason if forecast else "no report has arrived yet"
        return {"empty": f"No drift to draw: {why}."}
    last = next(f for f in reversed(forecasts) if f.drift is not None)
    data: list[dict[str, Any]] = []
    band = _threshold(last, end, palette)
    data += band
    if living(run) and last.stay is not None and last.threshold:
        data += _way(last, end, palette)
    scale = last.clock or "rule"
    trail = line(
        [n for n, _ in points], [x for _, x in points], f"drift, {scale} clock", palette.ink, width=2.4
    )
    data.append(trail)
    data.append(
        {
            **line([points[-1][0]], [points[-1][1]], "now", palette.ink),
            "mode": "markers",
            "marker": {"size": 9, "color": palette.panel, "line": {"width": 2.4, "color": palette.ink}},
            "showlegend": False,
        }
    )
    made = layout(palette, run.run, end, f"drift, {UNITS.get(scale, scale)}", marks=marks)
    made["yaxis"]["rangemode"] = "tozero"
    made["hovermode"] = "closest"
    return {"data": data, "layout": made}


def _threshold(forecast: Forecast, end: float, palette: Palette) -> list[dict[str, Any]]:
    """The threshold's 80 % interval across the whole chart, and its median."""
    d = forecast.threshold
    if not {"0.1", "0.5", "0.9"} <= set(d):
        return []
    sure = forecast.status is ForecastStatus.FORECAST
    fill, ink = (palette.failure_faint, palette.failure) if sure else (palette.guess_soft, palette.guess)
    name = "threshold, 80 %" if sure else f"threshold, 80 % ({forecast.status.value})"
    return [
        polygon([0, end, end, 0], [d["0.1"], d["0.1"], d["0.9"], d["0.9"]], name, fill),
        line([0, end], [d["0.5"], d["0.5"]], "median", ink, width=1.2, dash="dot"),
    ]


def _way(forecast: Forecast, end: float, palette: Palette) -> list[dict[str, Any]]:
    """The way from now into the threshold's band, and its shadow on the samples axis."""
    assert forecast.stay is not None
    assert forecast.drift is not None
    n, d, left = forecast.samples, forecast.threshold, forecast.stay.quantiles
    sure = forecast.status is ForecastStatus.FORECAST
    ink, fill = (palette.failure, palette.failure_soft) if sure else (palette.guess, palette.guess_soft)
    reached = [
        (level, n + q, d[level]) for level in sorted(d, key=float) if (q := left.get(level)) is not None
    ]
    if not reached:
        return []
    inner = [(x, y) for level, x, y in reached if level in {"0.1", "0.5", "0.9"}]
    drawn: list[dict[str, Any]] = []
    if inner and reached[0][0] in {"0.05", "0.1"}:
        if left.get("0.9") is None:
            inner = [*inner, (max(end, inner[-1][0]), inner[-1][1])]
        xs, ys = [x for x, _ in inner], [y for _, y in inner]
        drawn.append(polygon([xs[0], *xs, xs[-1]], [0.0, *ys, 0.0], "collapse, 80 %", fill))
    drawn.append(
        line(
            [n, *(x for _, x, _ in reached)],
            [forecast.drift, *(y for _, _, y in reached)],
            "forecast" if sure else f"forecast ({forecast.status.value})",
            ink,
            width=2.4,
            dash="dash",
        )
    )
    middle = next(((x, y) for level, x, y in reached if level == "0.5"), None)
    if middle is not None:
        median = line(
            [middle[0], middle[0]], [0.0, middle[1]], "collapse, median", ink, width=1.4, dash="dot"
        )
        drawn.append(
            {**median, "mode": "lines+markers", "marker": {"size": [0, 8], "color": ink}, "showlegend": False}
        )
    return drawn


def history(run: RunSummary, forecasts: Sequence[Forecast], palette: Palette) -> Figure:
    """Every kept forecast: the samples at which it expected the collapse, against the samples when it was
    made.
    """
    made = [
        f for f in series.live(forecasts) if f.stay is not None and f.stay.quantiles.get("0.5") is not None
    ]
    if len(made) < 2:
        return {"empty": "Nothing to compare yet: forecasts with a median are kept here as they are made."}
    last = made[-1].samples
    ends = [f.samples + (f.stay.quantiles["0.5"] or 0.0) for f in made if f.stay]
    high = [f.samples + far for f in made if f.stay and (far := f.stay.quantiles.get("0.9")) is not None]
    top = min(max([*ends, *high]), 2.5 * max(last, run.spec.budget_samples or ends[-1]))
    data: list[dict[str, Any]] = []
    for sure, name, ink, fill in (
        (True, "forecast", palette.failure, palette.failure_soft),
        (False, "guess", palette.guess, palette.guess_soft),
    ):
        xs: list[float | None] = []
        mids: list[float | None] = []
        low_edge: list[tuple[float, float]] = []
        high_edge: list[tuple[float, float]] = []
        for f in made:
            assert f.stay is not None
            if (f.status is ForecastStatus.FORECAST) is not sure:
                continue
            q = f.stay.quantiles
            xs.append(f.samples)
            mids.append(f.samples + (q["0.5"] or 0.0))
            low_edge.append((f.samples, f.samples + (q.get("0.1") or 0.0)))
            over = q.get("0.9")
            high_edge.append((f.samples, f.samples + over if over is not None else 10 * top))
        if not xs:
            continue
        around = low_edge + high_edge[::-1]
        data.append(polygon([x for x, _ in around], [y for _, y in around], f"{name}, 80 %", fill))
        data.append(line(xs, mids, f"{name}, median", ink, width=2.0, dash="solid" if sure else "dot"))
    data.append(line([0, last], [0, last], "now", palette.muted, width=1.2, dash="dash"))
    picture = layout(palette, run.run, 1.02 * last, "collapse expected at, samples")
    picture["yaxis"] |= {"range": [0, digits(1.05 * top)], "tickformat": "~s"}
    picture["xaxis"]["title"]["text"] = "samples when the forecast was made"
    if run.clocks.onset is not None:
        at = run.clocks.onset.samples
        picture["shapes"].append(ruler(at, palette.failure, "solid"))
        picture["annotations"].append(
            {
                "xref": "paper",
                "x": 0.99,
                "xanchor": "right",
                "yref": "y",
                "y": at,
                "yanchor": "top",
                "text": f"collapsed at {numbers.count(at)}",
                "showarrow": False,
                "font": {"color": palette.failure, "size": 11},
            }
        )
    return {"data": data, "layout": picture}
