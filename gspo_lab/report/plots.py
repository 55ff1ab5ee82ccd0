"""A chart as plain Plotly JSON, in light colours; `template.py` has what all figures share.

A trace's `meta` says what it draws: `series` and `seed` (None: the mean), and under `at` its positions on other x axes.
Text from data is escaped here: Plotly reads a part of HTML in every text.
"""

import html
from collections.abc import Sequence
from typing import Any

from gspo_lab.report.chart import Chart, Series, Value
from gspo_lab.report.labels import at_line_ends, axis_range, height_of, on_bars, references
from gspo_lab.report.marks import GAP, dots, gaps
from gspo_lab.report.markup import visible
from gspo_lab.report.palette import DASHES, LIGHT, colour_name, dash

Json = dict[str, Any]

BAR = 0.84
"""The width of all bars of a category, as a part of its place."""


def inert(value: Any) -> str:
    """Text that Plotly shows as it is."""
    return html.escape(visible(value), quote=False)


def plot(chart: Chart, arms: Sequence[str] = ()) -> Json:
    """`data` and `layout`. A chart of anything but the page's `arms` has a legend of its own."""
    layout: Json = {
        "height": height_of(chart),
        "hovermode": "x unified" if chart.kind != "stack" else "closest",
        "showlegend": not {s.label for s in chart.series} <= set(arms),
        "xaxis": {"title": {"text": inert(chart.x_title)}},
        "yaxis": {"title": {"text": inert(chart.y_title + (" (log)" if chart.log else ""))}},
        "meta": {"x": chart.x_title, "y": chart.y_title, "named": chart.kind != "lines"},
    }
    if chart.kind == "stack":
        layout["meta"]["across"] = True
        return {"data": _stack(chart), "layout": _rows(chart, layout)}
    if chart.kind == "lines":
        data = _lines(chart)
        layout["xaxis"]["unifiedhovertitle"] = {"text": f"{inert(chart.x_title)} %{{x}}"}
        if chart.reach is not None:
            room = 0.02 * (chart.reach[1] - chart.reach[0])
            layout["xaxis"]["range"] = [chart.reach[0] - room, chart.reach[1] + room]
    else:
        data = _columns(chart)
        names = chart.categories
        layout["xaxis"] |= {
            "range": [-0.5, len(names) - 0.5],
            "tickvals": [*range(len(names))],
            "zeroline": False,
            "ticktext": [inert(one) for one in names],
            "tickangle": 0,
            "showgrid": False,
            "unifiedhovertitle": {"text": "%{customdata[0]}"},
        }
    layout["yaxis"] |= _value_axis(chart)
    if chart.log:
        layout["meta"]["zero"] = chart.axis.zero_value
    layout["annotations"] = [
        *(at_line_ends(chart, inert) if chart.kind == "lines" else []),
        *(on_bars(chart, BAR, inert) if chart.kind == "bars" else []),
    ]
    layout["shapes"], told = references(chart, inert)
    layout["annotations"] += told
    if chart.kind == "bars":
        layout["barmode"] = "overlay"  # every bar has its own place
    return {"data": data, "layout": layout}


def _value_axis(chart: Chart) -> Json:
    out: Json = {"range": list(axis_range(chart))}
    if chart.log:
        axis = chart.axis
        places = [axis.zero_value if tick == 0 else tick for tick, _ in axis.ticks]
        out |= {"type": "log", "tickvals": places, "ticktext": [label for _, label in axis.ticks]}
    elif chart.share:
        out["tickformat"] = ".3~%"
    return out


def _trace(chart: Chart, series: Series, **more: Any) -> Json:
    """What all traces of a series have. A mean speaks when it is pointed at, with the lowest and the highest seed; its
    seeds are silent then: they would be dozens of lines."""
    seed, label = series.seed, inert(series.label)
    silent = seed is not None and any(one.label == series.label for one in chart.means)
    return {
        "type": "scatter",
        "name": inert(series.named),
        "legendgroup": label,
        "showlegend": seed is None,
        "meta": {"series": series.label, "seed": seed},
        **({"hoverinfo": "skip"} if silent else {}),
        **more,
    }


