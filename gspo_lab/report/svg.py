"""A chart as inline SVG: it reads without JavaScript, in print and in a mail. Colours and dashes are CSS classes."""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gspo_lab.report.chart import Axis, Chart, Series, Value, sentence, value_axis
from gspo_lab.report.markup import Html, h, join, number

COLOURS = 8
"""Arms have the colours 0 to 7, then again from 0; 8 and 9 are for what is no arm."""

NEUTRAL_DARK, NEUTRAL_LIGHT = 8, 9

_CHARACTER = 7.8  # width of a character of the labels' font, in the drawing's units
_LINE = 15.0  # least distance of two labels


@dataclass(frozen=True)
class _Frame:
    """The plotting area within the drawing, and where values and positions lie in it."""

    left: float
    top: float
    right: float
    bottom: float
    x: Axis | None
    y: Axis

    def px(self, position: float) -> float:
        assert self.x is not None
        return self.left + self.x.place(position) * (self.right - self.left)

    def py(self, value: float) -> float:
        return self.bottom - self.y.place(value) * (self.bottom - self.top)


def class_of(series: Series, role: str) -> str:
    """The CSS classes of one series: its role and its colour (which brings the dash)."""
    return f"{role} c{series.colour if series.colour >= COLOURS else series.colour % COLOURS}"


def draw(chart: Chart) -> Html:
    """The chart as one `<svg>`; an empty chart is a box that says so."""
    width, height = (360.0, 220.0) if chart.small else (540.0, 300.0)
    y = value_axis(chart.values(), log=chart.log, whole=chart.whole)
    left = 30 + 6.6 * max(len(label) for _, label in y.ticks)
    if chart.kind == "lines":
        longest = max((len(series.label) for series in chart.means or chart.seeds), default=0)
        margin = min(0.34 * width, 12 + _CHARACTER * longest)
        positions = [float(x) for series in chart.series for x in series.x]
        x = Axis(min(positions, default=0.0), max(max(positions, default=1.0), 1.0), False, False, ())
        frame = _Frame(left, 14, width - margin, height - 42, x, y)
        content = _lines(chart, frame, int((margin - 8) / _CHARACTER))
    else:
        frame = _Frame(left, 14 + 18 * len(_legend_rows(chart, width)), width - 10, height - 42, None, y)
        content = join([_legend(chart, width), _columns(chart, frame)])
    return h(
        "svg",
        h("title", chart.title),
        _grid(chart, frame, width, height),
        content,
        class_="chart",
        viewBox=f"0 0 {width:g} {height:g}",
        role="img",
        aria_label=sentence(chart),
    )


def _grid(chart: Chart, frame: _Frame, width: float, height: float) -> Html:
    parts = []
    for tick, label in frame.y.ticks:
        at = _n(frame.py(tick))
        parts.append(h("path", d=f"M{_n(frame.left)} {at}H{_n(frame.right)}", class_="grid"))
        parts.append(h("text", label, x=_n(frame.left - 6), y=at, dy=".32em", class_="end"))
    if frame.y.log and frame.y.zero:
        gap = _n(frame.bottom - frame.y.GAP / 2 * (frame.bottom - frame.top))
        parts.append(h("path", d=f"M{_n(frame.left)} {gap}H{_n(frame.right)}", class_="break"))
    if frame.x is not None:
        ticks = value_axis([frame.x.low, frame.x.high], log=False).ticks
        for tick, label in ticks:
            if frame.x.low <= tick <= frame.x.high:
                parts.append(h("text", label, x=_n(frame.px(tick)), y=_n(frame.bottom + 17), class_="mid"))
    middle = _n((frame.left + frame.right) / 2)
    parts.append(h("text", chart.x_title, x=middle, y=_n(height - 6), class_="mid title"))
    turned = f"rotate(-90 12 {_n((frame.top + frame.bottom) / 2)})"
    unit = chart.y_title + (" (log)" if chart.log else "")
    parts.append(h("text", unit, x="12", y=_n((frame.top + frame.bottom) / 2), class_="mid title", transform=turned))
    return join(parts)


def _lines(chart: Chart, frame: _Frame, room: int) -> Html:
    parts: list[Html] = []
    for series in chart.series:
        if series.low and series.high:
            parts.append(h("path", d=_band(series, frame), class_=class_of(series, "band")))
    for series in [*chart.seeds, *chart.means]:
        name = series.label if series.seed is None else f"{series.label}, seed {series.seed}"
        lonely = [(x, y) for x, y in zip(series.x, series.y, strict=True) if y is not None]
        role = "mean" if series.seed is None else "seed"
        if len(lonely) == 1:
            (x, value), *_ = lonely
            parts.append(
                h("circle", h("title", name), cx=_n(frame.px(float(x))), cy=_n(frame.py(value)), r="3.5",
                  class_=class_of(series, "dot"))
            )  # fmt: skip
        elif lonely:
            parts.append(h("path", h("title", name), d=_path(series.x, series.y, frame), class_=class_of(series, role)))
    parts += _end_labels(chart.means or chart.seeds, frame, room)
    return join(parts)


def _path(xs: Sequence[float | str], ys: Sequence[Value], frame: _Frame) -> str:
    """Line segments; where a value is missing the line is broken, not bridged."""
    out, pen_down = [], False
    for x, y in zip(xs, ys, strict=True):
        if y is None:
            pen_down = False
            continue
        out.append(f"{'L' if pen_down else 'M'}{_n(frame.px(float(x)))} {_n(frame.py(y))}")
        pen_down = True
    return "".join(out)


