"""What all charts share: axes, lines, bands, crosses and the vertical marks of a run's events, as plotly
documents.
"""

import math
from collections.abc import Sequence
from typing import Any

from twoclocks_dashboard import series
from twoclocks_dashboard.palette import Palette
from twoclocks_dashboard.series import Mark

Figure = dict[str, Any]
FONT = '"Inter", ui-sans-serif, system-ui, "Segoe UI", Roboto, "Helvetica Neue", "Noto Sans", sans-serif'
CLOSE = 0.08
"""Marks nearer than this share of the chart's width share one label."""
DASHES = {"attempt": "dot", "switch": "dash", "onset": "solid"}


def digits(number: float | None) -> float | None:
    """Six significant digits: all that a chart shows, at half the bytes."""
    if number is None or not math.isfinite(number):
        return None
    return float(f"{number:.6g}")


def line(
    x: Sequence[float | None],
    y: Sequence[float | None],
    name: str,
    color: str,
    *,
    width: float = 2.0,
    dash: str = "solid",
) -> dict[str, Any]:
    """A line trace; None breaks it."""
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": [digits(v) for v in x],
        "y": [digits(v) for v in y],
        "line": {"color": color, "width": width, "dash": dash},
        "connectgaps": False,
        "hovertemplate": "%{y:.4~g}<extra>" + name + "</extra>",
    }


def polygon(x: Sequence[float], y: Sequence[float], name: str, fill: str) -> dict[str, Any]:
    """A filled area without an outline."""
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": [digits(v) for v in x],
        "y": [digits(v) for v in y],
        "fill": "toself",
        "fillcolor": fill,
        "line": {"width": 0},
        "hoverinfo": "skip",
    }


def crosses(
    samples: Sequence[int], values: Sequence[float | None], name: str, palette: Palette
) -> list[dict[str, Any]]:
    """NaN and infinities as crosses at the foot of the chart, on an axis of their own that zoom leaves
    alone.
    """
    places = series.broken(values)
    if not places:
        return []
    return [
        {
            "type": "scatter",
            "mode": "markers",
            "name": "NaN or infinite",
            "x": [samples[i] for i in places],
            "y": [0.04] * len(places),
            "yaxis": "y2",
            "text": [str(values[i]) for i in places],
            "marker": {"symbol": "x-thin", "size": 9, "line": {"width": 2, "color": palette.failure}},
            "hovertemplate": name + " was %{text}<extra></extra>",
        }
    ]


def ruler(y: float, color: str, dash: str) -> dict[str, Any]:
    """A horizontal line across the chart."""
    return {
        "type": "line",
        "xref": "paper",
        "x0": 0,
        "x1": 1,
        "yref": "y",
        "y0": y,
        "y1": y,
        "line": {"color": color, "width": 1.2, "dash": dash},
        "layer": "below",
    }


def span(x0: float, x1: float, fill: str) -> dict[str, Any]:
    """A soft column of the chart's full height."""
    return {
        "type": "rect",
        "xref": "x",
        "x0": digits(x0),
        "x1": digits(x1),
        "yref": "paper",
        "y0": 0,
        "y1": 1,
        "fillcolor": fill,
        "line": {"width": 0},
        "layer": "below",
    }


def layout(
    palette: Palette,
    revision: str,
    end: float,
    title: str | None,
    marks: Sequence[Mark] = (),
    *,
    small: bool = False,
) -> dict[str, Any]:
    """The layout of a chart over 0..end samples; zoom survives new data while `revision` is the same."""
    colors = {"attempt": palette.muted, "switch": palette.switch, "onset": palette.failure}
    heading: dict[str, Any] = {"font": {"size": 12, "color": palette.muted}, "standoff": 8}
    axis: dict[str, Any] = {
        "gridcolor": palette.grid,
        "linecolor": palette.grid,
        "zeroline": False,
        "tickcolor": palette.grid,
        "ticks": "",
        "automargin": True,
        "nticks": 4 if small else 8,
        "tickfont": {"size": 10 if small else 11, "color": palette.muted},
    }
    made: dict[str, Any] = {
        "autosize": True,
        "uirevision": revision,
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": FONT, "size": 12, "color": palette.ink},
        "margin": {"l": 38, "r": 8, "t": 8, "b": 24} if small else {"l": 52, "r": 14, "t": 34, "b": 40},
        "hovermode": "x" if small else "x unified",
        "hoverlabel": {
            "bgcolor": palette.panel,
            "bordercolor": palette.muted,
            "font": {"color": palette.ink, "size": 12},
        },
        "modebar": {
            "bgcolor": "rgba(0,0,0,0)",
            "color": palette.muted,
            "activecolor": palette.ink,
            "orientation": "h",
        },
        "showlegend": not small,
        "legend": {
            "orientation": "h",
            "x": 0,
            "xanchor": "left",
            "y": 1.02,
            "yanchor": "bottom",
            "font": {"size": 11, "color": palette.muted},
            "bgcolor": "rgba(0,0,0,0)",
            "itemwidth": 30,
        },
        "xaxis": {
            **axis,
            "title": {**heading, "text": "" if small else "samples"},
            "range": [0, digits(end)],
            "tickformat": "~s",
            "hoverformat": ",.0f",
            "showgrid": False,
            "showline": True,
        },
        "yaxis": {
            **axis,
            "title": {**heading, "text": title or ""},
            "tickformat": "~g" if small else "",
        },
        "yaxis2": {"overlaying": "y", "range": [0, 1], "visible": False, "fixedrange": True},
        "shapes": [_upright(m, colors[m.kind]) for m in marks],
        "annotations": [] if small else _labels(marks, end, colors),
    }
    if not small:
        made["xaxis"]["unifiedhovertitle"] = {"text": "%{x:,.0f} samples"}
    return made


def _upright(mark: Mark, color: str) -> dict[str, Any]:
    return {
        "type": "line",
        "xref": "x",
        "x0": mark.samples,
        "x1": mark.samples,
        "yref": "paper",
        "y0": 0,
        "y1": 1,
        "line": {"color": color, "width": 1.4, "dash": DASHES[mark.kind]},
        "layer": "below",
    }


def _labels(marks: Sequence[Mark], end: float, colors: dict[str, str]) -> list[dict[str, Any]]:
    """One label to each mark, or to marks that lie too near for more: the first of them and how many
    follow.
    """
    groups: list[list[Mark]] = []
    for mark in marks:
        if groups and mark.samples - groups[-1][0].samples < CLOSE * end:
            groups[-1].append(mark)
        else:
            groups.append([mark])
    labels = []
    for group in groups:
        said = list(dict.fromkeys(mark.text for mark in group))
        text = said[0] if len(said) == 1 else f"{said[0]} (+{len(said) - 1})"
        right = group[0].samples > 0.86 * end
        labels.append(
            {
                "x": group[0].samples,
                "xref": "x",
                "xanchor": "right" if right else "left",
                "xshift": -3 if right else 3,
                "y": 1,
                "yref": "paper",
                "yanchor": "top",
                "text": text,
                "hovertext": ", ".join(mark.text for mark in group),
                "showarrow": False,
                "font": {"color": colors[group[0].kind], "size": 11},
            }
        )
    return labels
