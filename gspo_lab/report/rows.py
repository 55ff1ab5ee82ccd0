"""Charts whose categories lie one below the other, as inline SVG: a forest of intervals, and rows of stacked shares."""

from collections.abc import Callable

from gspo_lab.report.chart import Axis, Chart, Series, sentence
from gspo_lab.report.markup import Html, h, join, number
from gspo_lab.report.svg import CHARACTER, class_of, coordinate, short

ROW = 22.0
NAME_LINE = 17.0
"""The lines of a row's name, which may have two, in the larger type of a phone."""
_FOOT = 40.0


def draw_rows(chart: Chart, *, told: bool = False) -> Html:
    """The chart as one `<svg>`, as high as it has rows. `told`: its numbers stand beside it, so nobody reads it out."""
    width = 360.0 if chart.small else 540.0
    forest = chart.kind == "forest"
    rows = rows_of(chart) if forest else [(category, "") for category in chart.categories]
    widest = max((len(line) for category, _ in rows for line in _broken(category)), default=0)
    left = max(26.0, min(0.42 * width, 14 + CHARACTER * widest))
    longest = max((len(label) for _, label in rows), default=0)
    right = width - (max(26.0, min(0.28 * width, 14 + CHARACTER * longest)) if forest else 14)
    top = 8.0 if forest else 26.0
    step = ROW if forest and not chart.small else ROW * 1.5
    for category in chart.categories:  # a name needs room beside its rows, however few they are
        step = max(step, NAME_LINE * len(_broken(category)) / max(1, sum(name == category for name, _ in rows)) + 2)
    height = top + step * len(rows) + _FOOT
    axis = chart.axis() if forest else Axis(0.0, 1.0, False, False, tuple((i / 4, f"{25 * i} %") for i in range(5)))

    def px(value: float) -> float:
        return left + axis.place(value) * (right - left)

    bottom = top + step * len(rows)
    parts = []
    for tick, label in axis.ticks:
        at = coordinate(px(tick))
        parts.append(h("path", d=f"M{at} {coordinate(top)}V{coordinate(bottom)}", class_="grid"))
        parts.append(h("text", label, x=at, y=coordinate(bottom + 16), class_="mid"))
    room = int((left - 14) / CHARACTER) + 1
    for category in chart.categories:
        own = [i for i, (name, _) in enumerate(rows) if name == category]
        middle = top + step * (own[0] + own[-1] + 1) / 2
        parts.append(_name(category, room, left - 8, middle))
    parts.append(
        h("text", chart.y_title, x=coordinate((left + right) / 2), y=coordinate(height - 6), class_="mid title")
    )
    if forest:
        if chart.margin is not None:
            low, high = px(-chart.margin), px(chart.margin)
            area = {"x": low, "y": top, "width": high - low, "height": bottom - top}
            parts.insert(0, h("rect", **{k: coordinate(v) for k, v in area.items()}, class_="margin"))
        zero = coordinate(px(0.0))
        parts.append(h("path", d=f"M{zero} {coordinate(top)}V{coordinate(bottom)}", class_="zero"))
        for index, (category, label) in enumerate(rows):
            middle = top + step * (index + 0.5)
            for series in [*chart.seeds, *chart.means]:
                if series.label == label and category in series.x:
                    parts.append(_interval(series, category, middle, px))
            end = next(series for series in chart.series if series.label == label)
            parts.append(
                h("text", short(label, 20), x=coordinate(right + 8), y=coordinate(middle), dy=".32em",
                  class_=class_of(end, "label"))
            )  # fmt: skip
    else:
        for index, (category, _) in enumerate(rows):
            parts += _shares(chart, category, top + step * index, step, px)
        parts.append(_legend(chart, left))
    box = f"0 0 {width:g} {coordinate(height)}"
    if told:
        return h("svg", join(parts), class_="drawn strip", viewBox=box, aria_hidden="true")
    title = h("title", chart.title)
    return h("svg", title, join(parts), class_="drawn chart", viewBox=box, role="img", aria_label=sentence(chart))


def _name(category: str, room: int, x: float, middle: float) -> Html:
    """A row's name, ending at x; a long one has a second line after its comma."""
    lines = _broken(category)
    first = middle - NAME_LINE / 2 * (len(lines) - 1)
    return join(
        h("text", h("title", category), short(line, room), x=coordinate(x), y=coordinate(first + NAME_LINE * i),
          dy=".32em", class_="end row")
        for i, line in enumerate(lines)
    )  # fmt: skip


def _broken(category: str) -> list[str]:
    return category.split(", ", 1) if len(category) > 24 else [category]


def rows_of(chart: Chart) -> list[tuple[str, str]]:
    """(category, series) of every row of a forest, from the top."""
    labels = list(dict.fromkeys(series.label for series in chart.series))
    there = {(str(x), s.label) for s in chart.means for x, y in zip(s.x, s.y, strict=True) if y is not None}
    return [(c, label) for c in chart.categories for label in labels if (c, label) in there]


def _interval(series: Series, category: str, middle: float, px: Callable[[float], float]) -> Html:
    index = series.x.index(category)
    value = series.y[index]
    if value is None:
        return Html("")
    at, y = coordinate(px(value)), coordinate(middle)
    if series.seed is not None:
        name = h("title", f"{series.label}, seed {series.seed}: {number(value)}")
        return h("circle", name, cx=at, cy=coordinate(middle - 9), r="3.2", class_=class_of(series, "dot"))
    low, high = (series.low[index], series.high[index]) if series.low and series.high else (None, None)
    parts = []
    said = f"{series.label}, {category}: {number(value)}"
    if low is not None and high is not None:
        said += f" ({number(low)} to {number(high)})"
        line = f"M{coordinate(px(low))} {y}H{coordinate(px(high))}"
        parts.append(h("path", h("title", said), d=line, class_=class_of(series, "interval")))
    parts.append(h("path", h("title", said), d=f"M{at} {coordinate(middle - 5)}l5 5l-5 5l-5 -5z",
                   class_=class_of(series, "point")))  # fmt: skip
    return join(parts)


def _shares(chart: Chart, category: str, top: float, step: float, px: Callable[[float], float]) -> list[Html]:
    parts, start = [], 0.0
    for series in chart.series:
        value = series.y[series.x.index(category)] if category in series.x else None
        if not value:
            continue
        low, high = px(start), px(start + value)
        box = {"x": low, "y": top + step * 0.15, "width": high - low, "height": step * 0.7}
        name = h("title", f"{category}, {series.label}: {value:.0%}")
        parts.append(h("rect", name, **{k: coordinate(v) for k, v in box.items()}, class_=class_of(series, "bar")))
        if high - low > 34:
            parts.append(h("text", f"{value:.0%}", x=coordinate((low + high) / 2), y=coordinate(top + step / 2),
                           dy=".32em", class_="mid share"))  # fmt: skip
        start += value
    return parts


def _legend(chart: Chart, left: float) -> Html:
    parts, at = [], left
    for series in chart.series:
        parts.append(h("rect", x=coordinate(at), y="4", width="12", height="12", class_=class_of(series, "bar")))
        parts.append(h("text", series.label, x=coordinate(at + 17), y="14", class_=class_of(series, "label")))
        at += 30 + CHARACTER * len(series.label)
    return join(parts)