def _band(series: Series, frame: _Frame) -> str:
    columns = zip(series.x, series.low, series.high, strict=True)
    runs = itertools.groupby(columns, key=lambda c: c[1] is not None and c[2] is not None)
    out = []
    for known, group in runs:
        if known:
            points = [(frame.px(float(x)), frame.py(low or 0.0), frame.py(high or 0.0)) for x, low, high in group]
            there = [f"{_n(x)} {_n(high)}" for x, _, high in points]
            back = [f"{_n(x)} {_n(low)}" for x, low, _ in reversed(points)]
            out.append("M" + "L".join(there + back) + "Z")
    return "".join(out)


def _end_labels(series: Iterable[Series], frame: _Frame, room: int) -> list[Html]:
    """Each line's name at its right end, moved apart where lines end close together."""
    ends = []
    for one in series:
        known = [(x, y) for x, y in zip(one.x, one.y, strict=True) if y is not None]
        if known:
            ends.append((frame.py(known[-1][1]), one))
    ends.sort(key=lambda end: end[0])
    places: list[float] = []
    for at, _ in ends:
        places.append(max(at, places[-1] + _LINE) if places else at)
    surplus = max(0.0, (places[-1] if places else 0.0) - frame.bottom)
    return [
        h("text", _short(one.label, room), x=_n(frame.right + 6), y=_n(at - surplus), dy=".32em",
          class_=class_of(one, "label"))
        for at, (_, one) in zip(places, ends, strict=True)
    ]  # fmt: skip


def _columns(chart: Chart, frame: _Frame) -> Html:
    """Bars or dots over categories; a category's place is shared by the series that have means in it."""
    categories, parts = chart.categories, []
    slot = (frame.right - frame.left) / max(1, len(categories))
    room = max(3, int(slot / _CHARACTER))
    for index, category in enumerate(categories):
        middle = frame.left + (index + 0.5) * slot
        parts.append(h("text", _short(category, room), x=_n(middle), y=_n(frame.bottom + 17), class_="mid"))
    labels = list(dict.fromkeys(series.label for series in chart.series))
    alone = chart.kind == "dots" and all(
        sum(category in map(str, s.x) for s in chart.series if s.seed is None) <= 1 for category in categories
    )
    bar = min(46.0, slot * 0.84 / (1 if alone else max(1, len(labels))))
    values_fit = bar >= 30
    for series in sorted(chart.series, key=lambda s: s.seed is not None):
        place = 0.0 if alone else (labels.index(series.label) - (len(labels) - 1) / 2) * bar
        beside = _beside(chart, series) * min(bar * 0.7, 34)
        for position, value in zip(series.x, series.y, strict=True):
            category = str(position)
            if value is None:
                continue
            middle = frame.left + (categories.index(category) + 0.5) * slot + place
            at = frame.py(value)
            name = h("title", f"{series.label}, {category}: {number(value)}")
            if series.seed is not None:
                name = h("title", f"{series.label}, seed {series.seed}, {category}: {number(value)}")
                parts.append(
                    h("circle", name, cx=_n(middle + beside), cy=_n(at), r="3.5", class_=class_of(series, "dot"))
                )
            elif chart.kind == "dots":
                line = f"M{_n(middle - bar * 0.42)} {_n(at)}H{_n(middle + bar * 0.42)}"
                parts.append(h("path", name, d=line, class_=class_of(series, "tick")))
            else:
                base = frame.py(0.0) if not frame.y.log and frame.y.low <= 0 <= frame.y.high else frame.bottom
                top, size = min(at, base), max(abs(base - at), 1.0)
                box = {"x": _n(middle - bar * 0.44), "y": _n(top), "width": _n(bar * 0.88), "height": _n(size)}
                parts.append(h("rect", name, **box, class_=class_of(series, "bar")))
                if values_fit:
                    parts.append(h("text", number(value, 2), x=_n(middle), y=_n(top - 5), class_="mid value"))
    return join(parts)


def _beside(chart: Chart, series: Series) -> float:
    """Seeds stand side by side, in their order: -0.5 to 0.5."""
    if series.seed is None:
        return 0.0
    seeds = sorted({s.seed for s in chart.seeds if s.seed is not None})
    return (seeds.index(series.seed) - (len(seeds) - 1) / 2) / max(1, len(seeds))


def _legend_rows(chart: Chart, width: float) -> list[list[Series]]:
    rows: list[list[Series]] = []
    used = width
    named = {series.label: series for series in reversed(chart.series)}
    for label in dict.fromkeys(series.label for series in chart.series):
        need = 26 + _CHARACTER * len(label)
        if used + need > width - 60:
            rows.append([])
            used = 0.0
        rows[-1].append(named[label])
        used += need
    return rows if len(named) > 1 and not (chart.kind == "dots" and set(named) == set(chart.categories)) else []


def _legend(chart: Chart, width: float) -> Html:
    parts = []
    for row, members in enumerate(_legend_rows(chart, width)):
        at = 52.0
        for series in members:
            parts.append(
                h("rect", x=_n(at), y=_n(4 + 18 * row), width="12", height="12", class_=class_of(series, "bar"))
            )
            parts.append(h("text", series.label, x=_n(at + 17), y=_n(14 + 18 * row), class_=class_of(series, "label")))
            at += 26 + _CHARACTER * len(series.label)
    return join(parts)


def _short(label: str, room: int) -> str:
    return label if len(label) <= room else label[: max(1, room - 1)] + "…"


def _n(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
