"""A chart as the page shows it: its heading, a place for the drawing, and the numbers as a table."""

import functools
import json
from collections.abc import Mapping
from typing import Any

from gspo_lab.report.chart import Chart, format_position, numbers, sentence
from gspo_lab.report.markup import NOT_MEASURED, Html, h, table
from gspo_lab.report.palette import DARK, LIGHT, dash
from gspo_lab.report.plotly_json import plot, template

SHARED = 8
"""Lists of so many numbers or more that stand in several places of the page are written once."""


class Figures:
    """All figures of a page as Plotly JSON, for the page's script. `arms`: the colours of the page's arms."""

    def __init__(self, arms: Mapping[str, int]) -> None:
        self.arms = arms
        self._lists: dict[tuple[Any, ...], int] = {}
        self._plots: dict[str, Any] = {}

    def add(self, key: str, chart: Chart, study: str) -> None:
        """The figure of the element with this id."""
        heads = {"title": chart.title, "finding": chart.finding, "study": study, "focus": list(chart.focus)}
        self._plots[key] = self._packed(plot(chart, self.arms)) | heads

    def _packed(self, part: Any) -> Any:
        """`part` with its long lists by their place in the page's table of lists, as `{"$": 3}`."""
        if isinstance(part, dict):
            return {key: self._packed(value) for key, value in part.items()}
        if not isinstance(part, list):
            return rounded(part)
        if len(part) < SHARED or any(isinstance(entry, dict | list) for entry in part):
            return [self._packed(entry) for entry in part]
        return {"$": self._lists.setdefault(tuple(map(rounded, part)), len(self._lists))}

    def script(self) -> Html:
        """The script block that holds them all: `lists`, `figures`, and both schemes with their templates."""
        held = {
            "lists": [list(entries) for entries in self._lists],
            "figures": self._plots,
            "templates": {"light": template(LIGHT), "dark": template(DARK)},
            "dark": {LIGHT[name]: DARK[name] for name in LIGHT},
        }
        return h("script", script_json(held), type="application/json", id="figures")


def figure(chart: Chart, figures: Figures, prefix: str, study: str) -> Html:
    """One `<figure>` with a fixed id (`m-reward`), so that a link can lead to it. Without values: one line that says
    so. Without scripts the sentence stands in the drawing's place."""
    heading = h("h3", h("a", chart.finding or chart.title, href=f"#{chart.id}"))
    if not chart.values():
        return h("figure", heading, h("p", NOT_MEASURED, class_="missing"), id=chart.id, class_="empty")
    figures.add(prefix + chart.id, chart, study)
    head, rows, caption = numbers(chart)
    shown = [
        [format_position(row[0]), *(cell if isinstance(cell, str) else chart.format_value(cell) for cell in row[1:])]
        for row in rows
    ]
    words = sentence(chart)
    about = (h("p", chart.note) if chart.note else None, table(head, shown, caption=caption))
    return h(
        "figure",
        heading,
        h("figcaption", chart.title) if chart.finding else None,
        h("div", words, class_="plot", role="img", aria_label=words),
        h("details", h("summary", "Method and numbers"), *about),
        id=chart.id,
        class_=f"of-{chart.kind}" + (" small" if chart.small else ""),
    )


def legend(arms: Mapping[str, int]) -> Html:
    """The page's one legend: each button hides an arm, or all seeds, in every figure."""
    buttons = [
        h("button", _key(arm, colour), arm, type="button", data_hide=f"arm {arm}", aria_pressed="true", title=arm)
        for arm, colour in arms.items()
    ]
    seeds = h("button", "seeds", type="button", data_hide="seeds", aria_pressed="true")
    return h("div", *buttons, seeds, class_="who", role="group", aria_label="Shown in all figures", hidden=True)


def _key(arm: str, colour: int) -> Html:
    dashes = None if dash(colour) == "solid" else dash(colour).replace("px", "")
    line = h("line", x1="0", x2="30", y1="4", y2="4", stroke_dasharray=dashes)
    return h("svg", line, class_="key", data_arm=arm, viewBox="0 0 30 8", aria_hidden="true")


def script_json(data: Any) -> Html:
    """JSON for a `<script>` block: nothing in it can close the block or open a comment."""
    written = json.dumps(data, ensure_ascii=True, separators=(",", ":"), sort_keys=True, allow_nan=False)
    return Html(written.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


@functools.lru_cache(maxsize=2**16, typed=True)  # places on axes come again with every series
def rounded(value: Any) -> Any:
    """`value` with six significant digits; whole numbers lose their `.0`; what is not finite is None."""
    if not isinstance(value, float):
        return value
    if value != value or value in (float("inf"), float("-inf")):
        return None
    short = float(f"{value:.6g}")
    return int(short) if short.is_integer() and abs(short) < 1e15 else short
