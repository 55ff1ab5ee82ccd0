"""A chart as plain Plotly JSON, in light colours. `template` has what all figures of a scheme
share.

A trace's `meta` says what it draws: `series` and `seed` (None: the mean), and under `at` its
positions on other x axes. Text from data is escaped here: Plotly reads a part of HTML in every
text.
"""

import html
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gspo_lab.analysis.findings.clip_fractions import arms_by_level
from gspo_lab.analysis.readings import Source
from gspo_lab.common.plain_data import Interval, JsonObject, OptionalFloat, table_beside
from gspo_lab.common.text import visible
from gspo_lab.report.chart import Chart, Series
from gspo_lab.report.templating import format_number, percent

COLOURS = 12
"""Colours of arms, `a0` to `a11` of a scheme.

Each passes 4.5 : 1 on the page, because names of lines have it too.
"""

LEVELS = ("token", "sequence")
"""The levels of the ratio in GRPO and GSPO, in the order of their colours."""

RULES = ("grpo", "gspo")
"""The names of the ratio rules."""

NEUTRAL_DARK = -1
NEUTRAL_LIGHT = -2
"""For series that show no arm, and for arms that a figure is not about."""

STYLE = table_beside(__file__, "figure_style.toml")
LIGHT: dict[str, str] = STYLE["light"]
DARK: dict[str, str] = STYLE["dark"]
DASHES: list[str] = STYLE["dashes"]
"""As Plotly and SVG write them.

From the thirteenth arm on colours come again with other dashes. Their number, 32, is a power of
two, so that each arm of one colour has its own.
"""


def _style_part(name: str, scheme: Mapping[str, str] = LIGHT) -> JsonObject:
    """A part of the style; `$soft` in it is that colour of the scheme."""
    text = json.dumps(STYLE[name])
    part: JsonObject = json.loads(re.sub(r"\$(\w+)", lambda match: scheme[match[1]], text))
    return part


def arm_colours(studies: Sequence[Source]) -> dict[str, int]:
    """Arm -> colour over all studies of a page. An arm of two studies looks the same in both.

    GRPO's arm has the first colour and GSPO's the second, in every study. Of a sweep the rules come
    first: each has one colour, and its values differ by their dash."""
    colours: dict[str, int] = {}
    for study in studies:
        arms = study.declaration.arms
        levels = {level: arms[name].of or name for level, name in arms_by_level(study).items()}
        if study.declaration.recorded is not None:  # where no level was recorded a name has to do
            levels = {
                level: name for level, name in zip(LEVELS, RULES, strict=True) if name in study.arms
            } | levels
        for colour, level in enumerate(LEVELS):
            used = any(colours.get(arm) == colour for arm in study.declaration.families)
            if level in levels and not used:
                colours.setdefault(levels[level], colour)
    names: dict[str, None] = {}
    for study in studies:
        names |= dict.fromkeys(study.declaration.families)
    neither = [arm for arm in names if arm not in colours]
    colours |= {arm: len(LEVELS) + place for place, arm in enumerate(neither)}
    ordered = {arm: colours[arm] for arm in names}
    for study in studies:
        swept = [arm for arm in study.declaration.arms.values() if arm.dose is not None]
        values = sorted({arm.dose or 0.0 for arm in swept})
        for arm in swept:
            ordered[arm.name] = _dashed_colour(
                colours[arm.of or arm.name], values.index(arm.dose or 0.0)
            )
    return ordered


def _dashed_colour(colour: int, place: int) -> int:
    """The colour of the palette that looks like `colour` and has the dash at this place."""
    wanted = DASHES[place % len(DASHES)]
    alike = range(colour % COLOURS, COLOURS * len(DASHES), COLOURS)
    return next(other for other in alike if dash(other) == wanted)


def colour_name(colour: int) -> str:
    """A scheme's name of a series' colour, without its dashes: a3, or n1 for what is no arm."""
    return f"n{-colour}" if colour < 0 else f"a{colour % COLOURS}"


