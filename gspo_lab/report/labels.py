"""What stands in a figure as text, and the room that it needs: names at the ends of lines, values on bars, published
values across the whole width."""

import math
from collections.abc import Callable
from typing import Any

from gspo_lab.report.chart import Chart
from gspo_lab.report.palette import LIGHT, colour_name

Json = dict[str, Any]

TOP, BOTTOM = 12, 46
"""Pixels of a figure above and below its plotting area."""

_LINE = 14.0  # pixels between two names
_FLAT = 6  # so many bars side by side or fewer have their values written level, more upright
_NAMED = 30  # more bars are not told one by one


def height_of(chart: Chart) -> int:
    """The height of a figure in pixels, which its place on the page has from the beginning."""
    if chart.kind == "stack":
        return TOP + BOTTOM + 44 + 36 * len(chart.categories)
    return 240 if chart.small else 320


def axis_range(chart: Chart) -> tuple[float, float]:
    """The ends of the value axis as Plotly wants them: of a logarithmic one their exponents. Bars have room above."""
    axis = chart.axis
    low, high = axis.low, axis.high
    if chart.log:
        low, high = math.log10(axis.zero_value if axis.zero else low), math.log10(high)
    reach = high - low
    above = 0.03 if chart.kind != "bars" else 0.1 if _bars(chart) <= _FLAT else 0.26
    stands = chart.kind == "bars" or (chart.whole and low == 0)
    return low if stands else low - 0.03 * reach, high + above * reach


def _bars(chart: Chart) -> int:
    return len(chart.categories) * len({series.label for series in chart.series})


def _height(chart: Chart, value: float) -> float:
    """Pixels from the bottom of the plotting area to a value."""
    low, high = axis_range(chart)
    return (_at(chart, value) - low) / (high - low) * (height_of(chart) - TOP - BOTTOM)


def _at(chart: Chart, value: float) -> float:
    """A value in the axis' own numbers."""
    if not chart.log:
        return value
    return math.log10(chart.axis.zero_value if value == 0 else value)


def at_line_ends(chart: Chart, inert: Callable[[Any], str]) -> list[Json]:
    """Each line's name at its right end, moved apart where lines end close together; no names for more than fit."""
    ends = []
    for series in chart.means or chart.seeds:
        known = [y for y in series.y if y is not None]
        if known:
            ends.append((_height(chart, known[-1]), known[-1], series))
    ends.sort(key=lambda end: -end[0])
    room = height_of(chart) - TOP - BOTTOM + _LINE
    if len(ends) * _LINE > room or len({series.label for *_, series in ends}) < 2:
        return []
    places: list[float] = []
    for at, _, _ in ends:
        places.append(min(at, places[-1] - _LINE) if places else at)
    short = max(0.0, -places[-1] if places else 0.0)
    return [
        {
            "xref": "paper",
            "x": 1,
            "xanchor": "left",
            "xshift": 6,
            "showarrow": False,
            "name": inert(series.named),
            "y": _at(chart, value),
            "yshift": round(place + short - at, 1),
            "text": inert(series.label),
            "font": {"color": LIGHT[colour_name(series.colour)]},
        }
        for place, (at, value, series) in zip(places, ends, strict=True)
    ]


def on_bars(chart: Chart, width: float, inert: Callable[[Any], str]) -> list[Json]:
    """Every mean's value above its bar and the dots of its seeds; upright where bars are many."""
    count = _bars(chart)
    if count > _NAMED:
        return []
    labels = list(dict.fromkeys(series.label for series in chart.series))
    out = []
    for series in chart.means:
        middle = (labels.index(series.label) - (len(labels) - 1) / 2) * width / max(1, len(labels))
        for x, y in zip(series.x, series.y, strict=True):
            if y is None:
                continue
            own = [v for one in chart.seeds if one.label == series.label
                   for at, v in zip(one.x, one.y, strict=True) if at == x and v is not None]  # fmt: skip
            out.append(
                {
                    "x": chart.categories.index(str(x)) + middle,
                    "y": _at(chart, max([y, *own])),
                    "text": inert(chart.shown(y, 2)),
                    "name": inert(series.label),
                    "showarrow": False,
                    "yanchor": "bottom",
                    "yshift": 4,
                    "textangle": 0 if count <= _FLAT else -90,
                    "font": {"color": LIGHT["ink"], "size": 11},
                }
            )
    return out


def references(chart: Chart, inert: Callable[[Any], str]) -> tuple[list[Json], list[Json]]:
    """Published values as dotted lines over the whole width, and their names above them."""
    line = {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "line": {"color": LIGHT["soft"], "width": 1.2,
            "dash": "dot"}, "layer": "below"}  # fmt: skip
    lines = [line | {"y0": one.value, "y1": one.value} for one in chart.references]
    told = [
        {
            "xref": "paper",
            "x": 0,
            "xanchor": "left",
            "y": _at(chart, one.value),
            "yanchor": "bottom",
            "text": inert(one.label),
            "showarrow": False,
            "font": {"size": 10.5},
            "bgcolor": LIGHT["paper"],
            "opacity": 0.9,
        }
        for one in chart.references
    ]
    return lines, told
