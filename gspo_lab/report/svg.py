"""A chart as inline SVG: it reads without JavaScript, in print and in a mail. Colours and dashes are CSS classes."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from gspo_lab.report.chart import Axis, Chart, Series, Value, sentence, value_axis
from gspo_lab.report.markup import Html, h, join
from gspo_lab.report.palette import look

FEW = 12
"""A line of so many points or fewer shows where they are."""

CHARACTER = 7.8  # width of a character of the labels' font, in the drawing's units
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
    """The CSS classes of one series: its role, its colour and its dash."""
    return f"{role} {look(series.colour)}"


def draw(chart: Chart) -> Html:
    """The chart as one `<svg>`; an empty chart is a box that says so."""
    width, height = (360.0, 220.0) if chart.small else (540.0, 300.0)
    y = chart.axis()
    left = 32 + 7.6 * max(len(label) for _, label in y.ticks)  # also in the larger type of a phone
    if chart.kind == "lines":
        longest = max((len(series.label) for series in chart.means or chart.seeds), default=0)
        margin = min(0.34 * width, 12 + CHARACTER * longest)
        positions = [*(chart.reach or ()), *(float(x) for series in chart.series for x in series.x)]
        x = Axis(min(positions, default=0.0), max(max(positions, default=1.0), 1.0), False, False, ())
        frame = _Frame(left, 14, width - margin, height - 42, x, y)
        content = _lines(chart, frame, int((margin - 8) / CHARACTER))
    elif chart.kind == "slopes":
        longest = max((len(_who(series)) for series in chart.series), default=0)
        frame = _Frame(left, 14, width - min(0.3 * width, 12 + CHARACTER * longest), height - 42, None, y)
        content = _slopes(chart, frame)
    else:
        frame = _Frame(left, 14 + 18 * len(_legend_rows(chart, width)), width - 10, height - 42, None, y)
        content = join([_legend(chart, width), _columns(chart, frame)])
    return h(
        "svg",
        h("title", chart.title),
        _grid(chart, frame, height),
        content,
        class_="drawn chart",
        viewBox=f"0 0 {width:g} {height:g}",
        role="img",
        aria_label=sentence(chart),
    )


def _grid(chart: Chart, frame: _Frame, height: float) -> Html:
    parts = []
    for tick, label in frame.y.ticks:
        at = coordinate(frame.py(tick))
        parts.append(h("path", d=f"M{coordinate(frame.left)} {at}H{coordinate(frame.right)}", class_="grid"))
        parts.append(h("text", label, x=coordinate(frame.left - 6), y=at, dy=".32em", class_="end"))
    if frame.y.log and frame.y.zero:
        gap = coordinate(frame.bottom - frame.y.GAP / 2 * (frame.bottom - frame.top))
        parts.append(h("path", d=f"M{coordinate(frame.left)} {gap}H{coordinate(frame.right)}", class_="break"))
    if frame.x is not None:
        ticks = value_axis([frame.x.low, frame.x.high], log=False).ticks
        for tick, label in ticks:
            if frame.x.low <= tick <= frame.x.high:
                parts.append(
                    h("text", label, x=coordinate(frame.px(tick)), y=coordinate(frame.bottom + 17), class_="mid")
                )
    middle = coordinate((frame.left + frame.right) / 2)
    parts.append(h("text", chart.x_title, x=middle, y=coordinate(height - 6), class_="mid title"))
    turned = f"rotate(-90 12 {coordinate((frame.top + frame.bottom) / 2)})"
    unit = chart.y_title + (" (log)" if chart.log else "")
    parts.append(
        h("text", unit, x="12", y=coordinate((frame.top + frame.bottom) / 2), class_="mid title", transform=turned)
    )
    return join(parts)


def _lines(chart: Chart, frame: _Frame, room: int) -> Html:
    parts: list[Html] = []
    for series in chart.series:
        if series.low and series.high:
            parts.append(h("path", d=_band(series, frame), class_=class_of(series, "band")))
    for series in [*chart.seeds, *chart.means]:
        name = series.label if series.seed is None else f"{series.label}, seed {series.seed}"
        role, size = ("mean", "3.5") if series.seed is None else ("seed", "2.5")
        if any(a is not None and b is not None for a, b in itertools.pairwise(series.y)):
            parts.append(h("path", h("title", name), d=_path(series.x, series.y, frame), class_=class_of(series, role)))
        parts += [
            h("circle", h("title", name), cx=coordinate(frame.px(float(x))), cy=coordinate(frame.py(y)), r=size,
              class_=class_of(series, "dot"))
            for x, y, marked in zip(series.x, series.y, dots(series.y), strict=True) if marked and y is not None
        ]  # fmt: skip
    ends = []
    for series in chart.means or chart.seeds:
        known = [y for y in series.y if y is not None]
        if known:
            ends.append((frame.py(known[-1]), short(series.label, room), series))
    return join([*parts, *_end_labels(ends, frame)])


def dots(values: Sequence[Value]) -> list[bool]:
    """Which points of a line are marked: all of few, and any that no line reaches."""
    known = [value is not None for value in values]
    if sum(known) <= FEW:
        return known
    around = zip([False, *known], known, [*known[1:], False], strict=False)
    return [here and not before and not after for before, here, after in around]


def _slopes(chart: Chart, frame: _Frame) -> Html:
    """One line per seed from the first category to the second, its name at its end; the mean is thick."""
    slot = (frame.right - frame.left) / max(1, len(chart.categories))
    # The ends of the lines stand near the edges: their names do then.
    place = {c: frame.left + slot * (i + (0.25, 0.75)[i % 2]) for i, c in enumerate(chart.categories)}
    room = max(3, int(slot / CHARACTER))
    parts = [
        h("text", short(c, room), x=coordinate(x), y=coordinate(frame.bottom + 17), class_="mid")
        for c, x in place.items()
    ]
    ends = []
    for series in [*chart.seeds, *chart.means]:
        points = [(place[str(x)], frame.py(y)) for x, y in zip(series.x, series.y, strict=True) if y is not None]
        if not points:
            continue
        line = "M" + "L".join(f"{coordinate(x)} {coordinate(y)}" for x, y in points)
        role = "mean" if series.seed is None else "slope"
        parts.append(h("path", h("title", _who(series)), d=line, class_=class_of(series, role)))
        if series.seed is not None:
            parts += [
                h("circle", cx=coordinate(x), cy=coordinate(y), r="4", class_=class_of(series, "dot"))
                for x, y in points
            ]
        ends.append((points[-1][1], _who(series), series))
    shift = frame.right - max(place.values(), default=frame.right)
    return join([*parts, *_end_labels(ends, frame, shift=8 - shift)])


def _who(series: Series) -> str:
    return "mean" if series.seed is None else f"seed {series.seed}"


def _path(xs: Sequence[float | str], ys: Sequence[Value], frame: _Frame) -> str:
    """Line segments; where a value is missing the line is broken, not bridged."""
    # Most of a large page is made here. The x axis is linear: two of its places give all.
    origin = frame.px(0.0)
    slope = frame.px(1.0) - origin
    out, pen = [], "M"
    for x, y in zip(xs, ys, strict=True):
        if y is None:
            pen = "M"
            continue
        out.append(f"{pen}{origin + slope * float(x):.1f} {frame.py(y):.1f}")
        pen = "L"
    return "".join(out).replace(".0 ", " ").replace(".0L", "L").replace(".0M", "M").removesuffix(".0")


def _band(series: Series, frame: _Frame) -> str:
    columns = zip(series.x, series.low, series.high, strict=True)
    runs = itertools.groupby(columns, key=lambda c: c[1] is not None and c[2] is not None)
    out = []
    for known, group in runs:
        if known:
            points = [(frame.px(float(x)), frame.py(low or 0.0), frame.py(high or 0.0)) for x, low, high in group]
            there = [f"{coordinate(x)} {coordinate(high)}" for x, _, high in points]
            back = [f"{coordinate(x)} {coordinate(low)}" for x, low, _ in reversed(points)]
            out.append("M" + "L".join(there + back) + "Z")
    return "".join(out)


def _end_labels(ends: list[tuple[float, str, Series]], frame: _Frame, *, shift: float = 6) -> list[Html]:
    """Each line's name at its right end, moved apart where lines end close together. `ends`: height, name, line."""
    ends = sorted(ends, key=lambda end: end[0])
    places: list[float] = []
    for at, _, _ in ends:
        places.append(max(at, places[-1] + _LINE) if places else at)
    surplus = max(0.0, (places[-1] if places else 0.0) - frame.bottom)
    return [
        h(
            "text",
            name,
            x=coordinate(frame.right + shift),
            y=coordinate(at - surplus),
            dy=".32em",
            class_=class_of(one, "label"),
        )
        for at, (_, name, one) in zip(places, ends, strict=True)
    ]