def _told(chart: Chart, series: Series, *, first: Sequence[Any] = ()) -> Json:
    """`customdata` and the line that hovering shows: per point `first`, the true value, and the range around it."""
    low, high = _range(chart, series)
    shape, names = ".3~%" if chart.share else ".4~g", [[one] for one in first] or [[] for _ in series.y]
    rows = [[*name, y, *((a, b) if low else ())] for name, y, a, b in zip(names, series.y, low or series.y, high or
            series.y, strict=True)]  # fmt: skip
    at = len(first[:1])
    said = f"%{{fullData.name}}: %{{customdata[{at}]:{shape}}}"
    if low:
        said += f" (%{{customdata[{at + 1}]:{shape}}} to %{{customdata[{at + 2}]:{shape}}})"
    return {"customdata": rows, "hovertemplate": f"{said}<extra></extra>"}


def _range(chart: Chart, series: Series) -> tuple[tuple[Value, ...], tuple[Value, ...]]:
    """Point by point the envelope, or else the lowest and the highest seed; nothing for a single seed."""
    if series.low and series.high:
        return series.low, series.high
    if series.seed is not None:
        return (), ()
    seeds = [dict(zip(one.x, one.y, strict=True)) for one in chart.seeds if one.label == series.label]
    if len(seeds) < 2:
        return (), ()
    known = [[y for one in seeds if (y := one.get(x)) is not None] for x in series.x]
    return tuple(min(own, default=None) for own in known), tuple(max(own, default=None) for own in known)


def _placed(chart: Chart, values: Sequence[Value]) -> list[Value]:
    """On a logarithmic axis zero has a place of its own, below the lowest decade."""
    zero = chart.axis.zero_value if chart.log else 0.0
    return [zero if value == 0 else value for value in values] if chart.log else list(values)


def _lines(chart: Chart) -> list[Json]:
    out = [_band(series) for series in chart.series if series.low and series.high]
    for series in [*chart.seeds, *chart.means]:
        mean, colour, marked = series.seed is None, _colour(series), dots(series.y)
        line = {"color": colour, "width": 2.6 if mean else 1, "dash": DASHES[dash(series.colour)] if mean else "solid"}
        size = (7 if mean else 5) if all(one or y is None for one, y in zip(marked, series.y, strict=True)) else None
        more: Json = {"x": list(series.x), "y": _placed(chart, series.y), "line": line, "mode": "lines"}
        if any(marked):
            sizes = [7 if one else 0 for one in marked] if size is None else size
            more |= {"mode": "lines+markers", "marker": {"color": colour, "size": sizes, "line": {"width": 0}}}
        if not mean:
            more["opacity"] = 0.5
        trace = _trace(chart, series, **more)
        if "hoverinfo" not in trace:
            trace |= _told(chart, series)
        if series.at:
            trace["meta"]["at"] = {axis: list(places) for axis, places in series.at.items()}
        out.append(trace)
    return out + [_ends(chart, series) for series in chart.series if gaps(chart, series)]


def _band(series: Series) -> Json:
    """The envelope as closed shapes, one for each stretch in which both edges are known."""
    stretches: list[list[int]] = [[]]
    for i, (low, high) in enumerate(zip(series.low, series.high, strict=True)):
        if low is None or high is None:
            stretches.append([])
        else:
            stretches[-1].append(i)
    shapes = [own for own in stretches if own]

    def around(there: Sequence[Any], back: Sequence[Any]) -> list[Any]:
        out: list[Any] = []
        for own in shapes:
            out += [None] * bool(out) + [there[i] for i in own] + [back[i] for i in reversed(own)]
        return out

    meta: Json = {"series": series.label, "seed": series.seed, "role": "band"}
    if series.at:
        meta["at"] = {axis: around(places, places) for axis, places in series.at.items()}
    return {
        "type": "scatter",
        "mode": "lines",
        "x": around(series.x, series.x),
        "y": around(series.high, series.low),
        "fill": "toself",
        "fillcolor": _colour(series),
        "line": {"width": 0},
        "opacity": 0.13,
        "hoverinfo": "skip",
        "name": inert(series.label),
        "legendgroup": inert(series.label),
        "showlegend": False,
        "meta": meta,
    }


