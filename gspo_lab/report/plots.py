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
        "hovermode": "x unified" if chart.kind in ("lines", "bars", "dots") else "closest",
        "showlegend": chart.kind not in ("forest", "slopes") and not {s.label for s in chart.series} <= set(arms),
        "xaxis": {"title": {"text": inert(chart.x_title)}},
        "yaxis": {"title": {"text": inert(chart.y_title + (" (log)" if chart.log else ""))}},
        "meta": {"x": chart.x_title, "y": chart.y_title, "named": chart.kind != "lines"},
    }
    if chart.kind in ("forest", "stack"):
        layout["meta"]["across"] = True
        return {"data": _forest(chart) if chart.kind == "forest" else _stack(chart), "layout": _rows(chart, layout)}
    if chart.kind == "lines":
        data = _lines(chart)
        layout["xaxis"]["unifiedhovertitle"] = {"text": f"{inert(chart.x_title)} %{{x}}"}
        if chart.reach is not None:
            room = 0.02 * (chart.reach[1] - chart.reach[0])
            layout["xaxis"]["range"] = [chart.reach[0] - room, chart.reach[1] + room]
    else:
        data = _slopes(chart) if chart.kind == "slopes" else _columns(chart)
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
        layout["meta"]["zero"] = chart.axis().zero_value
    layout["annotations"] = [
        *(at_line_ends(chart, inert) if chart.kind in ("lines", "slopes") else []),
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
        axis = chart.axis()
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
    seeds = [dict(zip(one.x, one.y, strict=True)) for one in chart.seeds if one.label == series.label]
    if series.seed is not None or len(seeds) < 2:
        return (), ()
    known = [[y for one in seeds if (y := one.get(x)) is not None] for x in series.x]
    return tuple(min(own, default=None) for own in known), tuple(max(own, default=None) for own in known)


def _placed(chart: Chart, values: Sequence[Value]) -> list[Value]:
    """On a logarithmic axis zero has a place of its own, below the lowest decade."""
    zero = chart.axis().zero_value if chart.log else 0.0
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
    """Bars or dots over categories. Seeds stand side by side on their bar, in their order; a category's place is shared
    by the series that have means in it."""
    names, labels = chart.categories, list(dict.fromkeys(series.label for series in chart.series))
    seeds = sorted({s.seed for s in chart.seeds if s.seed is not None})
    alone = chart.kind == "dots" and all(sum(category in map(str, s.x) for s in chart.means) <= 1 for category in names)
    width = 0.4 if alone else BAR / max(1, len(labels))
    out = []
    for series in sorted(chart.series, key=lambda s: s.seed is not None):
        middle = 0.0 if alone else (labels.index(series.label) - (len(labels) - 1) / 2) * width
        places = [names.index(str(x)) for x in series.x]
        trace = _trace(chart, series, x=places, y=_placed(chart, series.y))
        trace |= _told(chart, series, first=[inert(x) for x in series.x])
        colour = _colour(series)
        if series.seed is not None:
            beside = (seeds.index(series.seed) - (len(seeds) - 1) / 2) / max(1, len(seeds)) * width * 0.7
            dot = {"color": colour, "size": 7, "line": {"color": LIGHT["paper"], "width": 1}}
            trace |= {"x": [x + middle + beside for x in places], "mode": "markers", "cliponaxis": False, "marker": dot}
        elif chart.kind == "dots":
            tick = {"symbol": "line-ew-open", "size": 26, "line": {"color": colour, "width": 3}, "color": colour}
            trace |= {"x": [x + middle for x in places], "mode": "markers", "marker": tick, "cliponaxis": False}
        else:
            edge = {"color": colour, "width": 1.5}
            trace |= {"type": "bar", "offset": middle - width / 2, "width": width * 0.94, "marker":
                      {"color": colour, "opacity": 0.7, "line": edge}}  # fmt: skip
        out.append(trace)
    return out


def _slopes(chart: Chart) -> list[Json]:
    """One line per seed from the first category to the second; the mean is thick."""
    names, out = chart.categories, []
    for series in [*chart.seeds, *chart.means]:
        mean, colour = series.seed is None, _colour(series)
        line = {"color": colour, "width": 3 if mean else 1.3, "dash": DASHES[dash(series.colour)] if mean else "solid"}
        own = {"x": [names.index(str(x)) for x in series.x], "y": list(series.y), "line": line, "cliponaxis": False}
        mark = {"color": colour, "size": 1 if mean else 7}
        trace = _trace(chart, series, **own, mode="lines+markers", marker=mark, opacity=1 if mean else 0.7)
        trace.pop("hoverinfo", None)
        out.append(trace | _told(chart, series, first=[inert(x) for x in series.x]) | {"showlegend": False})
    return out


def _forest(chart: Chart) -> list[Json]:
    """A row per category and series: the estimate with its interval, seeds as dots above it."""
    rows, out = chart.rows, []
    for series in [*chart.seeds, *chart.means]:
        seed, colour = series.seed is not None, _colour(series)
        known = [i for i, x in enumerate(series.x) if (str(x), series.label) in rows and series.y[i] is not None]
        low, high = (series.low, series.high) if series.low and series.high else (series.y, series.y)
        ends = [[low[i], high[i]] if low is not series.y else [] for i in known]
        trace: Json = {
            "x": [series.y[i] for i in known],
            "y": [rows.index((str(series.x[i]), series.label)) - (0.3 if seed else 0.0) for i in known],
            "mode": "markers",
            "cliponaxis": False,
            "customdata": [[inert(series.x[i]), series.y[i], *own] for i, own in zip(known, ends, strict=True)],
            "text": [chart.told(series.y[i], low[i], high[i]) for i in known],
            "hovertemplate": "%{fullData.name}<br>%{customdata[0]}: %{text}<extra></extra>",
            "marker": {"color": colour, "size": 5 if seed else 10, "symbol": "circle" if seed else "diamond"},
        }
        if low is not series.y:
            reach = [[abs((edge[i] or 0.0) - (series.y[i] or 0.0)) for i in known] for edge in (high, low)]
            trace["error_x"] = {
                "type": "data",
                "symmetric": False,
                "array": reach[0],
                "arrayminus": reach[1],
                "color": colour,
                "thickness": 2.2,
                "width": 4,
            }
        out.append({**_trace(chart, series), **trace, "hoverinfo": "all"})
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
    rows = chart.rows if chart.kind == "forest" else [(name, "") for name in names]
    own = [[i for i, (name, _) in enumerate(rows) if name == category] for category in names]
    told = [inert(name).replace(", ", ",<br>", 1) if len(name) > 24 else inert(name) for name in names]
    layout["xaxis"] = {"title": {"text": inert(chart.y_title)}, "range": list(axis_range(chart))}
    layout["yaxis"] = {
        "tickvals": [(places[0] + places[-1]) / 2 for places in own if places],
        "automargin": True,
        "ticktext": [text for text, places in zip(told, own, strict=True) if places],
        "showgrid": False,
        "range": [len(rows) - 0.4, -0.7],
        "title": {"text": ""},
        "zeroline": False,
    }
    if chart.kind == "stack":
        layout["xaxis"] |= {"tickformat": ".0%", "range": [0, 1]}
        layout["barmode"] = "stack"
        return layout
    layout["xaxis"] |= {"zeroline": True, "zerolinecolor": LIGHT["soft"]}
    colours = {series.label: series for series in chart.series}
    layout["annotations"] = [
        {
            "xref": "paper",
            "x": 1,
            "xanchor": "left",
            "xshift": 6,
            "y": i,
            "showarrow": False,
            "name": inert(label),
            "text": inert(label),
            "font": {"color": _colour(colours[label])},
        }
        for i, (_, label) in enumerate(rows)
    ]
    if chart.margin is not None:
        area = {"type": "rect", "yref": "paper", "x0": -chart.margin, "x1": chart.margin, "y0": 0, "y1": 1}
        layout["shapes"] = [area | {"line": {"width": 0}, "fillcolor": LIGHT["soft"], "opacity": 0.14,
                                    "layer": "below"}]  # fmt: skip
    return layout


def _colour(series: Series) -> str:
    return LIGHT[colour_name(series.colour)]
