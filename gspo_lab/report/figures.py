"""A chart as the page shows it: the SVG, the same data for Plotly, and the numbers as a table."""

import json
from collections.abc import Sequence
from typing import Any

from gspo_lab.report.chart import Chart, numbers, sentence, value_axis
from gspo_lab.report.markup import NOT_MEASURED, Html, h, number, table
from gspo_lab.report.svg import COLOURS, class_of, draw


def figure(chart: Chart, prefix: str = "") -> Html:
    """One `<figure>` with a fixed id (`m-reward`), so that a link can lead to it. Without values: one honest line."""
    id_ = f"{prefix}{chart.id}"
    heading = h("h3", h("a", chart.title, href=f"#{id_}"))
    if not chart.values():
        return h("figure", heading, h("p", NOT_MEASURED, class_="missing"), id=id_, class_="empty")
    head, rows, caption = numbers(chart)
    shown = [
        [_position(row[0]), *(cell if isinstance(cell, str) else number(cell) for cell in row[1:])] for row in rows
    ]
    return h(
        "figure",
        heading,
        h("div", draw(chart), h("div", class_="plot", hidden=True), class_="drawing"),
        h("figcaption", chart.note) if chart.note else None,
        h("details", h("summary", "Numbers"), table(head, shown, caption=caption)),
        h("script", script_json(for_plotly(chart)), type="application/json"),
        id=id_,
        class_="small" if chart.small else None,
    )


def keys(charts: Sequence[Chart]) -> Html:
    """One line that says which colour and dash is which arm, for charts too small to repeat it."""
    found = {series.label: series for chart in charts for series in chart.means or chart.seeds}
    named = [h("span", h("i", class_=class_of(one, "key")), one.label) for one in found.values()]
    return h("p", *named, class_="keys")


def for_plotly(chart: Chart) -> dict[str, Any]:
    """What the page's script needs to draw the chart with Plotly; positions that series share are stored once."""
    axis = value_axis(chart.values(), log=chart.log, whole=chart.whole)
    positions: list[Any] = []
    series = []
    for one in chart.series:
        x = list(one.x)
        if x not in positions:
            positions.append(x)
        item: dict[str, Any] = {
            "name": one.label,
            "c": one.colour if one.colour >= COLOURS else one.colour % COLOURS,
            "x": positions.index(x),
            "y": [rounded(value) for value in one.y],
        }
        if one.seed is not None:
            item["seed"] = one.seed
        if one.low and one.high:
            item["low"] = [rounded(value) for value in one.low]
            item["high"] = [rounded(value) for value in one.high]
        series.append(item)
    out: dict[str, Any] = {
        "kind": chart.kind,
        "small": chart.small,
        "label": sentence(chart),
        "x": positions,
        "xTitle": chart.x_title,
        "yTitle": chart.y_title + (" (log)" if chart.log else ""),
        "series": series,
    }
    if chart.kind != "lines":
        out["categories"] = chart.categories
    if chart.log:
        bottom = axis.zero_value if axis.zero else axis.low
        out["log"] = [rounded(bottom), rounded(axis.high)]
        out["ticks"] = [[rounded(bottom if tick == 0 else tick) for tick, _ in axis.ticks], [t for _, t in axis.ticks]]
    elif chart.whole:
        out["range"] = [rounded(axis.low), rounded(axis.high)]
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