def _ends(chart: Chart, series: Series) -> Json:
    """A cross where a line ends before the study does, or breaks."""
    found = gaps(chart, series)
    meta: Json = {"series": series.label, "seed": series.seed, "role": GAP}
    if series.at:
        meta["at"] = {axis: [places[one.last] for one in found] for axis, places in series.at.items()}
    return {
        "type": "scatter",
        "mode": "markers",
        "x": [series.x[one.last] for one in found],
        "y": _placed(chart, [series.y[one.last] for one in found]),
        "marker": {"symbol": "x-thin", "size": 9, "line": {"width": 2.5, "color": _colour(series)}},
        "customdata": [inert(one.said) for one in found],
        "hovertemplate": "%{fullData.name}: %{customdata}<extra></extra>",
        "name": inert(series.named),
        "legendgroup": inert(series.label),
        "showlegend": False,
        "meta": meta,
    }


def _columns(chart: Chart) -> list[Json]:
    """Bars over categories, each with its seeds as dots side by side in their order."""
    names, labels = chart.categories, list(dict.fromkeys(series.label for series in chart.series))
    seeds = {seed: place for place, seed in enumerate(sorted({s.seed for s in chart.seeds if s.seed is not None}))}
    width = BAR / max(1, len(labels))
    out = []
    for series in sorted(chart.series, key=lambda s: s.seed is not None):
        middle = (labels.index(series.label) - (len(labels) - 1) / 2) * width
        places = [names.index(str(x)) for x in series.x]
        trace = _trace(chart, series, x=places, y=_placed(chart, series.y))
        trace |= _told(chart, series, first=[inert(x) for x in series.x])
        colour = _colour(series)
        if series.seed is None:
            look = {"color": colour, "opacity": 0.7, "line": {"color": colour, "width": 1.5}}
            trace |= {"type": "bar", "offset": middle - width / 2, "width": width * 0.94, "marker": look}
        else:
            beside = (seeds[series.seed] - (len(seeds) - 1) / 2) / max(1, len(seeds)) * width * 0.7
            dot = {"color": colour, "size": 7, "line": {"color": LIGHT["paper"], "width": 1}}
            trace |= {"x": [x + middle + beside for x in places], "mode": "markers", "cliponaxis": False, "marker": dot}
        out.append(trace)
    return out


def _stack(chart: Chart) -> list[Json]:
    names = chart.categories
    return [
        {
            **_trace(chart, series, type="bar", orientation="h", x=list(series.y), text=_shares(series)),
            "y": [names.index(str(x)) for x in series.x],
            "textposition": "inside",
            "insidetextanchor": "middle",
            "textangle": 0,
            "customdata": [[inert(x)] for x in series.x],
            "hovertemplate": "%{fullData.name}, %{customdata[0]}: %{x:.1%}<extra></extra>",
            "marker": {"color": _colour(series), "opacity": 0.7, "line": {"color": _colour(series), "width": 1.5}},
        }
        for series in chart.series
    ]


def _shares(series: Series) -> list[str]:
    return ["" if not y else f"{y:.0%}" for y in series.y]


def _rows(chart: Chart, layout: Json) -> Json:
    """The layout of a chart whose categories lie one below the other."""
    names = chart.categories
    layout["xaxis"] = {"title": {"text": inert(chart.y_title)}, "tickformat": ".0%", "range": [0, 1]}
    layout["yaxis"] = {
        "tickvals": [*range(len(names))],
        "automargin": True,
        "ticktext": [inert(name).replace(", ", ",<br>", 1) if len(name) > 24 else inert(name) for name in names],
        "showgrid": False,
        "range": [len(names) - 0.4, -0.7],
        "title": {"text": ""},
        "zeroline": False,
    }
    layout["barmode"] = "stack"
    return layout


def _colour(series: Series) -> str:
    return LIGHT[colour_name(series.colour)]
