"""A chart as the page shows it: the SVG, the same data for Plotly, and the numbers as a table."""

import json
from collections.abc import Sequence
from typing import Any

from gspo_lab.report.chart import Chart, numbers, sentence
from gspo_lab.report.markup import NOT_MEASURED, Html, h, table
from gspo_lab.report.palette import colour_name, dash
from gspo_lab.report.rows import draw_rows
from gspo_lab.report.svg import class_of, dots, draw


class Positions:
    """The positions on all x axes of a page, each list of them stored once: most charts share theirs."""

    def __init__(self) -> None:
        self._places: dict[tuple[Any, ...], int] = {}

    def place(self, positions: Sequence[Any]) -> int:
        """The index under which the page's script finds these positions."""
        return self._places.setdefault(tuple(positions), len(self._places))

    def script(self) -> Html:
        """The script block that holds them all."""
        lists = [[rounded(one) for one in positions] for positions in self._places]
        return h("script", script_json(lists), type="application/json", id="positions")


def figure(chart: Chart, positions: Positions) -> Html:
    """One `<figure>` with a fixed id (`m-reward`), so that a link can lead to it. Without values: one honest line."""
    heading = h("h3", h("a", chart.title, href=f"#{chart.id}"))
    if not chart.values():
        return h("figure", heading, h("p", NOT_MEASURED, class_="missing"), id=chart.id, class_="empty")
    head, rows, caption = numbers(chart)
    shown = [
        [_position(row[0]), *(cell if isinstance(cell, str) else chart.shown(cell) for cell in row[1:])] for row in rows
    ]
    return h(
        "figure",
        heading,
        h("div", drawing(chart), h("div", class_="plot", hidden=True), class_="drawing"),
        h("figcaption", chart.note) if chart.note else None,
        h("details", h("summary", "Numbers"), table(head, shown, caption=caption)),
        h("script", script_json(for_plotly(chart, positions)), type="application/json"),
        id=chart.id,
        class_=f"of-{chart.kind}" + (" small" if chart.small else ""),
    )


def drawing(chart: Chart) -> Html:
    """The chart as SVG."""
    return draw_rows(chart) if chart.kind in ("forest", "stack") else draw(chart)


def keys(charts: Sequence[Chart]) -> Html:
    """One line that says which colour and dash is which arm, for charts too small to repeat it."""
    found = {series.label: series for chart in charts for series in chart.means or chart.seeds}
    named = [h("span", h("i", class_=class_of(one, "key")), one.label) for one in found.values()]
    return h("p", *named, class_="keys")


def for_plotly(chart: Chart, positions: Positions) -> dict[str, Any]:
    """What the page's script needs to draw the chart with Plotly; positions are told by their place in the page's."""
    axis = chart.axis()
    series = []
    for one in chart.series:
        item: dict[str, Any] = {
            "name": one.label,
            "c": colour_name(one.colour),
            "d": dash(one.colour),
            "x": positions.place(one.x),
            "y": [rounded(value) for value in one.y],
        }
        if chart.kind == "lines" and any(marks := dots(one.y)):
            item["dots"] = [index for index, marked in enumerate(marks) if marked]
        if one.seed is not None:
            item["seed"] = one.seed
        if one.low and one.high:
            item["low"] = [rounded(value) for value in one.low]
            item["high"] = [rounded(value) for value in one.high]
        if one.at:
            item["at"] = {title: positions.place(values) for title, values in one.at.items()}
        series.append(item)
    out: dict[str, Any] = {
        "kind": chart.kind,
        "small": chart.small,
        "title": chart.title,
        "label": sentence(chart),
        "xTitle": chart.x_title,
        "yTitle": chart.y_title + (" (log)" if chart.log else ""),
        "series": series,
    }
    if chart.share:
        out["share"] = True
    if chart.reach is not None:
        out["reach"] = list(chart.reach)
    if chart.kind != "lines":
        out["categories"] = chart.categories
    if chart.log:
        bottom = axis.zero_value if axis.zero else axis.low
        out["log"] = [rounded(bottom), rounded(axis.high)]
        out["ticks"] = [[rounded(bottom if tick == 0 else tick) for tick, _ in axis.ticks], [t for _, t in axis.ticks]]
    elif chart.whole or chart.span or chart.margin is not None:
        out["range"] = [rounded(axis.low), rounded(axis.high)]
    if chart.margin is not None:
        out["margin"] = chart.margin
    return out


def script_json(data: Any) -> Html:
    """JSON for a `<script>` block: nothing in it can close the block or open a comment."""
    written = json.dumps(data, ensure_ascii=True, separators=(",", ":"), sort_keys=True, allow_nan=False)
    return Html(written.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def rounded(value: Any) -> Any:
    """`value` with six significant digits; whole numbers lose their `.0`; what is not finite is None."""
    if not isinstance(value, float):
        return value
    if value != value or value in (float("inf"), float("-inf")):
        return None
    short = float(f"{value:.6g}")
    return int(short) if short.is_integer() and abs(short) < 1e15 else short


def _position(position: Any) -> str:
    return f"{position:g}" if isinstance(position, float) else str(position)