def dash(colour: int) -> str:
    """The dash of a series' line: of arms that share a colour each has its own."""
    if colour < 0:
        return DASHES[0 if colour == NEUTRAL_DARK else 2]
    return DASHES[(colour + colour // COLOURS) % len(DASHES)]


def variables(arms: Mapping[str, int]) -> str:
    """Both schemes as variables of the page's style, and each arm's colour for the elements that
    carry its name.
    """
    light = "".join(f"--{name}:{value};" for name, value in LIGHT.items())
    dark = "".join(f"--{name}:{value};" for name, value in DARK.items())
    rules = ""
    for arm, colour in arms.items():
        # As a string of CSS: nothing in it ends the string or the style.
        letters = (
            letter if letter.isalnum() and letter.isascii() else f"\\{ord(letter):x} "
            for letter in arm
        )
        rules += f'[data-arm="{"".join(letters)}"]{{--c:var(--{colour_name(colour)})}}'
    return (
        f":root{{{light}}}\n@media screen and (prefers-color-scheme:"
        f" dark){{:root{{{dark}}}}}\n{rules}\n"
    )


TOP = 12
BOTTOM = 46
"""Pixels of a figure above and below its plotting area."""
PLACE = 0.84
"""The width of all series of a category, as a part of its place."""
FEW = 12
"""A line of so many points or fewer shows where they are."""
LINE = 14.0
"""Pixels between two names at the ends of lines."""
NAMED = 30
"""With more dots than this no value is written beside them."""


def inert(value: Any) -> str:
    """Text that Plotly shows as it is."""
    return html.escape(visible(value), quote=False)


def height_of(chart: Chart) -> int:
    """The height of a figure in pixels, which its place on the page has from the beginning."""
    return 240 if chart.small else 300


def axis_range(chart: Chart) -> Interval:
    """The ends of the value axis as Plotly wants them, with room above; of a logarithmic one their
    exponents.
    """
    axis = chart.axis
    reach = axis.high - axis.low
    room = 0.12 if chart.kind == "dots" else 0.04
    low = (
        axis.low
        if (chart.from_zero or chart.share) and axis.low == 0 and chart.kind == "lines"
        else axis.low - 0.04 * reach
    )
    return low, axis.high + room * reach


def plot(chart: Chart, arms: Mapping[str, int]) -> JsonObject:
    """`data` and `layout`. A chart of anything but the page's `arms` has a legend of its own."""
    colours = {series.label: _colour(chart, series, arms) for series in chart.series}
    layout: JsonObject = {
        "height": height_of(chart),
        "hovermode": "x unified",
        "showlegend": len(colours) > 1 and not colours.keys() <= arms.keys(),
        "xaxis": {"title": {"text": inert(chart.x_title)}},
        "yaxis": {
            "title": {"text": inert(chart.y_title + (" (log)" if chart.log else ""))},
            **_value_axis(chart),
        },
        "meta": {
            "x": chart.x_title,
            "y": chart.y_title,
            "named": chart.kind == "dots",
            "zero": chart.axis.zero,
        },
    }
    if chart.kind == "lines":
        data = _lines(chart, colours)
        sides = set(chart.focus) - set(arms)  # the page's own legend does not name them
        for trace in data:
            trace["showlegend"] &= not sides or trace["meta"]["series"] in sides
        layout["annotations"] = _names_at_ends(
            chart, {name: colours[name] for name in colours if name not in sides}
        )
        layout["xaxis"]["unifiedhovertitle"] = {"text": f"{inert(chart.x_title)} %{{x}}"}
        if chart.reach is not None:
            low, high = map(math.log10, chart.reach) if chart.log_x else chart.reach
            room = 0.02 * (high - low)
            layout["xaxis"]["range"] = [low - room, high + room]
        if chart.log_x:
            places = chart.places
            ticks = {"tickvals": places, "ticktext": [f"{place:g}" for place in places]}
            layout["xaxis"] |= {"type": "log", **ticks}
    else:
        data = _dots(chart, colours)
        layout["annotations"] = _values_above(chart)
        names = list(map(inert, chart.categories))
        ticks = {"tickvals": [*range(len(names))], "ticktext": names, "tickangle": 0}
        layout["xaxis"] |= {
            "range": [-0.5, len(names) - 0.5],
            "zeroline": False,
            "showgrid": False,
            **ticks,
        }
        layout["xaxis"]["unifiedhovertitle"] = {"text": "%{customdata[0]}"}
    layout["shapes"] = [
        _style_part("reference_line") | {"y0": published.value, "y1": published.value}
        for published in chart.references
    ]
    for published in chart.references:
        place = {"y": _axis_position(chart, published.value), "text": inert(published.label)}
        layout["annotations"].append(_style_part("reference_name") | place)
    return {"data": data, "layout": layout}


def template(scheme: dict[str, str]) -> JsonObject:
    """Colours, type, axes and margins of all figures."""
    layout = _style_part("layout", scheme)
    arms = [scheme[f"a{i}"] for i in range(COLOURS)]
    margin = layout["margin"] | {"t": TOP, "b": BOTTOM}
    axis = layout.pop("axis")
    value_axis = axis | {"automargin": True}
    return {
        "layout": layout | {"colorway": arms, "margin": margin, "xaxis": axis, "yaxis": value_axis}
    }


def _colour(chart: Chart, series: Series, arms: Mapping[str, int]) -> int:
    """A colour of the palette: of arms that the figure is not about, grey; of a contrast's sides
    the first two.
    """
    if chart.focus and series.label not in chart.focus:
        return NEUTRAL_LIGHT
    if series.colour is not None:
        return series.colour
    place = chart.focus.index(series.label) if chart.focus else NEUTRAL_LIGHT
    return arms.get(series.label, place)


def _value_axis(chart: Chart) -> JsonObject:
    out: JsonObject = {"range": list(axis_range(chart))}
    if chart.log:
        written = percent if chart.share else format_number
        ticks = [
            (chart.axis.zero if tick == 0 else tick, written(tick, 1)) for tick in chart.axis.ticks
        ]
        out |= {
            "type": "log",
            "tickvals": [place for place, _ in ticks],
            "ticktext": [text for _, text in ticks],
        }
    elif chart.share:
        out["tickformat"] = ".3~%"
    return out


def _trace(chart: Chart, series: Series, **look: Any) -> JsonObject:
    """What all traces of a series have.

    A mean speaks when it is pointed at, with the ends of its band. Its seeds are silent then: they
    would be dozens of lines. `customdata` has per point the name of its place (of dots), the true
    value, and the band."""
    label = inert(series.label)
    dots = chart.kind == "dots"
    out: JsonObject = {"type": "scatter", "name": inert(series.full_name), "legendgroup": label}
    out |= {
        "showlegend": series.seed is None,
        "meta": {"series": series.label, "seed": series.seed},
        **look,
    }
    if series.seed is not None and any(mean.label == series.label for mean in chart.means):
        out["hoverinfo"] = "skip"
        if not dots:
            return out
    shape = ".3~%" if chart.share else ".4~g"
    value_column = int(dots)
    bands: tuple[tuple[OptionalFloat, ...], ...] = (series.low, series.high) if series.low else ()
    columns: list[Iterable[Any]] = [series.y, *bands]
    if dots:
        columns.insert(0, map(inert, series.x))
    out["customdata"] = [list(row) for row in zip(*columns, strict=True)]
    if "hoverinfo" not in out:
        value = f"%{{customdata[{value_column}]:{shape}}}"
        band = ""
        if bands:
            low = f"%{{customdata[{value_column + 1}]:{shape}}}"
            high = f"%{{customdata[{value_column + 2}]:{shape}}}"
            band = f" ({low} to {high})"
        out["hovertemplate"] = f"%{{fullData.name}}: {value}{band}<extra></extra>"
    return out


def _lines(chart: Chart, colours: Mapping[str, int]) -> list[JsonObject]:
    """Bands below, then the faint lines of seeds, then means; what the figure is about lies on
    top.
    """
    about = [series for series in chart.series if series.label in chart.focus]
    ordered = [*(series for series in chart.series if series not in about), *about]
    bands = [series for series in ordered if series.low and (not chart.focus or series in about)]
    out = [_band(series, LIGHT[colour_name(colours[series.label])]) for series in bands]
    for series in sorted(ordered, key=lambda series: series.seed is None):
        mean = series.seed is None
        index = colours[series.label]
        colour = LIGHT[colour_name(index)]
        grey = bool(chart.focus) and index == NEUTRAL_LIGHT
        line = (
            {"color": colour, "width": 1.4 if grey else 2.6}
            if mean
            else {"color": colour, "width": 0.8}
        )
        line["dash"] = dash(index) if mean and not grey else "solid"
        if chart.steps:
            line["shape"] = "hv"
        marked = measured = [value is not None for value in series.y]
        if sum(measured) > FEW:  # then only those that no line reaches
            around = zip([False, *measured], measured, [*measured[1:], False], strict=False)
            marked = [
                point and not previous and not following for previous, point, following in around
            ]
        look: JsonObject = {
            "x": list(series.x),
            "y": chart.placed(series.y),
            "line": line,
            "mode": "lines",
        }
        if any(marked):
            size = 7 if mean else 5
            sizes = [size if mark else 0 for mark in marked]
            look |= {
                "mode": "lines+markers",
                "marker": {"color": colour, "size": sizes, "line": {"width": 0}},
            }
        look |= {"connectgaps": True} if mean else {"opacity": 0.12 if grey else 0.35}
        trace = _trace(chart, series, **look)
        if series.positions:
            trace["meta"]["at"] = {axis: list(places) for axis, places in series.positions.items()}
        out.append(trace)
    return out


def _band(series: Series, colour: str) -> JsonObject:
    """The band as closed shapes, one for each stretch in which both edges are known."""
    stretches: list[list[int]] = [[]]
    for i, (low, high) in enumerate(zip(series.low, series.high, strict=True)):
        if low is None or high is None:
            stretches.append([])
        else:
            stretches[-1].append(i)

    def around(forward: Sequence[Any], back: Sequence[Any]) -> list[Any]:
        out: list[Any] = []
        for places in filter(None, stretches):
            out += (
                ([None] if bool(out) else [])
                + [forward[i] for i in places]
                + [back[i] for i in reversed(places)]
            )
        return out

    meta: JsonObject = {"series": series.label, "seed": series.seed, "role": "band"}
    if series.positions:
        meta["at"] = {axis: around(places, places) for axis, places in series.positions.items()}
    look = _style_part("band") | {"fillcolor": colour}
    name = inert(series.label)
    x = around(series.x, series.x)
    y = around(series.high, series.low)
    return {**look, "x": x, "y": y, "name": name, "legendgroup": name, "meta": meta}


def _offsets(chart: Chart) -> dict[str, float]:
    labels = list(dict.fromkeys(series.label for series in chart.series))
    return {
        label: (place - (len(labels) - 1) / 2) * PLACE / len(labels)
        for place, label in enumerate(labels)
    }


def _dots(chart: Chart, colours: Mapping[str, int]) -> list[JsonObject]:
    seeds = {
        seed: place
        for place, seed in enumerate(sorted({s.seed for s in chart.seeds if s.seed is not None}))
    }
    offsets = _offsets(chart)
    width = PLACE / max(1, len(offsets))
    out = []
    for series in sorted(chart.series, key=lambda series: series.seed is None):
        colour = LIGHT[colour_name(colours[series.label])]
        offset = 0.0
        mark = _style_part("mean_dot")
        if series.seed is not None:
            offset = (seeds[series.seed] - (len(seeds) - 1) / 2) / max(1, len(seeds)) * width * 0.7
            mark = _style_part("seed_dot")
        x = [
            chart.categories.index(str(place)) + offsets[series.label] + offset
            for place in series.x
        ]
        look = {
            "x": x,
            "y": chart.placed(series.y),
            "mode": "markers",
            "cliponaxis": False,
            "marker": mark | {"color": colour},
        }
        out.append(_trace(chart, series, **look))
    return out


def _axis_position(chart: Chart, value: float) -> float:
    [place] = chart.placed([value])
    return math.log10(place or 0.0) if chart.log else value


def _names_at_ends(chart: Chart, colours: Mapping[str, int]) -> list[JsonObject]:
    """Each line's name at its right end, moved apart where lines end close together; no names for
    more than fit.
    """
    low, high = axis_range(chart)
    inside = height_of(chart) - TOP - BOTTOM
    ends = []
    for series in chart.means or chart.seeds:
        values = [y for y in series.y if y is not None]
        if values and series.label in colours:
            ends.append(
                (
                    (_axis_position(chart, values[-1]) - low) / (high - low) * inside,
                    values[-1],
                    series,
                )
            )
    ends.sort(key=lambda end: -end[0])
    if len(ends) * LINE > inside + LINE or len({series.label for *_, series in ends}) < 2:
        return []
    places: list[float] = []
    for height, _, _ in ends:
        places.append(min(height, places[-1] - LINE) if places else height)
    short = max(0.0, -places[-1] if places else 0.0)
    return [
        _style_part("name_at_end")
        | {
            "name": inert(series.full_name),
            "text": inert(series.label),
            "y": _axis_position(chart, value),
        }
        | {
            "yshift": round(place + short - height, 1),
            "font": {"color": LIGHT[colour_name(colours[series.label])]},
        }
        for place, (height, value, series) in zip(places, ends, strict=True)
    ]


def _values_above(chart: Chart) -> list[JsonObject]:
    offsets = _offsets(chart)
    if len(chart.categories) * len(offsets) > NAMED:
        return []
    tops: dict[tuple[str, str], float] = {}
    for series in chart.series:
        for x, y in zip(series.x, series.y, strict=True):
            if y is not None:
                tops[str(x), series.label] = max(y, tops.get((str(x), series.label), y))
    above = _style_part("value_above")
    above["textangle"] = -90 if len(chart.categories) * len(offsets) > FEW else 0
    values = []
    for series in chart.means:
        for x, y in zip(series.x, series.y, strict=True):
            if y is None:
                continue
            place = chart.categories.index(str(x)) + offsets[series.label]
            top = _axis_position(chart, tops[str(x), series.label])
            text = inert(chart.format_value(y, 2))
            values.append(above | {"x": place, "y": top, "text": text, "name": inert(series.label)})
    return values