def _columns(chart: Chart, frame: _Frame) -> Html:
    """Bars or dots over categories; a category's place is shared by the series that have means in it."""
    categories, parts = chart.categories, []
    slot = (frame.right - frame.left) / max(1, len(categories))
    room = max(3, int(slot / CHARACTER))
    for index, category in enumerate(categories):
        middle = frame.left + (index + 0.5) * slot
        parts.append(
            h("text", short(category, room), x=coordinate(middle), y=coordinate(frame.bottom + 17), class_="mid")
        )
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
            name = h("title", f"{series.label}, {category}: {chart.shown(value)}")
            if series.seed is not None:
                name = h("title", f"{series.label}, seed {series.seed}, {category}: {chart.shown(value)}")
                parts.append(
                    h(
                        "circle",
                        name,
                        cx=coordinate(middle + beside),
                        cy=coordinate(at),
                        r="3.5",
                        class_=class_of(series, "dot"),
                    )
                )
            elif chart.kind == "dots":
                line = f"M{coordinate(middle - bar * 0.42)} {coordinate(at)}H{coordinate(middle + bar * 0.42)}"
                parts.append(h("path", name, d=line, class_=class_of(series, "tick")))
            else:
                base = frame.py(0.0) if not frame.y.log and frame.y.low <= 0 <= frame.y.high else frame.bottom
                top, size = min(at, base), max(abs(base - at), 1.0)
                box = {
                    "x": coordinate(middle - bar * 0.44),
                    "y": coordinate(top),
                    "width": coordinate(bar * 0.88),
                    "height": coordinate(size),
                }
                parts.append(h("rect", name, **box, class_=class_of(series, "bar")))
                if values_fit:
                    parts.append(
                        h(
                            "text",
                            chart.shown(value, 2),
                            x=coordinate(middle),
                            y=coordinate(top - 5),
                            class_="mid value",
                        )
                    )
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
        need = 26 + CHARACTER * len(label)
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
                h(
                    "rect",
                    x=coordinate(at),
                    y=coordinate(4 + 18 * row),
                    width="12",
                    height="12",
                    class_=class_of(series, "bar"),
                )
            )
            parts.append(
                h(
                    "text",
                    series.label,
                    x=coordinate(at + 17),
                    y=coordinate(14 + 18 * row),
                    class_=class_of(series, "label"),
                )
            )
            at += 26 + CHARACTER * len(series.label)
    return join(parts)


def short(label: str, room: int) -> str:
    """A label in so many characters: its beginning and its end, in which names of one family differ."""
    if len(label) <= room:
        return label
    tail = max(0, room - 1) * 2 // 5
    return f"{label[: max(1, room - 1 - tail)]}…{label[len(label) - tail :]}"


def coordinate(value: float) -> str:
    """A coordinate with one digit behind the point, and none where that is 0."""
    return f"{value:.1f}".removesuffix(".0")
